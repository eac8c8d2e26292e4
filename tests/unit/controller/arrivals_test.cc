// SPDX-License-Identifier: GPL-2.0-or-later
// Policy=flextrain in the controller: what was submitted lately decides whether GPUs are lent.
#include <criterion/criterion.h>
#include <string>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

namespace {

/// Job 10 of 4 GPUs and without a profile, on a site where jobs of 8 GPUs count for an hour.
struct Site : World {
  control::ConnectionId asker = 70;

  Site() {
    config.policy = "flextrain";
    config.arrivals = {3600, 8, 0.6};
    restart();
    slurm.run(10, "node1", 4, "swell[elastic=max=16 basic=4]");
  }
  /// Jobs that have run for a moment on node4.
  void submit(JobId count) {
    for (JobId id = 100; id < 100 + count; ++id)
      slurm.run(id, "node4", 8, "").submit_time = slurm.now.taken - 60;
    step();
    for (JobId id = 100; id < 100 + count; ++id) slurm.end(id);
  }
  bool is_offered() {
    for (int round = 0; round < 50; ++round) {
      step();
      if (server.last<control::Grow>() != nullptr) return true;
    }
    return false;
  }
  std::string why() {
    control::Ask ask;
    ask.job = 10;
    ask.what = "why";
    server.says(++asker, ask, 1000);
    step();
    return server.last<control::Answer>()->text;
  }
};

}  // namespace

Test(arrivals, few_submissions_keep_nobody_from_growing) {
  Site site;
  site.submit(5);
  site.hello(1, 10, 4);
  cr_assert(site.is_offered());
  cr_assert_eq(site.why().find("not grown"), std::string::npos);
}

Test(arrivals, many_submissions_do_and_are_remembered_over_a_restart) {
  Site site;
  site.submit(500);
  site.hello(1, 10, 4);
  cr_assert_not(site.is_offered());
  const std::string why = site.why();
  cr_assert_neq(why.find("not grown: 500 submissions of 8 GPUs or more in 1 h; chance 0.00"),
                std::string::npos, "%s", why.c_str());
  site.restart();
  site.server.sent.clear();
  site.hello(2, 10, 4);
  cr_assert_not(site.is_offered(), "%s", site.why().c_str());
}
