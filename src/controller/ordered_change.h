// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>

namespace swell::controller {

/// A change of plan that the controller has ordered: from the message until the job reports how
/// long training paused for it. The report counts once for each change, and only if the change
/// lasted at least as long on the controller's clock. Not saved: if slurmctld is started again
/// during a change, the controller has not seen the beginning, and the report does not count.
class OrderedChange {
 public:
  /// The report of a change that takes longer does not count.
  static constexpr double kLongest_s = 600;

  /// Grow, Shrink or Replan was sent. A further one before the job has changed belongs to the
  /// same change.
  void ordered(double now) noexcept {
    if (!is_settled_ || is_under_way(now)) return;
    since_ = now;
    from_generation_ = generation_;
    to_generation_.reset();
  }
  /// The growth came to nothing.
  void called_off() noexcept { since_.reset(); }
  /// The job said which generation it is in, and whether it is settled in it.
  void heard(bool is_settled, int generation) noexcept {
    is_settled_ = is_settled;
    generation_ = generation;
    if (since_ && is_settled && generation > from_generation_ && !to_generation_)
      to_generation_ = generation;
  }
  /// Takes the word of the change to `generation`. Returns the seconds since the change was
  /// ordered; none: no such change was, its word has counted, or it stood still for longer than
  /// that.
  std::optional<double> take_word(int generation, double stopped_s, double now) noexcept {
    if (!since_ || generation <= from_generation_ ||
        (to_generation_ && generation > *to_generation_))
      return std::nullopt;
    const double seen_s = now - *since_;
    counted_since_.reset();
    if (seen_s <= kLongest_s && stopped_s <= seen_s) {
      counted_since_ = since_;
      counted_generation_ = generation;
    }
    since_.reset();
    return counted_since_ ? std::optional(seen_s) : std::nullopt;
  }
  /// Takes the word of the training time that the change to `generation` cost, which comes some
  /// steps after the one that take_word() took. Returns whether it counts: once, and only within
  /// the time since the change was ordered.
  bool take_lost(int generation, double lost_s, double now) noexcept {
    if (!counted_since_ || generation != counted_generation_) return false;
    const double seen_s = now - *counted_since_;
    counted_since_.reset();
    return seen_s <= kLongest_s && lost_s <= seen_s;
  }

 private:
  bool is_under_way(double now) const noexcept {
    return since_ && !to_generation_ && now - *since_ <= kLongest_s;
  }

  bool is_settled_ = false;  ///< by what was heard since slurmctld was started
  int generation_ = 0;
  std::optional<double> since_;
  int from_generation_ = 0;
  std::optional<int> to_generation_;
  std::optional<double> counted_since_;  ///< when the change was ordered whose word counted last
  int counted_generation_ = 0;
};

}  // namespace swell::controller
