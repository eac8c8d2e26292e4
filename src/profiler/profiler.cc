// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/profiler.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <utility>

namespace swell::profiler {

namespace {

/// Boundaries after which NCCL and CUPTI have reported everything of a step.
constexpr std::uint64_t kSettle = 3;

template <typename Number>
std::optional<Number> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  Number value{};
  if (text == nullptr) return std::nullopt;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

Profiler::Options Profiler::from_environment() {
  Options options;
  if (const char* trace = std::getenv("SWELL_TRACE")) options.trace = trace;
  if (std::getenv("SWELL_TRACE_STEP") != nullptr) {
    const auto step = number_in<std::uint64_t>("SWELL_TRACE_STEP");
    if (step && *step > 0) options.trace_step = *step;
    else
      std::fprintf(stderr, "swell: SWELL_TRACE_STEP is \"%s\"; it must be a number from 1 on\n",
                   std::getenv("SWELL_TRACE_STEP"));
  }
  const char* kernels = std::getenv("SWELL_TRACE_KERNELS");
  options.trace_kernels = kernels != nullptr && std::strcmp(kernels, "1") == 0;
  auto rank = number_in<int>("RANK");
  if (!rank) rank = number_in<int>("SLURM_PROCID");
  options.rank = rank.value_or(static_cast<int>(getpid()));
  return options;
}

Profiler::Profiler(Options options) : options_(std::move(options)), recorder_(options_.clock) {
  if (!options_.trace.empty() && options_.trace_step == 1) begin_trace();
}

Profiler::~Profiler() {
  try {
    if (write_at_ != 0) write_trace();
  } catch (...) {  // the trace is lost
  }
}

void Profiler::begin_trace() {
  is_traced_ = true;
  if (!options_.trace_kernels) return;
  if (auto started = timeline_.start(Recorder::host_clock()); !started) {
    traced_.note = "kernels: " + started.error().message();
    std::fprintf(stderr, "swell: the trace has no kernels: %s\n",
                 started.error().message().c_str());
  }
}

/// Decides once at each boundary whether the next step is measured. A step that must be traced or
/// sampled is measured even during a rest, which then continues.
bool Profiler::next_step_rests() {
  if (rest_left_ > 0) {
    if (--rest_left_ == 0) taken_ = 0;
  } else if (stable_.is_stable() && taken_ >= Stable::kWindowSteps) {
    rest_left_ = kRestSteps;
  }
  const bool is_to_be_traced = !options_.trace.empty() && boundaries_ + 1 == options_.trace_step;
  return rest_left_ > 0 && !is_to_be_traced && !sampler_.is_busy();
}

bool Profiler::boundary(std::uint64_t step) {
  ++boundaries_;
  recorder_.step(step, next_step_rests());
  if (std::exchange(is_traced_, false)) {
    timeline_.stop();
    traced_number_ = step;
    write_at_ = boundaries_ + kSettle;
  }
  if (!options_.trace.empty() && boundaries_ + 1 == options_.trace_step) begin_trace();
  sampler_.begin_step(step + 1, is_traced_);
  while (const Step* done = recorder_.next()) {
    const bool is_the_traced = traced_number_ != 0 && done->number == traced_number_;
    if (is_the_traced) traced_.step = *done;
    const auto seen = times_of(*done);
    if (!seen) continue;
    if (!is_the_traced) sampler_.add(done->number, seen->times.step_s);
    if (is_the_traced || sampler_.was_sampled(done->number)) continue;
    stable_.add(*seen);
    ++taken_;
  }
  if (boundaries_ == write_at_) write_trace();
  if (const std::string problem = recorder_.device_problem();
      !problem.empty() && !std::exchange(has_said_problem_, true))
    std::fprintf(stderr,
                 "swell: rank %d: %s: steps without their times are left out, and without whole "
                 "steps this job has no profile\n",
                 options_.rank, problem.c_str());
  const bool has_figures = sampler_.take_finished();
  const bool is_news = stable_.take_report().has_value();
  has_reported_ = has_reported_ || is_news;
  return is_news || (has_figures && has_reported_);
}

void Profiler::write_trace() {
  write_at_ = 0;
  traced_.rank = options_.rank;
  traced_.kernels = timeline_.take();
  traced_.operations = sampler_.operations(traced_.step.began_ns, traced_.step.ended_ns);
  if (traced_.step.number != traced_number_)
    traced_.note += traced_.note.empty() ? "the device did not come to this step's end"
                                         : "; the device did not come to this step's end";
  const std::string path = path_of_rank(options_.trace, options_.rank);
  if (auto written = write_file(path, chrome_trace(traced_)); !written)
    std::fprintf(stderr, "swell: SWELL_TRACE: %s\n", written.error().message().c_str());
  traced_ = TracedStep();
}

}  // namespace swell::profiler
