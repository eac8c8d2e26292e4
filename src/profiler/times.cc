// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace swell::profiler {

namespace {

/// The times on which the choice of a plan depends.
constexpr double Times::*kCounting[] = {
    &Times::fwd_s,         &Times::fwd_commu_s, &Times::bwd_s,      &Times::optim_s,
    &Times::commu_extra_s, &Times::head_fwd_s,  &Times::head_bwd_s, &Times::weights_s};

/// Returns whether `inner` ran within `outer`, on the same stream or thread.
bool is_within(const Span& inner, const Span& outer) {
  return inner.opening.stream == outer.opening.stream && inner.began() >= outer.began() &&
         inner.ended() <= outer.ended();
}

/// Returns the innermost region around `span` for which `wanted` returns true.
template <typename Wanted>
const Span* around(const Step& step, const Span& span, Wanted&& wanted) {
  for (std::int32_t at = span.parent; at >= 0;) {
    const Span& outer = step.spans[static_cast<std::size_t>(at)];
    if (wanted(outer) && is_within(span, outer)) return &outer;
    at = outer.parent;
  }
  return nullptr;
}

bool is_backward(const Span& span) {
  return span.opening.kind == Kind::backward || span.opening.kind == Kind::weights;
}

bool is_pass(const Span& span) { return span.opening.kind == Kind::forward || is_backward(span); }

/// Returns the time that any of the intervals covers.
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

/// Returns the interquartile range of `values`, which it sorts; 0 for one value.
double spread(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t last = values.size() - 1;
  return values[(3 * last + 3) / 4] - values[last / 4];
}

/// Passes of one step by node and micro-batch. Several regions of one chunk count as one pass.
class NodePasses {
 public:
  struct Place {
    std::size_t node = SIZE_MAX, pass = 0;
  };
  /// Adds a region and returns its pass.
  Place add(perf::NodePass pass, const Span& span) {
    if (has_too_many_) return {};
    perf::NodeObservation key;
    key.pass = pass;
    if (span.opening.layers > 0) {
      key.first_layer = span.opening.first_layer;
      key.layers = span.opening.layers;
    }
    const auto known = std::find_if(nodes_.begin(), nodes_.end(),
                                    [&](const Node& node) { return node.key.is_of(key); });
    has_too_many_ = known == nodes_.end() && nodes_.size() == perf::kMaxNodes;
    if (has_too_many_) return {};
    Node& node = known == nodes_.end() ? nodes_.emplace_back(Node{key, {}}) : *known;
    const std::int32_t number = span.opening.micro_batch;
    std::size_t at = node.passes.size();
    while (number >= 0 && at > 0 && node.passes[at - 1].micro_batch != number) --at;
    if (number < 0 || at == 0) {
      node.passes.push_back({number});
      at = node.passes.size();
    }
    Pass& one = node.passes[at - 1];
    one.seconds += span.seconds();
    if (span.allocated_bytes > 0) {
      one.is_measured = true;
      one.bytes += static_cast<double>(span.allocated_bytes) -
                   static_cast<double>(span.opening.allocated_bytes);
    }
    return {static_cast<std::size_t>(&node - nodes_.data()), at - 1};
  }
  void take_out(Place place, double seconds) {
    if (place.node < nodes_.size()) nodes_[place.node].passes[place.pass].seconds -= seconds;
  }

  /// Returns the nodes in the order of their first pass; none if there are more than can be
  /// reported.
  std::vector<perf::NodeObservation> nodes() const {
    std::vector<perf::NodeObservation> nodes;
    std::vector<double> seconds, bytes;
    if (has_too_many_) return nodes;
    for (const Node& node : nodes_) {
      seconds.clear();
      bytes.clear();
      for (const Pass& pass : node.passes) {
        seconds.push_back(std::max(0.0, pass.seconds));
        if (pass.is_measured) bytes.push_back(pass.bytes);
      }
      perf::NodeObservation& made = nodes.emplace_back(node.key);
      made.spread_s = spread(seconds);
      made.median_s = median(seconds);
      made.bytes = bytes.empty() ? 0 : median(bytes);
    }
    return nodes;
  }

 private:
  struct Pass {
    std::int32_t micro_batch = -1;
    double seconds = 0, bytes = 0;
    bool is_measured = false;
  };
  struct Node {
    perf::NodeObservation key;
    std::vector<Pass> passes;
  };
  std::vector<Node> nodes_;
  bool has_too_many_ = false;
};

/// Returns the nodes over several steps; none if the steps do not have the same nodes.
std::vector<perf::NodeObservation> nodes_of(
    const std::vector<std::vector<perf::NodeObservation>>& steps) {
  std::vector<perf::NodeObservation> nodes = steps.front();
  std::vector<double> seconds, spreads, bytes;
  for (perf::NodeObservation& node : nodes) {
    seconds.clear();
    spreads.clear();
    bytes.clear();
    for (const auto& step : steps) {
      const auto found = std::find_if(step.begin(), step.end(),
                                      [&](const auto& other) { return other.is_of(node); });
      if (found == step.end() || step.size() != nodes.size()) return {};
      seconds.push_back(found->median_s);
      spreads.push_back(found->spread_s);
      bytes.push_back(found->bytes);
    }
    // On a shared machine, steps differ by more than the micro-batches of one step.
    node.spread_s = std::max(median(spreads), spread(seconds));
    node.median_s = median(seconds);
    node.bytes = median(bytes);
  }
  return nodes;
}

Times medians_of(const std::vector<Times>& all) {
  Times medians;
  std::vector<double> values(all.size());
  const auto set = [&](double Times::*field) {
    std::transform(all.begin(), all.end(), values.begin(),
                   [&](const Times& times) { return times.*field; });
    medians.*field = median(values);
  };
  for (const auto field : kCounting) set(field);
  set(&Times::layer_launch_s);
  set(&Times::step_s);
  set(&Times::kept_bytes);
  return medians;
}

}  // namespace

const char* name_of(Kind kind) noexcept {
  constexpr const char* kNames[kKinds] = {"forward",       "backward", "optimizer",
                                          "tp all-reduce", "dp sync",  "send",
                                          "receive",       "head",     "weights"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<StepTimes> times_of(const Step& step) {
  if (!step.is_whole) return std::nullopt;
  StepTimes made;
  Times& times = made.times;
  times.step_s = static_cast<double>(step.ended_ns - step.began_ns) * 1e-9;
  std::vector<std::int32_t> forwards, backwards;  // micro-batches of these passes
  int more_forwards = 0, more_backwards = 0;      // passes without a number
  std::vector<std::int32_t> measured;             // micro-batches for which the memory is known
  int more_measured = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> synchronized;
  std::int64_t last_backward = INT64_MIN;
  double launch_s = INFINITY;
  NodePasses nodes;
  std::vector<NodePasses::Place> node_of(step.spans.size());  // by region
  const auto at = [&](const Span& span) {
    return static_cast<std::size_t>(&span - step.spans.data());
  };
  const auto take_out = [&](const Span& pass, double took) {
    nodes.take_out(node_of[at(pass)], took);
    (pass.opening.kind == Kind::forward ? times.fwd_s : times.bwd_s) -= took;
    if (pass.opening.kind == Kind::weights) times.weights_s -= took;
  };
  for (const Span& span : step.spans) {
    if (!span.is_closed()) {
      if (is_pass(span) || span.opening.kind == Kind::optimizer) return std::nullopt;
      continue;
    }
    if (is_backward(span)) last_backward = std::max(last_backward, span.ended());
  }
  for (const Span& span : step.spans) {
    if (!span.is_closed()) continue;
    const Kind kind = span.opening.kind;
    if (around(step, span, [&](const Span& outer) { return outer.opening.kind == kind; })) continue;
    const double took = span.seconds();
    const std::int32_t number = span.opening.micro_batch;
    switch (kind) {
      case Kind::forward:
        node_of[at(span)] = nodes.add(perf::NodePass::forward, span);
        times.fwd_s += took;
        if (span.allocated_bytes > 0) {
          times.kept_bytes += static_cast<double>(span.allocated_bytes) -
                              static_cast<double>(span.opening.allocated_bytes);
          if (number < 0) ++more_measured;
          else measured.push_back(number);
        }
        if (number < 0) ++more_forwards;
        else forwards.push_back(number);
        if (span.on_device && span.opening.layers > 0)
          launch_s = std::min(launch_s, static_cast<double>(span.ended_ns - span.began_ns) * 1e-9 /
                                            span.opening.layers);
        break;
      case Kind::weights:
        node_of[at(span)] = nodes.add(perf::NodePass::weights, span);
        times.weights_s += took;
        times.bwd_s += took;  // part of a pass that its backward region counts
        break;
      case Kind::backward:
        node_of[at(span)] = nodes.add(perf::NodePass::backward, span);
        times.bwd_s += took;
        if (number < 0) ++more_backwards;
        else backwards.push_back(number);
        break;
      case Kind::optimizer: times.optim_s += took; break;
      case Kind::tp_allreduce:
        if (span.in_forward) times.fwd_commu_s += took;
        break;
      case Kind::head:
        nodes.add(span.in_backward ? perf::NodePass::head_backward : perf::NodePass::head_forward,
                  span);
        (span.in_backward ? times.head_bwd_s : times.head_fwd_s) += took;
        break;
      case Kind::dp_sync:
        if (const Span* pass = around(step, span, is_pass)) {
          times.commu_extra_s += took;
          take_out(*pass, took);
        } else if (span.ended() > last_backward) {
          synchronized.emplace_back(std::max(span.began(), last_backward), span.ended());
        }
        break;
      case Kind::send:
      case Kind::receive:
        if (const Span* pass = around(step, span, is_pass)) take_out(*pass, took);
        break;
    }
  }
  times.commu_extra_s += covered_s(synchronized);
  made.micro_batches = count_distinct(forwards, more_forwards);
  const int backward_passes = count_distinct(backwards, more_backwards);
  if (made.micro_batches == 0 || backward_passes == 0) return std::nullopt;
  for (double* time : {&times.fwd_s, &times.fwd_commu_s, &times.head_fwd_s})
    *time /= made.micro_batches;
  times.kept_bytes /= std::max(1, count_distinct(measured, more_measured));
  for (double* time : {&times.bwd_s, &times.weights_s, &times.head_bwd_s}) *time /= backward_passes;
  times.kept_bytes = std::max(0.0, times.kept_bytes);
  if (std::isfinite(launch_s)) times.layer_launch_s = launch_s;
  made.nodes = nodes.nodes();
  return made;
}

double change_between(const Times& a, const Times& b, int micro_batches) {
  const auto step_of = [&](const Times& times) {
    return micro_batches * (times.fwd_s + times.bwd_s) + times.optim_s + times.commu_extra_s;
  };
  const auto changed = [&](double Times::*part) { return std::abs(a.*part - b.*part); };
  double most = micro_batches * (changed(&Times::fwd_s) + changed(&Times::bwd_s)) +
                changed(&Times::optim_s) + changed(&Times::commu_extra_s);
  for (const auto part :
       {&Times::fwd_commu_s, &Times::head_fwd_s, &Times::head_bwd_s, &Times::weights_s})
    most = std::max(most, micro_batches * changed(part));
  const double step = std::max(step_of(a), step_of(b));
  return step > 0 ? most / step : 0;
}

void Stable::add(const StepTimes& step) {
  if (step.micro_batches != micro_batches_) {
    if (micro_batches_ != 0 && ++others_ < kWindowSteps) return;
    window_.clear();
    window_nodes_.clear();
    windows_.clear();
    is_stable_ = false;
  }
  others_ = 0;
  micro_batches_ = step.micro_batches;
  window_.push_back(step.times);
  window_nodes_.push_back(step.nodes);
  if (window_.size() == kWindowSteps) close_window();
}

bool Stable::last_windows_agree() const {
  if (windows_.size() < kWindows) return false;
  for (auto a = windows_.end() - kWindows; a != windows_.end(); ++a)
    for (auto b = std::next(a); b != windows_.end(); ++b)
      if (change_between(*a, *b, micro_batches_) > kChange) return false;
  return true;
}

void Stable::close_window() {
  latest_ = medians_of(window_);
  nodes_ = nodes_of(window_nodes_);
  window_.clear();
  window_nodes_.clear();
  windows_.push_back(*latest_);
  is_stable_ = last_windows_agree();
  double worth = kChange;
  if (is_stable_) {
    windows_.erase(windows_.begin(), windows_.end() - kWindows);
  } else {
    if (windows_.size() < kMaxWindows) return;
    latest_ = medians_of({windows_.begin(), windows_.end()});
    windows_.clear();
    worth = kUnsettledChange;
  }
  is_new_ = !reported_ || change_between(*reported_, *latest_, micro_batches_) > worth;
}

std::optional<Times> Stable::take_report() {
  if (!std::exchange(is_new_, false)) return std::nullopt;
  reported_ = latest_;
  return reported_;
}

}  // namespace swell::profiler
