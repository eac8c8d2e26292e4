// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/kernel_timeline.h"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "profiler/cupti_api.h"
#include "profiler/library.h"

namespace swell::profiler {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

struct KernelTimeline::Functions {
  Library library;
  cupti::Subscribe subscribe = nullptr;
  cupti::Unsubscribe unsubscribe = nullptr;
  cupti::RegisterCallbacks register_callbacks = nullptr;
  cupti::Enable enable = nullptr, disable = nullptr;
  cupti::Flush flush = nullptr;
  cupti::NextRecord next_record = nullptr;
  cupti::Timestamp timestamp = nullptr;
};

namespace {

/// Data from CUPTI's threads. It is global because CUPTI's callbacks pass no argument of the
/// caller.
struct Gathered {
  Mutex mutex;
  std::vector<Kernel> kernels SWELL_GUARDED_BY(mutex);  ///< by CUPTI's clock
  cupti::NextRecord next_record SWELL_GUARDED_BY(mutex) = nullptr;
};
Gathered& gathered() {
  static auto* const made = new Gathered;
  return *made;
}

/// Does nothing: a subscription needs a function, although no callbacks are enabled.
void no_callback(void*, int, unsigned, const void*) {}

void buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *records = 0;
}

void gather(std::uint8_t* buffer, std::size_t valid) {
  Gathered& all = gathered();
  Lock lock(all.mutex);
  cupti::Record* record = nullptr;
  while (all.kernels.size() < KernelTimeline::kMaxKernels &&
         all.next_record(buffer, valid, &record) == 0) {
    if (record->kind != cupti::kConcurrentKernel) continue;
    const auto* kernel = reinterpret_cast<const cupti::KernelRecord*>(record);
    if (kernel->end <= kernel->start) continue;  // still running
    all.kernels.push_back({kernel->name != nullptr ? kernel->name : "", kernel->device,
                           kernel->stream, static_cast<std::int64_t>(kernel->start),
                           static_cast<std::int64_t>(kernel->end)});
  }
}

void buffer_completed(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  try {
    if (valid > 0) gather(buffer, valid);
  } catch (...) {  // in CUPTI's thread: the rest of this buffer is lost
  }
  std::free(buffer);
}

}  // namespace

Result<void> KernelTimeline::start(std::int64_t now_ns, const std::vector<std::string>& libraries) {
  auto functions = std::make_shared<Functions>();
  Result<void> opened = Error("no library of CUPTI is named");
  const auto first = [&](Result<void> (Library::*open)(const std::string&)) {
    for (const std::string& name : libraries)
      if ((opened = (functions->library.*open)(name)).ok()) return true;
    return false;
  };
  // If a process has two copies of CUPTI, the second one does not see what PyTorch has enabled in
  // the first.
  if (!first(&Library::open_again)) first(&Library::open);
  if (!opened) return opened.error().while_doing("opening CUPTI");
  if (auto found = functions->library.find(
          {{"cuptiSubscribe", &functions->subscribe},
           {"cuptiUnsubscribe", &functions->unsubscribe},
           {"cuptiActivityRegisterCallbacks", &functions->register_callbacks},
           {"cuptiActivityEnable", &functions->enable},
           {"cuptiActivityDisable", &functions->disable},
           {"cuptiActivityFlushAll", &functions->flush},
           {"cuptiActivityGetNextRecord", &functions->next_record},
           {"cuptiGetTimestamp", &functions->timestamp}});
      !found)
    return found;
  void* subscriber = nullptr;
  const int code =
      functions->subscribe(&subscriber, reinterpret_cast<void*>(&no_callback), nullptr);
  if (code == cupti::kAnotherSubscriber)
    return Error(
        "torch.profiler or another tool holds CUPTI in this process; kernels are not "
        "recorded beside it");
  if (code != 0) return Error("CUPTI refuses a subscriber: its error " + std::to_string(code));
  {
    Gathered& all = gathered();
    Lock lock(all.mutex);
    all.kernels.clear();
    all.next_record = functions->next_record;
  }
  std::uint64_t clock_ns = 0;
  int failed = functions->register_callbacks(&buffer_requested, &buffer_completed);
  if (failed == 0) failed = functions->timestamp(&clock_ns);
  if (failed == 0) failed = functions->enable(cupti::kConcurrentKernel);
  if (failed != 0) {
    functions->unsubscribe(subscriber);
    return Error("CUPTI does not record kernels: its error " + std::to_string(failed));
  }
  functions_ = std::move(functions);
  subscriber_ = subscriber;
  shift_ns_ = now_ns - static_cast<std::int64_t>(clock_ns);
  return {};
}

void KernelTimeline::stop() {
  if (subscriber_ != nullptr) functions_->disable(cupti::kConcurrentKernel);
}

std::vector<Kernel> KernelTimeline::take() {
  if (subscriber_ == nullptr) return {};
  functions_->flush(0);  // delivers completed kernels without waiting
  functions_->unsubscribe(std::exchange(subscriber_, nullptr));
  Gathered& all = gathered();
  Lock lock(all.mutex);
  for (Kernel& kernel : all.kernels) {
    kernel.began_ns += shift_ns_;
    kernel.ended_ns += shift_ns_;
  }
  return std::exchange(all.kernels, {});
}

}  // namespace swell::profiler
