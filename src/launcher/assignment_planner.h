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
    int step = 0;  ///< between total sizes, from the basic demand on; used if no sizes are given
  };
  explicit AssignmentPlanner(Settings settings) : settings_(std::move(settings)) {}

  /// The program can run on so many GPUs in all, rising; none: on any number. Returns whether that
  /// is new.
  bool set_program_sizes(std::vector<int> sizes);
  const std::vector<int>& program_sizes() const noexcept { return program_sizes_; }

  /// Takes the controller's plan for the change that it has just asked for; JSON that is not an
  /// object means that the program plans. Returns the reason if the plan cannot be read, else an
  /// empty string.
  std::string want(const Json& json);
  void want(plan::Plan plan) { wanted_ = std::move(plan); }
  bool wants() const noexcept { return wanted_.has_value(); }
  /// The plan that was asked for runs, or is not run.
  void drop() noexcept { wanted_.reset(); }
  /// Drops the plan that was asked for if `next` is not by it. Returns the reason then, else an
  /// empty string.
  std::string drop_unfit(const RankAssignment& next, const RunState& run);

  /// Why the plan that was asked for last is not run; empty: it runs, or may run.
  void refuse(std::string why) { refused_ = std::move(why); }
  const std::string& refused() const noexcept { return refused_; }

  RankAssignment next(const RunState& run) const;

 private:
  std::vector<int> asked_sizes(int basic, int limit) const;
  bool runs_on(int basic, int gpus) const;

  const Settings settings_;
  std::vector<int> program_sizes_;
  /// Decided for the next generation; nothing: none was, or it runs.
  std::optional<plan::Plan> wanted_;
  std::string refused_;
};

}  // namespace swell::launcher
