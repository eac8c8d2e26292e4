// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "runtime/nccl.h"

namespace swell::runtime {

/// NCCL of one session's program: communicators with programs of other GPUs, one for each. A thread
/// of its own calls it, so that a call which never returns does not hold the program: that thread
/// is left behind then, and NCCL not used any more in this process. One thread at a time.
class NcclState {
 public:
  using Milliseconds = std::chrono::milliseconds;
  /// Returns whether the call under way is to be cancelled.
  using IsOff = std::function<bool()>;
  /// Time for a call that was left off, or that waits for no other rank.
  static constexpr Milliseconds kGrace{5000};

  explicit NcclState(std::shared_ptr<const Device> device, Milliseconds grace = kGrace,
                     std::string library = "libnccl.so.2");
  ~NcclState();
  NcclState(const NcclState&) = delete;
  NcclState& operator=(const NcclState&) = delete;

  /// Opens it. Says which it is, and what its user has told it of networks.
  Result<std::string> open();
  Result<std::string> make_id();
  /// As NcclPairs'. An error where it takes longer than `limit`, or a chunk of it does. After a
  /// communicator that could not be made no other is until leave(): ranks would wait for this one
  /// in turn.
  Result<void> join(std::uint64_t pair, const std::string& id, int rank, Milliseconds limit,
                    const IsOff& is_off);
  Result<void> transfer(std::uint64_t pair, bool sends, std::span<const Run> runs,
                        Milliseconds limit, const IsOff& is_off);
  /// Gives all communicators up, and ends the thread.
  void leave();
  /// Whether a call has not returned: memory that it may have been given must stay as it is.
  bool is_stuck() const noexcept { return is_stuck_; }

 private:
  struct Shared;
  using Job = std::function<Result<std::string>(NcclPairs&)>;
  void abandon();
  Result<std::string> run(Job job, Milliseconds limit, const IsOff& is_off);

  const std::shared_ptr<const Device> device_;
  const Milliseconds grace_;
  const std::string library_;
  std::shared_ptr<Shared> shared_;  ///< with the thread; nullptr: there is none
  std::string failed_;              ///< why a communicator could not be made
  bool is_stuck_ = false;
};

}  // namespace swell::runtime
