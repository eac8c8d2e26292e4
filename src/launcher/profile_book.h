// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "launcher/rank_assignment.h"
#include "profiler/rank_profile.h"

namespace swell::launcher {

/// Collects what the ranks of the running generation have reported of their steps. Pure.
class ProfileBook {
 public:
  /// A rank of the generation, and what it runs on.
  struct Member {
    WorkerId worker;
    std::string node;
    std::vector<int> gpus;
  };

  /// Takes a report, in hexadecimal digits, as its shim sends it. Forgets the reports of older
  /// generations, and ignores those that come later.
  Result<void> add(int generation, WorkerId worker, std::string_view digits);
  /// Returns the profile of `generation` as JSON (core/perf/profile_json.h), with "generation",
  /// "step_s", and "nccl" if it was sampled; nullopt until all members have reported. The error:
  /// the reports form no plan. `decided`: SWELL_PLAN of the generation, or empty; the profile gets
  /// its schedule if that fits, and its chunks if the program reports none.
  Result<std::optional<Json>> profile(int generation, const std::vector<Member>& members,
                                      const std::string& decided = {}) const;

 private:
  int generation_ = -1;
  std::map<WorkerId, profiler::RankProfile> reported_;
};

/// Returns `profile` as the controller gets it: without "generation", "step_s" and "nccl", and if
/// it is too large, with one group per stage and batch size. nullopt if that is too large, too.
std::optional<Json> bounded_profile(const Json& profile, std::size_t max_bytes);

std::string hex_digits(std::string_view bytes);
/// Returns the indexes of one worker's GPUs, from its node's list such as "0-3,6"; counts from 0 if
/// the list is too short.
std::vector<int> gpus_of(const WorkerNode& node, int local, int gpus_per_worker);

}  // namespace swell::launcher
