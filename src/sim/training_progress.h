// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>

namespace swell::sim {

/// How much a job has left to train, and what its last checkpoint has. Times are simulated ones.
class TrainingProgress {
 public:
  TrainingProgress() = default;
  /// All of it is left.
  explicit TrainingProgress(double iterations) noexcept
      : all_(iterations), left_(iterations), saved_left_(iterations) {}

  double iterations() const noexcept { return all_; }  ///< of the whole job
  double rate() const noexcept { return rate_; }       ///< iterations a second at present
  double left(double now_s) const noexcept {
    return std::max(0.0, left_ - (now_s - since_s_) * rate_);
  }
  /// Time at which it ends at its present rate. REQUIRES: that is not 0.
  double ends_s() const noexcept { return since_s_ + left_ / rate_; }
  /// Rises whenever the rate is set, so that an end that was planned before is void.
  long stamp() const noexcept { return stamp_; }

  /// A start: it goes on with what is left, and writes its next checkpoint a whole interval later.
  void begin(double now_s) noexcept { since_s_ = saved_s_ = now_s; }
  /// Counts what was done until now, with the checkpoints that were written meanwhile.
  void advance(double now_s) noexcept;
  /// Trains at `rate` from now on; 0: it stands still.
  void set_rate(double rate, double now_s) noexcept;
  /// Goes on from its last checkpoint: what was done since is lost.
  void fall_back(double now_s) noexcept;

 private:
  double all_ = 0;
  double left_ = 0;  ///< as of `since_s_`
  double rate_ = 0;
  double since_s_ = 0;
  double saved_left_ = 0;  ///< `left_` at the last checkpoint
  double saved_s_ = 0;     ///< time of that
  long stamp_ = 0;
};

}  // namespace swell::sim
