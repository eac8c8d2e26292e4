// SPDX-License-Identifier: GPL-2.0-or-later
// CUPTI without a device: one subscriber, and the kernels that the test runs. Records are bytes at
// the offsets of CUPTI's record of a kernel.
#include <cstdint>
#include <cstring>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::size_t kRecordBytes = 200;
int held = 0, enabled = 0;
std::vector<unsigned char> ran;
void (*requested)(std::uint8_t**, std::size_t*, std::size_t*) = nullptr;
void (*completed)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t) = nullptr;

void put(unsigned char* record, std::size_t offset, const void* value, std::size_t bytes) {
  std::memcpy(record + offset, value, bytes);
}

}  // namespace

EXPORT int cuptiSubscribe(void** subscriber, void*, void*) {
  if (held != 0) return 39;
  held = 1;
  *subscriber = &held;
  return 0;
}
EXPORT int cuptiUnsubscribe(void*) { return held = 0; }
EXPORT int cuptiActivityRegisterCallbacks(decltype(requested) request,
                                          decltype(completed) complete) {
  requested = request;
  completed = complete;
  return 0;
}
EXPORT int cuptiActivityEnable(unsigned kind) { return enabled = static_cast<int>(kind), 0; }
EXPORT int cuptiActivityDisable(unsigned) { return enabled = 0; }
EXPORT int cuptiGetTimestamp(std::uint64_t* ns) { return *ns = 1'000'000, 0; }
EXPORT int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, void** record) {
  auto* next = *record == nullptr ? buffer : static_cast<std::uint8_t*>(*record) + kRecordBytes;
  if (next >= buffer + valid) return 12;
  *record = next;
  return 0;
}
EXPORT int cuptiActivityFlushAll(std::uint32_t) {
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, records = 0;
  if (ran.empty()) return 0;
  requested(&buffer, &size, &records);
  if (size < ran.size()) return 8;
  std::memcpy(buffer, ran.data(), ran.size());
  completed(nullptr, 0, buffer, size, ran.size());
  ran.clear();
  return 0;
}

/// Another tool of the process.
EXPORT void fake_hold_cupti(int holds) { held = holds; }
EXPORT void fake_kernel(const char* name, std::uint64_t start, std::uint64_t end,
                        std::uint32_t stream) {
  if (enabled != 10) return;
  unsigned char record[kRecordBytes];
  std::memset(record, 0xee, sizeof record);
  const std::uint32_t kind = 10, device = 3;
  put(record, 0, &kind, 4);
  put(record, 16, &start, 8);
  put(record, 24, &end, 8);
  put(record, 40, &device, 4);
  put(record, 48, &stream, 4);
  put(record, 104, &name, 8);
  ran.insert(ran.end(), record, record + sizeof record);
}
