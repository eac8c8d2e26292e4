// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/plan/plan.h"
#include "launcher/rank_assignment.h"
#include "launcher/run_state.h"

namespace swell::launcher {

/// Chooses the rank assignment of a run's next generation: by the plan that was asked for, else by
/// the plan that runs, else over as many GPUs as the user and the program allow. Pure.
class AssignmentPlanner {
 public:
  struct Settings {
    int gpus_per_worker = 1;
    std::vector<int> sizes;  ///< the totals that the user allows; empty: any
    int step = 0;  ///< GPUs between allowed totals, from the basic demand on; used without `sizes`
  };
  explicit AssignmentPlanner(Settings settings) : settings_(std::move(settings)) {}

  /// Sets the total numbers of GPUs on which the program can run, rising; none: any number. Returns
  /// whether they changed.
  bool set_program_sizes(std::vector<int> sizes);
  const std::vector<int>& program_sizes() const noexcept { return program_sizes_; }

  /// Takes the controller's plan for the change that it has just asked for; JSON that is not an
  /// object means that the program plans. Returns the reason if the plan cannot be read, else an
  /// empty string.
  std::string want(const Json& json);
  void want(plan::Plan plan) { wanted_ = std::move(plan); }
  bool wants() const noexcept { return wanted_.has_value(); }
  /// Forgets the wanted plan, which runs now or was given up.
  void drop() noexcept { wanted_.reset(); }
  /// Drops the wanted plan if `next` does not follow it. Returns the reason then, else an empty
  /// string.
  std::string drop_unfit(const RankAssignment& next, const RunState& run);

  /// Notes why the last wanted plan is not run; empty: it runs, or may still run.
  void refuse(std::string why) { refused_ = std::move(why); }
  const std::string& refused() const noexcept { return refused_; }

  RankAssignment next(const RunState& run) const;

 private:
  std::vector<int> asked_sizes(int basic, int limit) const;
  bool runs_on(int basic, int gpus) const;

  const Settings settings_;
  std::vector<int> program_sizes_;
  /// The plan for the next generation; nullopt: none was decided, or it runs already.
  std::optional<plan::Plan> wanted_;
  std::string refused_;
};

}  // namespace swell::launcher
