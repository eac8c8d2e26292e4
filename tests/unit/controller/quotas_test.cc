// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/quotas.h"

#include <criterion/criterion.h>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

namespace {

control::LentLimits limits(const char* text) { return *control::LentLimits::parse(text); }

int offered(const World& world, control::ConnectionId connection) {
  int gpus = 0;
  for (const auto& [to, message] : world.server.sent)
    if (const auto* grow = std::get_if<control::Grow>(&message);
        grow != nullptr && to == connection)
      for (const auto& offer : grow->offers) gpus += offer.gpus;
  return gpus;
}

/// Jobs 10 and 11 with 4 GPUs each, of an account and with connections 1 and 2; 24 GPUs are idle.
struct Two : World {
  explicit Two(const char* by_account, const char* other = "physics") {
    config.max_lent_by_account = limits(by_account);
    restart();
    slurm.run_elastic(10, "node1", 4).account = "physics";
    slurm.run_elastic(11, "node2", 4).account = other;
    for (control::ConnectionId connection : {1, 2})
      server.says(connection, test::hello_of(static_cast<JobId>(9 + connection), 4));
    step();
  }
};

}  // namespace

Test(quotas, jobs_of_one_account_are_lent_its_limit_together) {
  Two two("physics:6");
  two.step();
  cr_assert_eq(offered(two, 1) + offered(two, 2), 6);
}

Test(quotas, another_account_is_not_held_back) {
  Two two("physics:0", "chemistry");
  cr_assert_eq(offered(two, 1), 0);
  cr_assert_gt(offered(two, 2), 0);
}

Test(quotas, a_star_is_a_limit_for_each_account_by_itself) {
  Two two("*:4", "chemistry");
  cr_assert_eq(offered(two, 1), 4);
  cr_assert_eq(offered(two, 2), 4);
}

Test(quotas, the_qos_of_a_job_counts_likewise) {
  World world;
  world.config.max_lent_by_qos = limits("normal:3");
  world.restart();
  world.slurm.run_elastic(10, "node1", 4).qos = "normal";
  world.hello(1, 10, 4);
  cr_assert_eq(offered(world, 1), 3);
}

Test(quotas, gpus_beyond_a_lowered_limit_are_reclaimed_youngest_first) {
  World world;
  world.slurm.run_elastic(10, "node1", 8).account = "physics";
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  cr_assert(world.shows(10, "lent=24"), "%s", world.comment(10).c_str());
  world.config.max_lent_by_account = limits("physics:8");
  world.restart();
  world.hello(2, 10, 8, {20, 21, 22});
  world.step();
  int leaving = 0;
  for (const Companion& companion : world.controller->jobs().at(10).companions)
    leaving += companion.is_leaving() ? companion.gpus.count : 0;
  cr_assert_eq(leaving, 16);
  cr_assert(world.slurm.cancelled.empty(), "its grace is not over");
  cr_assert_not_null(world.server.last<control::Shrink>());
}

Test(quotas, the_owner_is_told_which_limit_holds_a_job_back) {
  World world;
  world.config.max_lent_by_account = limits("physics:0");
  world.restart();
  auto& record = world.slurm.run_elastic(10, "node1", 4);
  record.account = "physics";
  world.hello(1, 10, 4);
  const Quotas quotas(world.config, world.controller->snapshot(), world.controller->jobs(), {});
  cr_assert_eq(quotas.why_full(10), std::string("account physics may have 0 lent GPUs, and has 0"));
  cr_assert_eq(quotas.why_full(11), std::string());
}
