// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace swell::profiler {

namespace {

/// Those that a plan is chosen by.
constexpr double Times::*kCounting[] = {
    &Times::fwd_s,         &Times::fwd_commu_s, &Times::bwd_s,     &Times::optim_s,
    &Times::commu_extra_s, &Times::head_fwd_s,  &Times::head_bwd_s};

/// Whether `inner` ran within `outer`, on the same queue of work.
bool is_within(const Span& inner, const Span& outer) {
  return inner.opening.stream == outer.opening.stream && inner.began() >= outer.began() &&
         inner.ended() <= outer.ended();
}

/// The nearest region around `span` of which `wanted` holds.
template <typename Wanted>
const Span* around(const Step& step, const Span& span, Wanted&& wanted) {
  for (std::int32_t at = span.parent; at >= 0;) {
    const Span& outer = step.spans[static_cast<std::size_t>(at)];
    if (wanted(outer) && is_within(span, outer)) return &outer;
    at = outer.parent;
  }
  return nullptr;
}

bool is_pass(const Span& span) {
  return span.opening.kind == Kind::forward || span.opening.kind == Kind::backward;
}

/// Nanoseconds that any of the intervals covers.
double covered_s(std::vector<std::pair<std::int64_t, std::int64_t>>& intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t sum = 0, until = INT64_MIN;
  for (const auto& [began, ended] : intervals) {
    if (ended <= until) continue;
    sum += ended - std::max(began, until);
    until = ended;
  }
  return static_cast<double>(sum) * 1e-9;
}

int count_distinct(std::vector<std::int32_t>& numbers, int unnumbered) {
  std::sort(numbers.begin(), numbers.end());
  const auto end = std::unique(numbers.begin(), numbers.end());
  return unnumbered + static_cast<int>(end - numbers.begin());
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

const char* name_of(Kind kind) noexcept {
  constexpr const char* kNames[kKinds] = {"forward", "backward", "optimizer", "tp all-reduce",
                                          "dp sync", "send",     "receive",   "head"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<StepTimes> times_of(const Step& step) {
  if (!step.is_whole) return std::nullopt;
  StepTimes made;
  Times& times = made.times;
  times.step_s = static_cast<double>(step.ended_ns - step.began_ns) * 1e-9;
  std::vector<std::int32_t> forwards, backwards;  // their micro-batches
  int more_forwards = 0, more_backwards = 0;      // of no number
  std::vector<std::pair<std::int64_t, std::int64_t>> synchronized;
  std::int64_t last_backward = INT64_MIN;
  double launch_s = INFINITY;
  for (const Span& span : step.spans) {
    if (!span.is_closed()) {
      if (is_pass(span) || span.opening.kind == Kind::optimizer) return std::nullopt;
      continue;
    }
    if (span.opening.kind == Kind::backward) last_backward = std::max(last_backward, span.ended());
  }
  for (const Span& span : step.spans) {
    if (!span.is_closed()) continue;
    const Kind kind = span.opening.kind;
    if (around(step, span, [&](const Span& outer) { return outer.opening.kind == kind; })) continue;
    const double took = span.seconds();
    const std::int32_t number = span.opening.micro_batch;
    switch (kind) {
      case Kind::forward:
        times.fwd_s += took;
        if (span.allocated_bytes > 0)
          times.kept_bytes += static_cast<double>(span.allocated_bytes) -
                              static_cast<double>(span.opening.allocated_bytes);
        if (number < 0) ++more_forwards;
        else forwards.push_back(number);
        if (span.on_device && span.opening.layers > 0)
          launch_s = std::min(launch_s, static_cast<double>(span.ended_ns - span.began_ns) * 1e-9 /
                                            span.opening.layers);
        break;
      case Kind::backward:
        times.bwd_s += took;
        if (number < 0) ++more_backwards;
        else backwards.push_back(number);
        break;
      case Kind::optimizer: times.optim_s += took; break;
      case Kind::tp_allreduce:
        if (span.in_forward) times.fwd_commu_s += took;
        break;
      case Kind::head: (span.in_backward ? times.head_bwd_s : times.head_fwd_s) += took; break;
      case Kind::dp_sync:
        if (const Span* pass = around(step, span, is_pass)) {
          times.commu_extra_s += took;
          (pass->opening.kind == Kind::forward ? times.fwd_s : times.bwd_s) -= took;
        } else if (span.ended() > last_backward) {
          synchronized.emplace_back(std::max(span.began(), last_backward), span.ended());
        }
        break;
      case Kind::send:
      case Kind::receive:
        if (const Span* pass = around(step, span, is_pass))
          (pass->opening.kind == Kind::forward ? times.fwd_s : times.bwd_s) -= took;
        break;
    }
  }
  times.commu_extra_s += covered_s(synchronized);
  made.micro_batches = count_distinct(forwards, more_forwards);
  const int backward_passes = count_distinct(backwards, more_backwards);
  if (made.micro_batches == 0 || backward_passes == 0) return std::nullopt;
  for (double* time : {&times.fwd_s, &times.fwd_commu_s, &times.head_fwd_s, &times.kept_bytes})
    *time /= made.micro_batches;
  for (double* time : {&times.bwd_s, &times.head_bwd_s}) *time /= backward_passes;
  times.kept_bytes = std::max(0.0, times.kept_bytes);
  if (std::isfinite(launch_s)) times.layer_launch_s = launch_s;
  return made;
}

double largest_change(const Times& a, const Times& b, int micro_batches) {
  constexpr double kNothing = 0.001;
  const double step = kNothing * micro_batches * std::max(a.fwd_s + a.bwd_s, b.fwd_s + b.bwd_s);
  double max = 0;
  for (const auto field : kCounting) {
    const double difference = std::abs(a.*field - b.*field);
    if (difference > step) max = std::max(max, difference / std::max(a.*field, b.*field));
  }
  return max;
}

void Stable::add(const StepTimes& step) {
  // A step of another number of micro-batches is of another training.
  if (step.micro_batches != micro_batches_) {
    window_.clear();
    windows_.clear();
    is_stable_ = false;
  }
  micro_batches_ = step.micro_batches;
  window_.push_back(step.times);
  if (window_.size() == kWindowSteps) close_window();
}

void Stable::close_window() {
  Times medians;
  std::vector<double> values(window_.size());
  const auto set = [&](double Times::*field) {
    std::transform(window_.begin(), window_.end(), values.begin(),
                   [&](const Times& times) { return times.*field; });
    medians.*field = median(values);
  };
  for (const auto field : kCounting) set(field);
  set(&Times::layer_launch_s);
  set(&Times::step_s);
  set(&Times::kept_bytes);
  window_.clear();
  latest_ = medians;
  windows_.push_back(medians);
  if (windows_.size() > kWindows) windows_.pop_front();
  is_stable_ = windows_.size() == kWindows;
  for (const Times& a : windows_)
    for (const Times& b : windows_)
      is_stable_ = is_stable_ && largest_change(a, b, micro_batches_) <= kChange;
  is_new_ =
      is_stable_ && (!reported_ || largest_change(*reported_, *latest_, micro_batches_) > kChange);
}

std::optional<Times> Stable::take_report() {
  if (!std::exchange(is_new_, false)) return std::nullopt;
  reported_ = latest_;
  return reported_;
}

}  // namespace swell::profiler
