// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/device/device_proxy.h"
#include "runtime/plan/placement.h"
#include "runtime/transport/nccl_link.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/ucx.h"

namespace swell::runtime {

/// The paths to the old ranks that hold what a placement fetches: opened before the training stops,
/// used while it stands still. One thread at a time.
class Fetcher {
 public:
  /// The keeper that fetches.
  struct Self {
    std::string host, processes, key;
    std::shared_ptr<const Arena> arena;
    /// Returns UCX, which is used for state that would otherwise come by TCP; empty: do not use it.
    std::function<Result<std::shared_ptr<const Ucx>>()> ucx = {};
    /// DeviceProxy of the new program, if it has tensors on a GPU, and a number for memory of
    /// other ranks that it maps.
    std::shared_ptr<DeviceProxy> proxy = {};
    std::function<std::uint64_t()> next_slab = {};
    /// DeviceProxy of the program that trains under this keeper, if kBounce bytes may be allocated
    /// for copies from its own memory on the GPU.
    std::shared_ptr<DeviceProxy> old_proxy = {};
    /// How programs on other GPUs send to the new one by NCCL; none: they do not.
    std::optional<NcclOptions> nccl = {};
  };
  /// Opens the path to every source. The error names the rank that cannot be reached.
  static Result<Fetcher> open(const Self& self, const Prepare& plan,
                              const std::vector<Fetch>& fetches);
  /// Returns the GPU memory that this object takes beside the state.
  std::uint64_t extra_bytes() const noexcept { return extra_bytes_; }
  /// Callbacks that watch a move; two threads call them if the source allows it.
  struct Watch {
    std::function<bool(const Fetch&)> is_called_off;  ///< asked before each block
    std::function<void(const Fetch&)> has_come;       ///< may be empty
  };
  /// Fetches all of the placement into the arena, or into the own memory of `program`; first the
  /// state that no staying rank has. Compares the checksum of each piece with its source's if
  /// `verify` asks for it.
  Result<Moved> fetch_all(const Placement& placement, pid_t program, Verify verify,
                          const Watch& watch);
  /// Releases memory of other ranks that is not read after a chunk, so that it can be freed.
  Result<void> let_go(std::uint32_t chunk) const;

 private:
  static Result<void> fetch_runs(Transport& source, std::span<const Run> runs, const Sink& sink,
                                 Checksum by);
  Result<void> fetch_some(std::span<const Fetch* const> fetches, pid_t program, Verify verify,
                          const Watch& watch) const;
  Result<void> fetch_one(const Fetch& fetch, pid_t program, Verify verify) const;
  Fetcher(std::shared_ptr<const Arena> arena, std::shared_ptr<DeviceProxy> proxy)
      : arena_(std::move(arena)), proxy_(std::move(proxy)) {}
  Sink sink_of(const Fetch& fetch, pid_t program) const;
  std::shared_ptr<const Arena> arena_;
  std::shared_ptr<DeviceProxy> proxy_;
  /// Opens the path from another host, or from this one if its memory cannot be seen.
  static Result<std::unique_ptr<Transport>> reach(const Self& self, const Endpoint& endpoint,
                                                  Memory memory, std::set<std::string>& notes);
  /// Opens the path from a GPU of this node: mapped if the new program can map it, otherwise
  /// through the old program.
  Result<std::unique_ptr<Transport>> reach_gpu(const Self& self, const Prepare& plan,
                                               const Fetch& fetch,
                                               const std::vector<Fetch>& fetches);
  /// Connects by NCCL to the program of an old rank on another GPU; once for all that comes from
  /// it.
  Result<std::shared_ptr<NcclLink>> pair_with(const Self& self, const Endpoint& endpoint,
                                              std::int32_t rank);
  std::uint64_t extra_bytes_ = 0;
  std::set<std::string> notes_;  ///< why a path is slower than requested
  /// Old rank, its kind of memory, and whether the path goes from GPU to GPU.
  using Source = std::tuple<std::int32_t, Memory, bool>;
  static Source source_of(const Fetch& fetch) {
    return {fetch.rank, fetch.from, is_on_gpu(fetch.from) && is_on_gpu(fetch.to)};
  }
  std::map<Source, std::unique_ptr<Transport>> sources_;
  std::map<std::int32_t, Result<std::shared_ptr<NcclLink>>> pairs_;  ///< by old rank
};

}  // namespace swell::runtime
