// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace swell::launcher {

/// Measures what a change of workers cost a training: the time from the last boundary reported
/// before the change until steps take their usual time again, less what those steps usually take
/// under the old and the new plan. Counts what a stop alone does not show: a slow step that all
/// agree on, programs that load beside the running ones, slow first steps. No result if programs
/// count steps anew, or steps vary more than the cost. Pure; times are seconds of one clock.
class LostTime {
 public:
  struct Cost {
    int generation = 0;  ///< that the change led to
    double lost_s = 0;   ///< 0 or more
    friend bool operator==(const Cost&, const Cost&) = default;
  };

  /// Notes that the program of `generation` passed the boundary of `step` at `at`. Ignores a step
  /// that is not newer than the generation's last one.
  void passed(double at, int generation, std::uint64_t step);
  /// Notes a change to `generation` that began at `began`; the programs before it stopped after
  /// step `stopped_at`, 0: after the last one that was reported.
  void changed(double began, int generation, std::uint64_t stopped_at);
  /// Returns the cost of the last change that could be measured.
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
    std::optional<Passed> usual;  ///< from here on steps of `generation` take their usual time
  };
  void measure(const Passed& now);

  std::deque<Passed> heard_;
  std::optional<Change> change_;
  std::optional<Cost> last_;
};

}  // namespace swell::launcher
