// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace swell::runtime {

namespace {

std::atomic<bool> has_hung = false;

/// Pauses between two checks of NCCL or the GPU.
void rest() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

constexpr const char* kOff = "it was called off, or has taken too long";

}  // namespace

void Nccl::give_up() noexcept { has_hung = true; }

Result<void> Nccl::find(const std::string& path) {
  // Look it up by its name: the process loaded it by that name, if at all.
  if (!library_.open_again(path))
    if (auto good = library_.open(path); !good)
      return good.error().while_doing("NCCL cannot be opened");
  if (auto good = library_.find({{"ncclGetVersion", &get_version_}}); !good) return good;
  int number = 0;
  if (const nccl::Status status = get_version_(&number); status != nccl::kOk)
    return Error(fmt::format("{} does not say which release it is ({})", path, status));
  // Since NCCL 2.9 the minor version has two digits in the number.
  version_ = number < 10'000
                 ? fmt::format("{}.{}.{}", number / 1000, number / 100 % 10, number % 100)
                 : fmt::format("{}.{}.{}", number / 10'000, number / 100 % 100, number % 100);
  if (number < kOldest)
    return Error(fmt::format("{} is NCCL {}; 2.14 or later is needed", path, version_));
  return library_.find({{"ncclGetErrorString", &to_text_},
                        {"ncclGetUniqueId", &make_id},
                        {"ncclCommInitRankConfig", &init},
                        {"ncclCommGetAsyncError", &state_of},
                        {"ncclCommAbort", &abort},
                        {"ncclSend", &send},
                        {"ncclRecv", &receive},
                        {"ncclGroupStart", &begin_group},
                        {"ncclGroupEnd", &end_group}});
}

Result<const Nccl*> Nccl::open(const std::string& library) {
  struct Known {
    Nccl nccl;
    Result<void> good;
  };
  // Never destroyed: an abandoned thread may use it while the process ends.
  static auto& mutex = *new Mutex;
  static auto& all = *new std::map<std::string, std::unique_ptr<Known>>;
  if (has_hung) return Error("NCCL has hung in this process before");
  Lock lock(mutex);
  std::unique_ptr<Known>& known = all[library];
  if (known == nullptr) {
    known = std::make_unique<Known>();
    known->good = known->nccl.find(library);
  }
  if (!known->good) return known->good.error();
  return &known->nccl;
}

Result<void> Nccl::check(nccl::Status status, const char* what) const {
  // "In progress" is not an error.
  if (status == nccl::kOk || status == nccl::kInProgress) return {};
  return Error(fmt::format("NCCL {}: {}: {} ({})", version_, what, to_text_(status), status));
}

Result<std::unique_ptr<NcclPairs>> NcclPairs::create(std::shared_ptr<const Device> device,
                                                     const Nccl& nccl,
                                                     const std::atomic<bool>& is_off) {
  if (auto good = device->enter(); !good) return good.error();
  auto greeting = Slab::create(device, 1);
  if (!greeting) return greeting.error();
  auto stream = Stream::create(std::move(device));
  if (!stream) return stream.error();
  return std::unique_ptr<NcclPairs>(
      new NcclPairs(std::move(*stream), std::move(*greeting), nccl, is_off));
}

Result<std::string> NcclPairs::make_id() const {
  nccl::UniqueId id{};
  if (auto good = nccl_.check(nccl_.make_id(&id), "making an id"); !good) return good.error();
  return std::string(id.bytes, sizeof id.bytes);
}

Result<void> NcclPairs::wait_for(const Pair& pair, const char* what) const {
  for (;;) {
    nccl::Status state = nccl::kOk;
    auto good = nccl_.check(nccl_.state_of(pair.communicator, &state), what);
    if (good.ok()) good = nccl_.check(state, what);
    if (!good || state != nccl::kInProgress) return good;
    if (is_off_) return Error(fmt::format("NCCL {}: {}: {}", nccl_.version(), what, kOff));
    rest();
  }
}

Result<void> NcclPairs::join(std::uint64_t pair, const std::string& id, int rank) {
  nccl::UniqueId both{};
  if (id.size() != sizeof both.bytes || rank < 0 || rank > 1 || pairs_.contains(pair))
    return Error(fmt::format("a communicator of {} bytes of id, rank {}; {} and 0 or 1 are needed",
                             id.size(), rank, sizeof both.bytes));
  std::memcpy(both.bytes, id.data(), id.size());
  nccl::Config config;
  Pair made{nullptr, rank};
  constexpr const char* kWhat = "making a communicator";
  auto good = nccl_.check(nccl_.init(&made.communicator, 2, both, rank, &config), kWhat);
  if (made.communicator == nullptr)
    return good.ok() ? Error("NCCL has made no communicator") : good.error();
  pairs_[pair] = made;
  if (good.ok()) good = wait_for(made, kWhat);
  if (good.ok()) good = greet(made);
  if (!good) drop(pair);
  return good;
}

/// Sends a byte each way. NCCL connects two ranks only in their first operation; so an unreachable
/// GPU is found here, while state can still take another path.
Result<void> NcclPairs::greet(const Pair& pair) const {
  const Run byte{greeting_.address(), 0, 1};
  for (const int sender : {0, 1}) {
    if (auto good = launch(pair, pair.rank == sender, {&byte, 1}); !good) return good;
    if (auto good = wait_for_stream(pair, "reaching the other GPU"); !good) return good;
  }
  return {};
}

Result<void> NcclPairs::launch(const Pair& pair, bool sends, std::span<const Run> runs) const {
  const int other = 1 - pair.rank;
  auto good = nccl_.check(nccl_.begin_group(), "beginning a group");
  if (!good) return good;
  for (const Run& run : runs) {
    if (!good) break;
    void* const at = reinterpret_cast<void*>(run.from);
    const auto status =
        sends ? nccl_.send(at, run.bytes, nccl::kByte, other, pair.communicator, stream_->handle())
              : nccl_.receive(at, run.bytes, nccl::kByte, other, pair.communicator,
                              stream_->handle());
    good = nccl_.check(status, sends ? "sending" : "receiving");
  }
  // Also after an error: the thread is in the group.
  const auto ended = nccl_.check(nccl_.end_group(), "ending a group");
  if (!good || !ended) return good.ok() ? ended : good;
  return wait_for(pair, sends ? "sending" : "receiving");
}

Result<void> NcclPairs::wait_for_stream(const Pair& pair, const char* what) const {
  for (;;) {
    const auto done = stream_->is_done();
    if (!done) return done.error();
    nccl::Status state = nccl::kOk;
    auto good = nccl_.check(nccl_.state_of(pair.communicator, &state), what);
    if (good.ok()) good = nccl_.check(state, what);
    if (!good || *done) return good;
    if (is_off_) return Error(fmt::format("NCCL {}: {}: {}", nccl_.version(), what, kOff));
    rest();
  }
}

Result<void> NcclPairs::transfer(std::uint64_t pair, bool sends, std::span<const Run> runs,
                                 std::atomic<std::uint64_t>& chunks) {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end()) return Error(fmt::format("there is no communicator {} here", pair));
  std::vector<Run> chunk;
  std::uint64_t bytes = 0;
  Result<void> good;
  const auto flush = [&] {
    if (chunk.empty() || !good) return;
    good = launch(found->second, sends, chunk);
    if (good.ok()) good = wait_for_stream(found->second, "moving state");
    ++chunks;
    chunk.clear();
    bytes = 0;
  };
  for (Run run : runs)
    while (run.bytes > 0 && good.ok()) {
      const std::uint64_t count = std::min(run.bytes, kChunk - bytes);
      chunk.push_back({run.from, 0, count});
      run = {run.from + count, 0, run.bytes - count};
      bytes += count;
      if (bytes == kChunk || chunk.size() == kOperations) flush();
    }
  flush();
  if (!good) drop(pair);
  return good;
}

/// Aborts transfers under way: nothing is read or written afterwards.
void NcclPairs::drop(std::uint64_t pair) noexcept {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end()) return;
  nccl_.abort(found->second.communicator);
  pairs_.erase(found);
  for (;;) {
    const auto done = stream_->is_done();
    if (!done || *done) return;
    rest();
  }
}

void NcclPairs::leave() noexcept {
  while (!pairs_.empty()) drop(pairs_.begin()->first);
}

}  // namespace swell::runtime
