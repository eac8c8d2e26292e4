// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "profiler/library.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/nccl_api.h"

namespace swell::runtime {

/// NCCL's functions, looked up once in a process; the library stays open until the process ends.
/// Thread-safe.
class Nccl {
 public:
  /// The oldest supported release: from it on communicators need not block.
  static constexpr int kOldest = 21400;
  /// Opens the NCCL that the process has loaded already, such as PyTorch's, otherwise the system's.
  /// The error is one sentence: no library, a too old one, or one in which a call has hung in this
  /// process.
  static Result<const Nccl*> open(const std::string& library = "libnccl.so.2");

  /// "2.27.7"
  const std::string& version() const noexcept { return version_; }
  Result<void> check(nccl::Status status, const char* what) const;
  /// Bars NCCL from further use in this process, because a call has not returned.
  static void give_up() noexcept;

  nccl::GetUniqueId make_id = nullptr;
  nccl::CommInitRankConfig init = nullptr;
  nccl::CommGetAsyncError state_of = nullptr;
  nccl::CommAbort abort = nullptr;
  nccl::Send send = nullptr;
  nccl::Receive receive = nullptr;
  nccl::Group begin_group = nullptr, end_group = nullptr;

 private:
  Result<void> find(const std::string& path);
  profiler::Library library_;
  nccl::GetVersion get_version_ = nullptr;
  nccl::GetErrorString to_text_ = nullptr;
  std::string version_;
};

/// Communicators of two ranks, each on its own GPU, and the transfers over them. Only the thread
/// that created the object may use it. Every wait ends when `is_off` returns true.
class NcclPairs {
 public:
  /// Limits of what is launched together: bytes, and number of sends or receives.
  static constexpr std::uint64_t kChunk = std::uint64_t{64} << 20;
  static constexpr std::size_t kOperations = 256;

  static Result<std::unique_ptr<NcclPairs>> create(std::shared_ptr<const Device> device,
                                                   const Nccl& nccl,
                                                   const std::atomic<bool>& is_off);
  ~NcclPairs() { leave(); }
  NcclPairs(const NcclPairs&) = delete;
  NcclPairs& operator=(const NcclPairs&) = delete;

  /// Makes a new id for both ranks of a pair.
  Result<std::string> make_id() const;
  /// Makes a pair's communicator as rank 0 or 1, and sends a byte each way. Both ranks call it at
  /// the same time.
  Result<void> join(std::uint64_t pair, const std::string& id, int rank);
  /// Sends to the other rank, or receives from it, while the other rank does the opposite with as
  /// many bytes; the `from` of the runs are addresses on this GPU. Counts finished chunks in
  /// `chunks`. After an error the pair cannot be used any longer.
  Result<void> transfer(std::uint64_t pair, bool sends, std::span<const Run> runs,
                        std::atomic<std::uint64_t>& chunks);
  /// Aborts all pairs.
  void leave() noexcept;

 private:
  struct Pair {
    void* communicator = nullptr;
    int rank = 0;
  };
  NcclPairs(std::unique_ptr<Stream> stream, Slab greeting, const Nccl& nccl,
            const std::atomic<bool>& is_off)
      : stream_(std::move(stream)), greeting_(std::move(greeting)), nccl_(nccl), is_off_(is_off) {}
  Result<void> wait_for(const Pair& pair, const char* what) const;
  Result<void> wait_for_stream(const Pair& pair, const char* what) const;
  Result<void> greet(const Pair& pair) const;
  Result<void> launch(const Pair& pair, bool sends, std::span<const Run> runs) const;
  void drop(std::uint64_t pair) noexcept;

  const std::unique_ptr<Stream> stream_;
  const Slab greeting_;  ///< a byte, the first that is sent over a pair
  const Nccl& nccl_;
  const std::atomic<bool>& is_off_;
  std::map<std::uint64_t, Pair> pairs_;
};

}  // namespace swell::runtime
