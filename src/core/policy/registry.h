// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/executor.h"
#include "core/planner/solver.h"
#include "core/policy/objective.h"
#include "core/policy/parameters.h"
#include "core/policy/policy.h"
#include "core/result.h"

namespace swell::policy {

/// Settings of policies; each policy uses those that it knows.
struct PolicyOptions {
  /// Lambda_tau of marginal-benefit policies: a larger value lends more.
  double aggressiveness = 1.0;
  /// Exponent by which marginal-benefit policies discount jobs that are lent more than their share;
  /// 0: not at all.
  double fairness = 0.0;
  /// Makes scale tables on several threads, with the same decisions; null: on the caller's thread.
  std::shared_ptr<Executor> executor;
  /// Limit of each call of a solver; null: none, so that equal views give equal decisions.
  std::function<planner::Budget()> budget;
  /// For policies that lend only if idle GPUs are likely to stay idle.
  ArrivalFilter arrivals = {};
  /// Numbers among the policy's own Options, for simulations.
  Parameters parameters = {};
  /// Used if policy_takes_objectives() is true for the policy.
  Objective objective = Objective::completion;
};

/// Returns the parameters, with aggressiveness and fairness among them.
Parameters with_benefits(const PolicyOptions& options);

/// Makes the policy called `name`, if the controller may run it; the error lists the known names,
/// or the policy's parameters. Rivals for the simulator, whose searches may take minutes, are in
/// rivals/registry.h.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name,
                                            const PolicyOptions& options = {});

/// Returns the names that make_policy() knows, in the order in which users see them.
std::vector<std::string> policy_names();
/// Returns whether this policy plans for jobs whose profile is known.
bool policy_plans(std::string_view name);
/// Returns whether this policy plans by data sheets for jobs without a profile whose model is
/// known.
bool policy_reads_data_sheets(std::string_view name);

/// Returns whether this policy takes any Objective.
bool policy_takes_objectives(std::string_view name);
/// Returns a description of a policy for the controller's log: "swell, which plans for jobs with a
/// profile, by data sheets where their model is known, and lends to others as fewest-first does".
/// Returns only the name if profiles make no difference or there is no such policy.
std::string policy_without_profiles(std::string_view name);

}  // namespace swell::policy
