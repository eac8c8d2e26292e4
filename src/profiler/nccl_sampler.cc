// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/nccl_sampler.h"

#include <algorithm>
#include <bit>

namespace swell::profiler {

namespace {

constexpr std::size_t kOthers = 64;   // number of steps with which sampled ones are compared
constexpr std::uint64_t kSettle = 3;  // boundaries after which all kernels of a step are reported
constexpr int kMaxOperations = 4096;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

/// Looks for the plugin. NCCL loads it with the first communicator, so it is looked for at
/// boundaries 1, 2, 4, 8 and so on; this costs almost nothing if it is never loaded.
void NcclSampler::find() {
  if (plugin_ != nullptr || !std::has_single_bit(boundaries_)) return;
  const nccl::Sampling* found = nullptr;
  if (library_.open_again(path_) && library_.find({{"swell_nccl_profiler_v1", &found}}))
    plugin_ = found;
}

void NcclSampler::begin_step(std::uint64_t next, bool also) {
  ++boundaries_;
  find();
  if (plugin_ == nullptr) return;
  const bool is_planned =
      planned_ < kSteps && boundaries_ >= kFirst && boundaries_ % kEvery == kFirst % kEvery;
  const bool on = is_planned || also;
  if (on) sampled_.insert(next);
  if (is_planned) ++planned_;
  if (planned_ == kSteps && !on && finished_at_ == 0) finished_at_ = boundaries_ + kSettle;
  if (on != is_on_) plugin_->set(on);
  is_on_ = on;
}

void NcclSampler::add(std::uint64_t step, double step_s) {
  if (plugin_ == nullptr) return;
  if (was_sampled(step)) sampled_s_.push_back(step_s);
  else if (others_s_.size() < kOthers) others_s_.push_back(step_s);
}

bool NcclSampler::take_finished() {
  if (is_taken_ || finished_at_ == 0 || boundaries_ < finished_at_) return false;
  is_taken_ = true;
  return true;
}

NcclFigures NcclSampler::figures() const {
  NcclFigures made;
  if (plugin_ == nullptr || sampled_s_.empty()) return made;
  const nccl::Totals totals = plugin_->totals();
  made.steps = static_cast<int>(sampled_s_.size());
  made.operations = static_cast<double>(totals.sampled_operations) / made.steps;
  made.bytes = static_cast<double>(totals.sampled_bytes) / made.steps;
  made.device_s = static_cast<double>(totals.device_ns) * 1e-9 / made.steps;
  if (!others_s_.empty()) made.overhead = std::max(0.0, median(sampled_s_) / median(others_s_) - 1);
  return made;
}

std::vector<nccl::Operation> NcclSampler::operations(std::int64_t from_ns,
                                                     std::int64_t to_ns) const {
  if (plugin_ == nullptr) return {};
  std::vector<nccl::Operation> all(kMaxOperations);
  all.resize(static_cast<std::size_t>(plugin_->operations(all.data(), kMaxOperations)));
  std::erase_if(all, [&](const nccl::Operation& operation) {
    return operation.enqueued_ns < from_ns || operation.enqueued_ns >= to_ns;
  });
  return all;
}

}  // namespace swell::profiler
