// SPDX-License-Identifier: GPL-2.0-or-later
// With the plugin itself in this process, as NCCL would have loaded it.
#include "profiler/nccl_sampler.h"

#include <cmath>
#include <criterion/criterion.h>
#include <dlfcn.h>

#include "profiler/nccl/abi.h"

using namespace swell::profiler;

namespace {

/// A communicator of NCCL 2.27, of version 5.
class Nccl {
 public:
  Nccl() {
    void* library = dlopen(SWELL_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    plugin_ = static_cast<nccl::Profiler5*>(dlsym(library, "ncclProfiler_v5"));
    cr_assert_eq(plugin_->init(&context_, 1, &mask_, nullptr, 1, 8, 0, nullptr), 0);
  }
  ~Nccl() { plugin_->finalize(context_); }
  bool times_kernels() const { return (mask_ & nccl::kKernelChannel) != 0; }
  /// 1,000 bytes, for 2 ms on the device.
  void all_reduce() {
    nccl::Event5 event{};
    event.type = nccl::kCollective;
    event.collective.function = "AllReduce";
    event.collective.count = 250;
    event.collective.datatype = "ncclFloat32";
    void *handle = nullptr, *kernel = nullptr;
    plugin_->start(context_, &handle, &event);
    plugin_->stop(handle);
    if (!times_kernels()) return;
    event = {};
    event.type = nccl::kKernelChannel;
    event.parent = handle;
    event.kernel.start_ns = 1'000'000;
    plugin_->start(context_, &kernel, &event);
    nccl::StateArguments4 end{3'000'000};
    plugin_->record_state(kernel, nccl::kKernelChannelStop, &end);
    plugin_->stop(kernel);
  }

 private:
  nccl::Profiler5* plugin_ = nullptr;
  void* context_ = nullptr;
  int mask_ = 0;
};

}  // namespace

Test(nccl_sampler, times_kernels_on_a_few_steps_and_says_what_that_cost) {
  Nccl nccl;
  NcclSampler sampler;
  int sampled = 0, finished = 0;
  for (std::uint64_t step = 1; step <= 100; ++step) {
    const bool is_on = nccl.times_kernels();
    cr_assert_eq(is_on, sampler.was_sampled(step));
    sampled += is_on ? 1 : 0;
    for (int i = 0; i < 3; ++i) nccl.all_reduce();
    sampler.add(step, is_on ? 0.104 : 0.100);
    sampler.begin_step(step + 1);
    finished += sampler.take_finished() ? 1 : 0;
  }
  cr_assert_eq(sampled, NcclSampler::kSteps);
  cr_assert_eq(finished, 1);
  const NcclFigures figures = sampler.figures();
  cr_assert_eq(figures.steps, NcclSampler::kSteps);
  cr_assert_eq(figures.operations, 3);
  cr_assert_eq(figures.bytes, 3000);
  cr_assert(std::abs(figures.device_s - 0.006) < 1e-9, "%g", figures.device_s);
  cr_assert(std::abs(figures.overhead - 0.04) < 1e-9, "%g", figures.overhead);
  cr_assert_eq(sampler.operations(0, INT64_MAX).size(), 3 * NcclSampler::kSteps);
}

Test(nccl_sampler, a_step_that_is_traced_is_sampled_too) {
  Nccl nccl;
  NcclSampler sampler;
  sampler.begin_step(1, true);
  cr_assert(nccl.times_kernels());
  sampler.begin_step(2);
  cr_assert_not(nccl.times_kernels());
}

Test(nccl_sampler, without_the_plugin_nothing_is_sampled_nor_claimed) {
  NcclSampler sampler("libno-such-plugin.so");
  for (std::uint64_t step = 1; step <= 100; ++step) {
    sampler.add(step, 0.1);
    sampler.begin_step(step + 1);
    cr_assert_not(sampler.take_finished());
    cr_assert_not(sampler.was_sampled(step + 1));
  }
  cr_assert_eq(sampler.figures().steps, 0);
}
