// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/device_clock.h"

#include <cmath>
#include <vector>

#include "profiler/cuda_events.h"
#include "profiler/library.h"

namespace swell::profiler {

namespace {

/// Lets the thread query events while another thread captures a graph, as long as the object lives;
/// without it such a query would end the capture.
class Relaxed {
 public:
  explicit Relaxed(cuda::ExchangeCaptureMode exchange) noexcept
      : exchange_(exchange), is_relaxed_(exchange(&mode_) == 0) {}
  ~Relaxed() {
    if (is_relaxed_) exchange_(&mode_);
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const cuda::ExchangeCaptureMode exchange_;
  int mode_ = cuda::kRelaxedCapture;  ///< the new mode; then the previous one
  const bool is_relaxed_;
};

class CudaClock final : public DeviceClock {
 public:
  ~CudaClock() override {
    for (void* event : free_) destroy_(event);
  }
  Result<void> open(const std::string& path) {
    if (auto good = library_.open(path); !good) return good;
    return library_.find({{"cuEventCreate", &create_},
                          {"cuEventRecord", &record_},
                          {"cuEventQuery", &query_},
                          {"cuEventElapsedTime", &elapsed_},
                          {"cuEventDestroy_v2", &destroy_},
                          {"cuStreamIsCapturing", &is_capturing_},
                          {"cuThreadExchangeStreamCaptureMode", &exchange_capture_mode_}});
  }
  void* record(void* stream) noexcept override {
    void* event = nullptr;
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    } else if (create_(&event, 0) != 0) {
      return nullptr;
    }
    if (record_(event, stream) == 0) return event;
    destroy_(event);  // the event may belong to another context
    return nullptr;
  }
  bool is_captured(void* stream) noexcept override {
    int status = 0;
    const int code = is_capturing_(stream, &status);
    // The first code means the legacy stream while another stream is captured. Other errors are
    // reported when an event fails.
    return code == cuda::kCaptureImplicit || (code == 0 && status != 0);
  }
  State state(void* event) noexcept override {
    const Relaxed relaxed(exchange_capture_mode_);
    const int code = query_(event);
    return code == 0 ? State::passed : code == cuda::kNotReady ? State::pending : State::failed;
  }
  std::optional<std::int64_t> ns_between(void* first, void* second) noexcept override {
    const Relaxed relaxed(exchange_capture_mode_);
    float ms = 0;
    if (elapsed_(&ms, first, second) != 0 || !std::isfinite(ms)) return std::nullopt;
    return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
  }
  void give_back(void* event) noexcept override {
    if (free_.size() == free_.capacity()) {
      try {
        free_.reserve(free_.size() * 2 + 256);
      } catch (...) {
        destroy_(event);
        return;
      }
    }
    free_.push_back(event);
  }

 private:
  Library library_;
  cuda::EventCreate create_ = nullptr;
  cuda::EventRecord record_ = nullptr;
  cuda::EventQuery query_ = nullptr;
  cuda::EventElapsedTime elapsed_ = nullptr;
  cuda::EventDestroy destroy_ = nullptr;
  cuda::StreamIsCapturing is_capturing_ = nullptr;
  cuda::ExchangeCaptureMode exchange_capture_mode_ = nullptr;
  std::vector<void*> free_;
};

}  // namespace

Result<std::unique_ptr<DeviceClock>> open_cuda_clock(const std::string& path) {
  auto clock = std::make_unique<CudaClock>();
  if (auto good = clock->open(path); !good) return good.error();
  return std::unique_ptr<DeviceClock>(std::move(clock));
}

}  // namespace swell::profiler
