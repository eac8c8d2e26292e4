// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <string>
#include <utility>

namespace swell::controller {

/// Recent offers to a job, their results, and until when the job is left as it is: after
/// growths that failed it is offered GPUs ever less. Times are seconds on the controller's clock.
class Offers {
 public:
  /// Offers that became no companion.
  struct Refused {
    int times = 0;
    std::string kind;  ///< of the last one: a word of refusals.h
  };

  struct Times {
    double grows_after = 0;  ///< the job is not grown before; 0: it may be
    double stays_until = 0;  ///< the end of its owner's `stay` after the last growth or reclaim
    double changed =
        0;  ///< when the job was last lent or asked for GPUs, told a plan, or first seen
    double settles_at = 0;  ///< the end of the site's GrowthInterval after the last change
  };

  Offers() = default;
  /// Begins with a job that is first seen now. `refused`: of before a restart of the controller.
  Offers(double now, Refused refused) : refused_(std::move(refused)) { times_.changed = now; }

  /// Notes that offers were sent. For `wait_s` the job is not offered more, nor changed for another
  /// job's gain.
  void made(double now, double wait_s) noexcept {
    is_open_ = true;
    times_.grows_after = now + wait_s;
    change(now, wait_s);
  }
  /// Notes that an offer has become a companion.
  void taken_up() noexcept { is_open_ = false; }
  /// Notes that the job has trained on lent GPUs: growths that failed before count no longer.
  void used() noexcept {
    failures_ = 0;
    were_used_ = true;
  }
  void refuse(std::string kind) {
    ++refused_.times;
    refused_.kind = std::move(kind);
  }
  /// Notes that no offer is left that could become a companion. The job is not grown for
  /// `interval_s`, twice as long after each further failure in a row.
  void fail(double now, double interval_s) noexcept;
  /// Notes that the job was told to run another plan on the GPUs that it has: it is left alone for
  /// `wait_s`.
  void replan(double now, double wait_s) noexcept {
    times_.grows_after = std::max(times_.grows_after, now + wait_s);
    change(now, wait_s);
  }
  /// Notes that lent GPUs go or are gone: the job stays as it is for `stay_s`, and is not changed
  /// for another job's gain for `interval_s`. `waits`: it is not grown for `interval_s` either.
  void give_back(double now, double interval_s, double stay_s, bool waits) noexcept {
    if (waits) times_.grows_after = std::max(times_.grows_after, now + interval_s);
    times_.stays_until = std::max(times_.stays_until, now + stay_s);
    change(now, interval_s);
  }
  /// Forgets one time that is over. Returns whether there was one: the job may grow again.
  bool take_passed(double now) noexcept;

  /// Whether offers were made, and none of them has become a companion yet.
  bool is_open() const noexcept { return is_open_; }
  /// Whether the job has trained on lent GPUs since it is known here.
  bool were_used() const noexcept { return were_used_; }
  /// Growths in a row that failed.
  int failures() const noexcept { return failures_; }
  const Refused& refused() const noexcept { return refused_; }
  const Times& times() const noexcept { return times_; }

 private:
  void change(double now, double interval_s) noexcept {
    times_.changed = now;
    times_.settles_at = std::max(times_.settles_at, now + interval_s);
  }

  bool is_open_ = false;
  bool were_used_ = false;
  int failures_ = 0;
  Refused refused_;
  Times times_;
};

}  // namespace swell::controller
