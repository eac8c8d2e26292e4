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

  /// Takes a report, in hexadecimal digits, as its shim sends it. Forgets the reports of
  /// older generations; one that comes later is an error.
  Result<void> add(int generation, WorkerId worker, std::string_view digits);
  /// The profile of `generation` as JSON (core/perf/profile_json.h), with "generation", "step_s",
  /// and "nccl" where it was sampled; nothing as long as a member has not reported. The error: the
  /// reports make no plan. `decided`: SWELL_PLAN of the generation, or empty; its schedule is taken
  /// where it fits the reports, and its chunks where the program says none.
  Result<std::optional<Json>> profile(int generation, const std::vector<Member>& members,
                                      const std::string& decided = {}) const;

 private:
  int generation_ = -1;
  std::map<WorkerId, profiler::RankProfile> reported_;
};

/// `profile` as the controller gets it: without what is for people, and where it is too large with
/// one group for each stage and size of samples. Nothing where its plan alone is too large.
std::optional<Json> bounded_profile(const Json& profile, std::size_t max_bytes);

std::string hex_digits(std::string_view bytes);
/// The indexes of the GPUs of one worker, of a node's list "0-3,6"; numbered from 0 where the list
/// does not say.
std::vector<int> gpus_of(const WorkerNode& node, int local, int gpus_per_worker);

}  // namespace swell::launcher
