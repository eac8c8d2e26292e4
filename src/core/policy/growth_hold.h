// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <limits>

namespace swell::policy {

/// Reason why a job may not be lent more GPUs now. If several hold at once, growth_hold()
/// returns the first of this list: those that last longest, or that somebody must remove, come
/// first.
enum class GrowthHold : std::uint8_t {
  none,             ///< it may be lent more
  paused,           ///< its owner has paused it
  no_agent,         ///< its swellrun is not connected
  refuses,          ///< its swellrun or program takes no more GPUs
  not_running,      ///< Slurm does not run it now: suspended, or starting
  preempted,        ///< Slurm preempts it, and ends it soon
  ends_soon,        ///< its time limit leaves less than LeastRemaining
  falls_short,      ///< lent GPUs bring less than its profile promised (policy/trust.h)
  at_its_limit,     ///< its user's job limits have no room for a companion
  profile_refused,  ///< its profile was refused, so it cannot be planned for
  profile_needed,   ///< the site lends nothing without a profile (LendWithoutProfile=no)
  profile_awaited,  ///< its first profile may still come (ProfileWait)
  stays,            ///< its owner's stay= is not over
  backs_off,        ///< it was changed, or an offer failed, a short while ago
  changing,         ///< it is between two sets of GPUs
};

/// Facts about one job on which its growth depends. The defaults hold nothing back. Times are
/// seconds of one clock.
struct GrowthFacts {
  bool is_paused = false, has_agent = true, refuses = false;
  bool is_running = true, is_preempted = false;
  double left_s = std::numeric_limits<double>::infinity();  ///< until its time limit
  double least_left_s = 0;                                  ///< LeastRemaining
  bool falls_short = false, is_at_its_limit = false;
  bool can_be_planned = false;      ///< a profile or a data sheet is known, or no policy plans
  bool is_profile_refused = false;  ///< and no other profile is known
  bool lends_without_profile = true;
  bool awaits_profile = false;  ///< a profile may still come
  bool is_owed_some = false;    ///< has fewer GPUs than its user asked for: these need no profile
  double now_s = 0, stays_until_s = 0, grows_after_s = 0;
  bool is_settled = true;
};

/// Steps after which a program that measures itself has surely reported: the profiler compares
/// three windows of five, behind the first steps (docs/profiler.md).
inline constexpr int kProfileSteps = 20;
/// Maximum waits for a first step and for kProfileSteps of them, as multiples of ProfileWait.
inline constexpr double kFirstStepWaits = 12, kProfileWaits = 60;

/// Returns for how many more seconds, at most, the first profile of a live job is awaited; 0: none.
/// Its swellrun connected `age_s` seconds ago, and its program has made `steps` steps since.
/// `profile_wait_s`: ProfileWait, the minimum wait; 0: no profile is awaited. GPUs lent before a
/// profile are lent blindly, and steps of a large model take seconds, hence the long wait.
double profile_wait_left(double age_s, std::int64_t steps, double profile_wait_s) noexcept;
/// Returns the whole of that wait for a program whose steps take `step_s` seconds each.
double whole_profile_wait(double step_s, double profile_wait_s) noexcept;

/// Returns why a job is lent no more than its user asked for, for want of a profile:
/// profile_refused, profile_needed, profile_awaited, or none.
GrowthHold profile_hold(const GrowthFacts& facts) noexcept;

/// Returns why the job may not be lent more now. This rule is only here: the controller's view,
/// `swell why`, and the simulator use it.
GrowthHold growth_hold(const GrowthFacts& facts) noexcept;

}  // namespace swell::policy
