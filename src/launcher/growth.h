// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace swell::launcher {

/// Reasons against lending a run more GPUs: workers that could not be asked to leave, and
/// growths that went wrong, after which the next one waits. Pure; times are seconds of one clock.
class Growth {
 public:
  struct Settings {
    /// Time for which a companion waits for workers that do not handle the restart signal.
    double listen_timeout_s = 60;
    /// After the first growth that went wrong; twice as long after each further one.
    double growth_pause_s = 600;
    int max_pauses = 3;  ///< more of them last until the run ends
  };
  /// The run as it stands.
  struct Run {
    bool has_started = false;
    bool may_start_large = false;  ///< GPUs that are offered before are waited for
    bool is_running = false;
    std::size_t workers = 0;
    std::size_t deaf = 0;         ///< of those, how many could not be asked to leave
    std::string signal;           ///< by which they would be asked
    bool awaits_runtime = false;  ///< a live program that may still say hello to its keeper
    bool has_ended_ones = false;  ///< some workers have ended by themselves: so will the others
  };

  explicit Growth(Settings settings) : settings_(settings) {}

  /// Takes no more GPUs for a while; `for_good`, or after too many pauses: until the run ends.
  /// Returns whether it is for good.
  bool pause(double now, std::string why, bool for_good);
  /// Empty: no pause.
  const std::string& pause_reason() const noexcept { return reason_; }
  /// When the pause ends; none: there is no pause, or no end of it.
  std::optional<double> resumes_at() const;
  /// True: a pause ended just now.
  bool resume_if_due(double now);

  /// The program says why it takes part in no growth; empty: it does. Returns whether that is new.
  bool declined(const std::string& why) { return std::exchange(declined_, why) != why; }

  /// When a companion that is up at `now` is given back if it has not been able to join.
  double joins_by(double now) const noexcept { return now + settings_.listen_timeout_s; }

  /// Why no GPUs should be lent now, for people; empty: nothing speaks against it.
  std::string reason_against(const Run& run) const;
  /// Whether the controller should hear of `why`: not of each worker, only that there is a reason.
  bool is_news(const std::string& why) const;
  /// The controller has heard `why`.
  void told(std::string why) { told_ = std::move(why); }
  /// Returns whether this reason of Slurm is new, and notes it.
  bool is_new_refusal(const std::string& reason) { return refusals_.insert(reason).second; }

 private:
  const Settings settings_;
  std::string reason_;
  double until_ = 0;
  int pauses_ = 0;
  std::string declined_;
  std::string told_;
  std::set<std::string> refusals_;
};

}  // namespace swell::launcher
