// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "runtime/device/nccl.h"

namespace swell::runtime {

/// NCCL in one session's program: a communicator with each program on another GPU. A separate
/// thread calls NCCL, so that a call that never returns does not block the program: that thread is
/// then abandoned, and NCCL is not used any longer in this process. One thread at a time.
class NcclState {
 public:
  using Milliseconds = std::chrono::milliseconds;
  /// Returns whether to cancel the call that is under way.
  using IsOff = std::function<bool()>;
  /// Time limit for a call that was cancelled, or that waits for no other rank.
  static constexpr Milliseconds kGrace{5000};

  explicit NcclState(std::shared_ptr<const Device> device, Milliseconds grace = kGrace,
                     std::string library = "libnccl.so.2");
  ~NcclState();
  NcclState(const NcclState&) = delete;
  NcclState& operator=(const NcclState&) = delete;

  /// Opens NCCL. Returns its version, and the network settings of its user.
  Result<std::string> open();
  Result<std::string> make_id();
  /// Calls the function of NcclPairs. Returns an error if it, or one of its chunks, takes longer
  /// than `limit`. After one communicator could not be made, no other is made until leave(): other
  /// ranks would wait for this one in turn.
  Result<void> join(std::uint64_t pair, const std::string& id, int rank, Milliseconds limit,
                    const IsOff& is_off);
  Result<void> transfer(std::uint64_t pair, bool sends, std::span<const Run> runs,
                        Milliseconds limit, const IsOff& is_off);
  /// Aborts all communicators, and ends the thread.
  void leave();
  /// Returns whether a call has not returned; memory that it may use must not be freed then.
  bool is_stuck() const noexcept { return is_stuck_; }

 private:
  struct Shared;
  using Job = std::function<Result<std::string>(NcclPairs&)>;
  void abandon();
  Result<std::string> run(Job job, Milliseconds limit, const IsOff& is_off);

  const std::shared_ptr<const Device> device_;
  const Milliseconds grace_;
  const std::string library_;
  std::shared_ptr<Shared> shared_;  ///< shared with the thread; nullptr: there is no thread
  std::string failed_;              ///< why a communicator could not be made
  bool is_stuck_ = false;
};

}  // namespace swell::runtime
