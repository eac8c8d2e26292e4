// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace swell::launcher {

/// Reasons not to lend a run more GPUs: workers that could not be asked to leave, and failed
/// growths, after which the next one waits. Pure; times are seconds of one clock.
class Growth {
 public:
  struct Settings {
    /// Time for which a companion waits for workers that do not handle the restart signal.
    double listen_timeout_s = 60;
    /// Pause after the first failed growth; twice as long after each further one.
    double growth_pause_s = 600;
    int max_pauses = 3;  ///< a further pause lasts until the run ends
  };
  /// The present state of the run.
  struct Run {
    bool has_started = false;
    bool may_start_large = false;  ///< the first start waits for GPUs that are offered before it
    bool is_running = false;
    std::size_t workers = 0;
    std::size_t deaf = 0;         ///< number of workers that could not be asked to leave
    std::string signal;           ///< signal by which workers are asked to leave
    bool awaits_runtime = false;  ///< a live program may still connect to its keeper
    bool has_ended_ones = false;  ///< some workers have ended by themselves, as the others will
  };

  explicit Growth(Settings settings) : settings_(settings) {}

  /// Begins a pause, during which the run takes no more GPUs. With `for_good`, or after max_pauses,
  /// it lasts until the run ends. Returns whether it does.
  bool pause(double now, std::string why, bool for_good);
  /// Returns the reason of the pause; empty: there is none.
  const std::string& pause_reason() const noexcept { return reason_; }
  /// Returns when the pause ends; nullopt: there is no pause, or it lasts until the run ends.
  std::optional<double> resumes_at() const;
  /// Ends the pause if it is over. Returns whether it did.
  bool resume_if_due(double now);

  /// Notes why the program is left out of growths; empty: it is not. Returns whether that is new.
  bool declined(const std::string& why) { return std::exchange(declined_, why) != why; }

  /// Returns when a companion that is up at `now` is given back unless it has joined.
  double joins_by(double now) const noexcept { return now + settings_.listen_timeout_s; }

  /// Returns why no GPUs should be lent now, as text for people; empty: they may be lent.
  std::string reason_against(const Run& run) const;
  /// Returns whether `why` should be sent to the controller, which needs the reason once, and not
  /// for each worker.
  bool is_news(const std::string& why) const;
  /// Notes that `why` was sent to the controller.
  void told(std::string why) { told_ = std::move(why); }
  /// Notes a reason why Slurm refused a companion. Returns whether it is new.
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
