// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "runtime/placement.h"
#include "runtime/transport.h"
#include "runtime/ucx.h"

namespace swell::runtime {

/// The ways to the old ranks that hold what a placement fetches: opened before the training stops,
/// used while it stands. One thread at a time.
class Intake {
 public:
  /// The keeper that fetches.
  struct Self {
    std::string host, processes, key;
    std::shared_ptr<const Arena> arena;
    /// Asked for UCX where state would come by TCP; empty: it is not to be used.
    std::function<Result<std::shared_ptr<const Ucx>>()> ucx = {};
  };
  /// Opens the way to every source. The error names the rank that cannot be reached.
  static Result<Intake> open(const Self& self, const Prepare& plan,
                             const std::vector<Fetch>& fetches);
  /// Who watches a move; called by two threads where the source allows.
  struct Watch {
    std::function<bool(const Fetch&)> is_called_off;  ///< asked before each block
    std::function<void(const Fetch&)> has_come;       ///< may be empty
  };
  /// Fetches all of the placement into the arena, or into `program`'s own memory; first what no
  /// rank has that stays. With `verify` the checksum of each piece is compared with its source's.
  Result<Moved> fetch_all(const Placement& placement, pid_t program, bool verify,
                          const Watch& watch);

 private:
  static Result<void> fetch_runs(Transport& source, std::span<const Run> runs, const Sink& sink,
                                 bool verify);
  Result<void> fetch_some(std::span<const Fetch* const> fetches, pid_t program, bool verify,
                          const Watch& watch) const;
  Result<void> fetch_one(const Fetch& fetch, pid_t program, bool verify) const;
  explicit Intake(std::shared_ptr<const Arena> arena) : arena_(std::move(arena)) {}
  std::shared_ptr<const Arena> arena_;
  /// Of another host, or where the memory of this one is not seen.
  static Result<std::unique_ptr<Transport>> reach(const Self& self, const Endpoint& endpoint,
                                                  bool from_program, std::set<std::string>& notes);
  std::set<std::string> notes_;  ///< why a way is slower than was asked for
  /// By old rank and whether of its program.
  std::map<std::pair<std::int32_t, bool>, std::unique_ptr<Transport>> sources_;
};

}  // namespace swell::runtime
