// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <utility>

#include "controller/version.h"
#include "core/plan/plan.h"

namespace swell::controller {

/// The plan that was decided last for a job, and whether its program runs it.
class ToldPlan {
 public:
  ToldPlan() = default;
  /// Restores what is known of a plan that was decided in `generation`.
  ToldPlan(bool makes_own_plans, std::optional<plan::Plan> plan, int generation)
      : plan_(std::move(plan)), generation_(generation), makes_own_plans_(makes_own_plans) {}

  /// The job shall run this plan once it has left `generation`.
  void decide(plan::Plan plan, int generation);
  /// The plan is not run: what runs later was not made in its place.
  void refuse();
  /// The plan may not have reached the agent that has connected: another plan that runs now does
  /// not show that the program makes its own.
  void begin_agent() noexcept { is_told_ = false; }
  /// The job's programs are those of `generation` now.
  void run(int generation);
  /// Takes a report of `seen`, which ran in `generation`. `says_chunks`: the report would say which
  /// chunks it has. Returns whether it is the first that shows that the program makes its own
  /// plans.
  bool see(const plan::Plan& seen, int generation, bool says_chunks);

  /// Returns the plan that the program was told, whether or not it runs yet; nothing if the program
  /// turned out to run another one.
  const std::optional<plan::Plan>& plan() const noexcept { return plan_; }
  /// The generation that ran when it was decided.
  int generation() const noexcept { return generation_; }
  /// Whether the program has not reported of it.
  bool awaits_report() const noexcept { return awaits_report_; }
  /// Whether it runs, as far as is known without a report.
  bool is_running() const noexcept { return is_running_; }
  /// Returns whether the program was given a plan and ran another one. Its later plans are chosen
  /// as for a program that adapts only its DP degree.
  bool makes_own_plans() const noexcept { return makes_own_plans_; }
  const Version& version() const noexcept { return version_; }

 private:
  bool is_replaced_by(const plan::Plan& seen, int generation, bool says_chunks) const;

  std::optional<plan::Plan> plan_;
  int generation_ = 0;
  bool is_told_ = false;  ///< the agent that is connected was sent it
  bool awaits_report_ = false, is_running_ = false;
  bool makes_own_plans_ = false;
  Version version_;
};

}  // namespace swell::controller
