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
  /// A held array: it keeps nothing idle, but was submitted.
  void submit(int tasks, std::time_t at) {
    slurm::JobRecord& array = slurm.wait(50, 8);
    array.waiting = slurm::Waiting::for_other;
    array.in_array = true;
    array.array = 50;
    array.pending_tasks = tasks;
    array.submit_time = at;
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
  site.submit(5, site.slurm.now.taken - 60);
  site.hello(1, 10, 4);
  cr_assert(site.is_offered());
  cr_assert_eq(site.why().find("not grown"), std::string::npos);
}

Test(arrivals, many_submissions_do_and_are_remembered_over_a_restart) {
  Site site;
  site.submit(500, site.slurm.now.taken - 60);
  site.hello(1, 10, 4);
  cr_assert_not(site.is_offered());
  const std::string why = site.why();
  cr_assert_neq(why.find("not grown: 500 submissions of 8 GPUs or more in 1 h; chance 0.01 of 0.6"),
                std::string::npos, "%s", why.c_str());
  site.slurm.end(50);  // Slurm forgets it
  site.restart();
  site.server.sent.clear();
  site.hello(2, 10, 4);
  cr_assert_not(site.is_offered(), "%s", site.why().c_str());
}
