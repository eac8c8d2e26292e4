// SPDX-License-Identifier: GPL-2.0-or-later
// A CUDA driver without a device: streams are queues of work that runs when the test says so, and
// every call that waits is counted.
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "profiler/fake_cuda.h"

namespace {

struct Event {
  int context = 0;
  void* stream = nullptr;
  bool recorded = false;
  double queued_us = 0;  ///< work of its stream when it was recorded
};

struct Fake {
  int context = 1;
  int waits = 0, created = 0;
  int spoiled = 0;  ///< captures
  bool refuses = false, captures = false, fails = false;
  int capture_mode = 0;               ///< of the thread: global
  double ran_us = 0;                  ///< of every stream, so far
  std::map<void*, double> queued_us;  ///< by stream
  std::set<Event*> events;
} fake;

constexpr int kInvalidHandle = 400, kNotReady = 600, kUnsupported = 900;

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuEventCreate(void** event, unsigned) {
  auto* made = new Event;
  made->context = fake.context;
  fake.events.insert(made);
  ++fake.created;
  *event = made;
  return 0;
}
EXPORT int cuEventRecord(void* event, void* stream) {
  auto* recorded = static_cast<Event*>(event);
  if (fake.captures) return 0;  // the event is the graph's: nobody may query it
  if (fake.refuses || fake.events.count(recorded) == 0) return kInvalidHandle;
  recorded->stream = stream;
  recorded->recorded = true;
  recorded->queued_us = fake.queued_us[stream];
  return 0;
}
EXPORT int cuEventQuery(void* event) {
  const auto* asked = static_cast<Event*>(event);
  if (fake.fails) return kInvalidHandle;
  if (fake.captures && fake.capture_mode != 2) {
    ++fake.spoiled;
    return kUnsupported;
  }
  if (fake.events.count(static_cast<Event*>(event)) == 0 || !asked->recorded) return kInvalidHandle;
  return asked->queued_us <= fake.ran_us ? 0 : kNotReady;
}
EXPORT int cuEventElapsedTime(float* ms, void* first, void* second) {
  const auto *from = static_cast<Event*>(first), *to = static_cast<Event*>(second);
  if (from->queued_us > fake.ran_us || to->queued_us > fake.ran_us) return kNotReady;
  *ms = static_cast<float>((to->queued_us - from->queued_us) / 1000);
  return 0;
}
EXPORT int cuEventDestroy_v2(void* event) {
  auto* gone = static_cast<Event*>(event);
  if (fake.events.erase(gone) == 0) return kInvalidHandle;
  delete gone;
  return 0;
}
EXPORT int cuStreamIsCapturing(void*, int* status) {
  *status = fake.captures ? 1 : 0;
  return 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, fake.capture_mode);
  return 0;
}
// Waiting, in every way that the driver has.
EXPORT int cuEventSynchronize(void*) { return ++fake.waits, 0; }
EXPORT int cuStreamSynchronize(void*) { return ++fake.waits, 0; }
EXPORT int cuCtxSynchronize() { return ++fake.waits, 0; }
EXPORT int cuStreamWaitEvent(void*, void*, unsigned) { return ++fake.waits, 0; }

EXPORT void fake_put(void* stream, double us) { fake.queued_us[stream] += us; }
EXPORT void fake_run(double us) { fake.ran_us += us; }
EXPORT void fake_refuse(int refuses) { fake.refuses = refuses != 0; }
EXPORT void fake_capture(int captures) { fake.captures = captures != 0; }
EXPORT void fake_fail(int fails) { fake.fails = fails != 0; }
EXPORT FakeCounts fake_counts() {
  return {fake.waits, fake.created, static_cast<int>(fake.events.size()), fake.spoiled};
}
