// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/reservations.h"

#include <cmath>
#include <criterion/criterion.h>
#include <random>

using namespace swell::policy;

namespace {

std::vector<Configuration> ladder_of(int type, int max, double efficiency) {
  std::vector<Configuration> ladder;
  for (int gpus = 1; gpus <= max; gpus *= 2)
    ladder.push_back({type, gpus, 1, {}, std::pow(gpus, efficiency)});
  return ladder;
}

int free_at(const Reservations& promised, std::size_t type, double at_s) {
  int free = 0;
  for (const auto& segment : promised.segments())
    if (segment.from_s <= at_s) free = segment.free[type];
  return free;
}

/// Samples done by the deadline with at most step `limit` of `ladder` at any time, second by
/// second.
double done_with(const Reservations& before, const std::vector<Configuration>& ladder, int limit,
                 int from_s, int to_s) {
  double done = 0;
  for (int s = from_s; s < to_s; ++s) {
    int step = limit;
    while (step >= 0 && ladder[static_cast<std::size_t>(step)].gpus >
                            free_at(before, static_cast<std::size_t>(ladder[0].type), s + 0.5))
      --step;
    if (step >= 0) done += ladder[static_cast<std::size_t>(step)].throughput;
  }
  return done;
}

}  // namespace

Test(reservations, a_job_gets_the_least_step_that_ends_in_time_and_leaves_the_rest) {
  Reservations promised(100, {8});
  const auto ladder = ladder_of(0, 8, 1);
  cr_assert(promised.promise(ladder, 30, 110) == 2, "4 GPUs for 7.5 s; 2 for 15 s are too few");
  cr_assert_eq(free_at(promised, 0, 100), 4);
  cr_assert_eq(free_at(promised, 0, 107.4), 4);
  cr_assert_eq(free_at(promised, 0, 107.6), 8);
}

Test(reservations, a_later_job_uses_what_an_earlier_one_gives_back) {
  Reservations promised(0, {4});
  const auto ladder = ladder_of(0, 4, 1);
  cr_assert(promised.promise(ladder, 40, 10) == 2, "all there is");
  cr_assert(promised.promise(ladder, 10, 20) == -1, "starts when the first ends");
  cr_assert_eq(free_at(promised, 0, 15), 3);
  cr_assert_not(promised.promise(ladder, 21, 20).has_value(), "2 of the 3 GPUs for 10 s");
  cr_assert_eq(free_at(promised, 0, 15), 3, "nothing is promised to one that is refused");
  cr_assert(promised.promise(ladder, 20, 20) == -1);
}

Test(reservations, nothing_is_promised_after_the_deadline_or_of_another_type) {
  Reservations promised(50, {0, 2});
  cr_assert_not(promised.promise(ladder_of(0, 4, 1), 1, 100).has_value());
  cr_assert_not(promised.promise(ladder_of(1, 4, 1), 1, 50).has_value());
  cr_assert_not(promised.promise({}, 1, 100).has_value());
  cr_assert(promised.promise(ladder_of(1, 4, 1), 100, 100) == 1);
}

// Against a count of every second: whole numbers of seconds, so that both are exact.
Test(reservations, promises_are_kept_least_and_within_what_there_is) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int refused = 0, later = 0;
  for (int world = 0; world < 200; ++world) {
    Reservations promised(0, {4 + below(8), 2 + below(4)});
    for (int job = 0; job < 8; ++job) {
      const auto ladder = ladder_of(below(2), 8, 0.7);
      const int deadline_s = 5 + below(40);
      const double samples = 1 + below(120);
      const Reservations before = promised;
      const auto step = promised.promise(ladder, samples, deadline_s);
      int least = -1;  // by seconds; a job ends within one, so that it may need one less
      for (int limit = 0; limit < static_cast<int>(ladder.size()) && least < 0; ++limit)
        if (done_with(before, ladder, limit, 0, deadline_s) >= samples - 1e-9) least = limit;
      if (!step) {
        // Segments begin within seconds, which the count rounds by one of them each.
        cr_assert(least < 0 || done_with(before, ladder, 3, 0, deadline_s) < samples + 8 * 4.3);
        ++refused;
        continue;
      }
      later += *step < 0;
      cr_assert(least < 0 || *step <= least + 1, "world %d, job %d", world, job);
      for (const auto& segment : promised.segments())
        for (const int free : segment.free) cr_assert_geq(free, 0);
      for (std::size_t i = 1; i < promised.segments().size(); ++i)
        cr_assert_lt(promised.segments()[i - 1].from_s, promised.segments()[i].from_s);
      // The GPUs that were taken do the samples, exactly.
      double done = 0;
      const auto type = static_cast<std::size_t>(ladder[0].type);
      for (std::size_t i = 0; i + 1 < promised.segments().size(); ++i) {
        const double from_s = promised.segments()[i].from_s,
                     to_s = promised.segments()[i + 1].from_s;
        const int taken = free_at(before, type, from_s) - promised.segments()[i].free[type];
        if (taken > 0) cr_assert_leq(to_s, deadline_s + 1e-9);
        for (const Configuration& one : ladder)
          if (one.gpus == taken) done += one.throughput * (to_s - from_s);
      }
      cr_assert_float_eq(done, samples, 1e-6 * samples);
    }
  }
  cr_assert_gt(refused, 50);
  cr_assert_gt(later, 20);
}
