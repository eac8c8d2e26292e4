// SPDX-License-Identifier: GPL-2.0-or-later
#include "profiler/profiler.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

using namespace swell::profiler;

namespace {

std::int64_t now_ns = 0;

/// A program whose passes and optimizer take the same time in each step, by a clock of its own.
class Program {
 public:
  explicit Program(std::string trace = {}, std::uint64_t trace_step = 0)
      : profiler_({std::move(trace), trace_step, false, 0, []() noexcept { return now_ns; }}) {}
  /// Returns whether the profiler took the step's regions.
  bool step() {
    bool is_taken = true;
    for (const Kind kind : {Kind::forward, Kind::backward, Kind::optimizer}) {
      const int number = profiler_.recorder().begin({kind});
      cr_assert_geq(number, 0);
      is_taken = is_taken && number != Recorder::kNotTaken;
      now_ns += region_ns;
      cr_assert(profiler_.recorder().end(number));
    }
    reports += profiler_.boundary(++steps_) ? 1 : 0;
    return is_taken;
  }
  /// Returns how many of so many steps were taken.
  int taken_of(int steps) {
    int taken = 0;
    for (int i = 0; i < steps; ++i) taken += step() ? 1 : 0;
    return taken;
  }
  const Profiler& profiler() const { return profiler_; }

  std::int64_t region_ns = 1'000'000;
  int reports = 0;

 private:
  Profiler profiler_;
  std::uint64_t steps_ = 0;
};

/// Steps until a profile is stable, and the one in which that is seen at its end.
constexpr int kUntilStable = Stable::kWindowSteps * static_cast<int>(Stable::kWindows) + 1;
constexpr int kRound = Stable::kWindowSteps + Profiler::kRestSteps;

}  // namespace

Test(profiler, takes_one_window_of_ten_while_the_profile_is_stable) {
  Program program;
  cr_assert_eq(program.taken_of(kUntilStable), kUntilStable);
  cr_assert_eq(program.reports, 1);
  cr_assert_eq(program.taken_of(Profiler::kRestSteps), 0);
  for (int round = 0; round < 5; ++round) {
    // The rest is decided on at the boundary after the one that completes the window.
    cr_assert_eq(program.taken_of(kRound + 1), Stable::kWindowSteps + 1, "round %d", round);
  }
  cr_assert_eq(program.reports, 1);
  cr_assert(program.profiler().is_stable());
}

Test(profiler, a_change_during_a_rest_is_reported_once_it_is_stable) {
  Program program;
  program.taken_of(kUntilStable + 1);
  program.region_ns *= 2;
  cr_assert_eq(program.taken_of(Profiler::kRestSteps - 1), 0);
  cr_assert_eq(program.reports, 1);
  // The first window, which has the last step before the rest, differs from those before: all steps
  // are taken until three windows agree.
  cr_assert_eq(program.taken_of(kUntilStable - 1), kUntilStable - 1);
  cr_assert_eq(program.reports, 2);
  cr_assert_eq(program.profiler().latest()->fwd_s, 0.002);
  cr_assert_eq(program.taken_of(Profiler::kRestSteps), 0);
}

Test(profiler, a_step_that_is_to_be_traced_is_taken_during_a_rest) {
  std::string folder = std::filesystem::temp_directory_path() / "swell-profiler-XXXXXX";
  cr_assert_not_null(mkdtemp(folder.data()));
  constexpr int kTraced = kUntilStable + 20;
  Program program(folder + "/trace", kTraced);
  program.taken_of(kUntilStable);
  cr_assert_eq(program.taken_of(kTraced - kUntilStable - 1), 0);
  cr_assert(program.step());
  cr_assert_eq(program.taken_of(kUntilStable + Profiler::kRestSteps - kTraced), 0);
  cr_assert(std::filesystem::exists(folder + "/trace.0"));
  std::filesystem::remove_all(folder);
}
