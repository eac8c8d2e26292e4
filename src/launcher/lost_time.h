// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace swell::launcher {

/// Measures what a change of a job's workers cost its training: the time from the last look before
/// the change until steps are usual again, less what those steps usually take under the old and the
/// new plan. Counts what a stop alone does not show: a slow step that all agree on, programs that
/// load beside the running ones, slow first steps. Says nothing where programs count their steps
/// anew, or steps vary by more than the change cost. Pure; times are seconds of one clock.
class LostTime {
 public:
  struct Cost {
    int generation = 0;  ///< that the change led to
    double lost_s = 0;   ///< 0 or more
    friend bool operator==(const Cost&, const Cost&) = default;
  };

  /// The program of `generation` passed the boundary of `step` at `at`. Boundaries come in their
  /// order.
  void passed(double at, int generation, std::uint64_t step);
  /// A change has led to `generation`. It began at `began`; the programs before stopped behind step
  /// `stopped_at`, 0: at the last one that was reported.
  void changed(double began, int generation, std::uint64_t stopped_at);
  /// The cost of the last change that could be measured.
  const std::optional<Cost>& last() const noexcept { return last_; }

 private:
  struct Passed {
    double at = 0;
    int generation = 0;
    std::uint64_t step = 0;
  };
  struct Change {
    int generation = 0;
    std::uint64_t stopped_at = 0;
    Passed before;                ///< the last boundary that was reported before it began
    double old_s = 0;             ///< usual seconds of a step until then
    std::optional<Passed> usual;  ///< in `generation`, from where on steps are usual
  };
  void measure(const Passed& now);

  std::deque<Passed> heard_;
  std::optional<Change> change_;
  std::optional<Cost> last_;
};

}  // namespace swell::launcher
