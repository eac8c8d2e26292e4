// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cpu_share.h"

#include <criterion/criterion.h>

using swell::CpuShare;

namespace {

/// Pieces of work that a peer gets done within `seconds` who asks for one each millisecond, or as
/// soon as it may.
int pieces_of(CpuShare share, double piece_s, double seconds) {
  int pieces = 0;
  for (double now = 0; now < seconds;) {
    if (const double wait = share.wait_s(now); wait > 0) {
      now += wait;
      continue;
    }
    share.use(piece_s, now);
    ++pieces;
    now += 1e-6;
  }
  return pieces;
}

}  // namespace

Test(cpu_share, a_flood_gets_its_share_and_what_was_saved_up) {
  for (const double piece_s : {1e-5, 1e-3, 0.05})
    for (const double share : {0.02, 0.1}) {
      const double used_s = pieces_of(CpuShare(share, 0.5), piece_s, 100) * piece_s;
      cr_assert_geq(used_s, 0.9 * (100 * share + 0.5), "%g s of work, share %g: %g s", piece_s,
                    share, used_s);
      cr_assert_leq(used_s, 1.05 * (100 * share + 0.5) + piece_s, "%g s of work, share %g: %g s",
                    piece_s, share, used_s);
    }
}

Test(cpu_share, what_is_used_rarely_waits_for_nothing) {
  CpuShare share(0.02, 0.5);
  for (double now = 0; now < 1000; now += 1) {
    cr_assert_eq(share.wait_s(now), 0);
    share.use(0.015, now);
  }
  for (int i = 0; i < 20; ++i) {  // many at once, after a quiet time
    cr_assert_eq(share.wait_s(2000), 0);
    share.use(0.02, 2000);
  }
}

Test(cpu_share, there_is_time_for_several_pieces_after_a_want) {
  CpuShare share(0.02, 0.5);
  share.use(0.5, 0);
  const double wait = share.wait_s(0);
  cr_assert_geq(wait, 0.05);
  cr_assert_gt(share.wait_s(wait / 2), 0, "it is not given out in crumbs");
  cr_assert_eq(share.wait_s(wait), 0);
  for (int i = 0; i < 10; ++i) {
    cr_assert_eq(share.wait_s(wait), 0);
    share.use(0.0001, wait);
  }
}

Test(cpu_share, what_was_counted_too_much_is_given_back) {
  CpuShare share(0.02, 0.5);
  share.use(0.6, 0);
  cr_assert_gt(share.wait_s(0), 0);
  share.use(-0.6, 0);
  cr_assert_eq(share.wait_s(0), 0);
  cr_assert(share.is_whole(0));
  share.use(-5, 0);
  share.use(0.5, 0);
  cr_assert_gt(share.wait_s(0), 0, "no more is saved up for that");
}

Test(cpu_share, without_a_limit_nothing_waits) {
  CpuShare share(0, 0.5);
  share.use(100, 0);
  cr_assert_eq(share.wait_s(0), 0);
  cr_assert(share.is_whole(0));
}
