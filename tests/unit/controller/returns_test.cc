// SPDX-License-Identifier: GPL-2.0-or-later
// Lent GPUs go back for the state of their node or of their job.
#include <criterion/criterion.h>
#include <string>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

namespace {

/// Job 10 on node1 is lent 8 GPUs on node2 as companion 20, and nothing else is idle.
struct Lent : World {
  control::ConnectionId asker = 70;

  Lent() {
    for (const JobId rigid : {53, 54}) slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
    slurm.run(10, "node1", 8, "swell[elastic=max=16,grace=20 basic=8]");
    hello(1, 10, 8);
    take_offers(1, 20);
    cr_assert_eq(controller->jobs().at(10).companions.lent_gpus(), 8);
  }
  const Companion& companion() { return *controller->jobs().at(10).companions.begin(); }
  bool has_companion() { return !controller->jobs().at(10).companions.empty(); }
  slurm::NodeRecord& node(int number) {
    return slurm.now.nodes[static_cast<std::size_t>(number - 1)];
  }
  void reserve(const std::string& name, std::vector<std::string> nodes, std::time_t in_s) {
    slurm.now.reservations.push_back(
        {name, std::move(nodes), slurm.now.taken + in_s, slurm.now.taken + in_s + 3600});
  }
  std::string why() {
    control::Ask ask;
    ask.job = 10;
    ask.what = "why";
    server.says(++asker, ask);  // a connection for each question
    step();
    return server.last<control::Answer>()->text;
  }
};

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// A world in which job 10 of 4 GPUs is about to grow on an otherwise idle cluster.
struct Starting : World {
  slurm::JobRecord& start(const std::string& elastic = "max=8,grace=20") {
    slurm::JobRecord& job = slurm.run(10, "node1", 4, "swell[elastic=" + elastic + " basic=4]");
    job.end_time = slurm.now.taken + 365 * 24 * 3600;
    return job;
  }
  int offered_min() {
    hello(1, 10, 4);
    const control::Grow* grow = server.last<control::Grow>();
    return grow == nullptr ? -1 : grow->offers.at(0).time_limit_min;
  }
};

}  // namespace

Test(returns, gpus_on_a_draining_node_go_back_within_the_grace) {
  Lent world;
  world.node(2).draining = true;
  world.node(2).usable = false;
  world.step();
  cr_assert(world.companion().is_leaving());
  cr_assert_eq(world.companion().departure().reason(), "its node is drained");
  cr_assert_eq(world.server.last<control::Shrink>()->deadline_s, 20);
  cr_assert(has(world.why(), "goes back: its node is drained"));
  world.step(22);
  cr_assert_eq(world.slurm.cancelled, (std::vector<JobId>{20}));
  world.step();
  const std::string why = world.why();
  cr_assert(has(why, "taken back last: its node is drained"), "%s", why.c_str());
}

Test(returns, a_node_of_its_own_that_drains_takes_nothing_back) {
  Lent world;
  world.node(1).draining = true;
  world.node(1).usable = false;
  world.step();
  cr_assert_not(world.companion().is_leaving());
}

Test(returns, gpus_of_a_suspended_job_go_back_after_its_grace) {
  Lent world;
  world.slurm.find(10)->phase = slurm::JobPhase::suspended;
  world.step();
  world.step(18);
  cr_assert_not(world.companion().is_leaving(), "it may go on soon");
  world.step(3);
  world.step(2);
  cr_assert_eq(world.slurm.cancelled, (std::vector<JobId>{20}));
  world.step();
  cr_assert_not(world.has_companion());
  world.slurm.find(10)->phase = slurm::JobPhase::running;
  const std::size_t before = world.server.count<control::Grow>();
  world.step(40);
  world.step();
  cr_assert_eq(world.server.count<control::Grow>(), before + 1, "it grows again");
}

Test(returns, returns_of_a_stopped_swellrun_do_not_count_as_failures) {
  Lent world;
  world.slurm.find(10)->phase = slurm::JobPhase::suspended;
  world.slurm.find(20)->phase = slurm::JobPhase::completing;
  world.step();
  cr_assert_eq(world.companion().departure().reason(), "it ended since Slurm suspends its job");
  world.slurm.end(20);
  world.step();
  cr_assert_eq(world.controller->jobs().at(10).lending.taken_back(),
               "companion 20 on node2 ended since Slurm suspends its job");
  cr_assert_eq(world.controller->jobs().at(10).offers.failures(), 0);
}

Test(returns, a_job_that_is_suspended_for_a_moment_keeps_what_it_is_lent) {
  Lent world;
  for (int i = 0; i < 4; ++i) {
    world.slurm.find(10)->phase = slurm::JobPhase::suspended;
    world.step(15);
    world.slurm.find(10)->phase = slurm::JobPhase::running;
    world.step(15);
  }
  cr_assert_not(world.companion().is_leaving());
  cr_assert(world.slurm.cancelled.empty());
}

Test(returns, a_grace_above_that_of_the_site_changes_no_time) {
  Lent stopped;
  stopped.controller->set_max_grace(10);
  stopped.slurm.find(10)->phase = slurm::JobPhase::suspended;
  stopped.step();
  stopped.step(11);
  stopped.step(2);
  cr_assert_eq(stopped.slurm.cancelled, (std::vector<JobId>{20}));

  Lent reserved;
  reserved.controller->set_max_grace(10);
  reserved.reserve("repair", {"node2"}, 35);
  reserved.step();
  cr_assert_not(reserved.companion().is_leaving(), "10 s of grace, and 20 s in hand");
  reserved.slurm.now.taken += 10;
  reserved.step(10);
  cr_assert(reserved.companion().is_leaving());

  Starting starting;
  for (const JobId rigid : {52, 53, 54})
    starting.slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
  starting.controller->set_max_grace(30);
  starting.start("max=8,grace=86400");
  starting.slurm.now.reservations.push_back({"later",
                                             {"node1"},
                                             starting.slurm.now.taken + 4 * 3600,
                                             starting.slurm.now.taken + 5 * 3600});
  cr_assert_gt(starting.offered_min(), 200, "a day of grace does not keep it from being lent");
}

Test(returns, a_companion_that_is_suspended_alone_goes_back_at_once) {
  Lent world;
  world.slurm.find(20)->phase = slurm::JobPhase::suspended;
  world.step();
  cr_assert(world.companion().is_leaving());
  cr_assert_eq(world.companion().departure().reason(), "Slurm has suspended it");
  cr_assert_eq(world.server.last<control::Shrink>()->deadline_s, 0);
  world.step(2);
  cr_assert_eq(world.slurm.cancelled, (std::vector<JobId>{20}));
}

Test(returns, gpus_on_a_node_whose_reservation_has_begun_go_back) {
  Lent world;
  world.reserve("others", {"node1", "node3"}, -1);
  world.reserve("over", {"node2"}, -3600);
  world.step();
  cr_assert_not(world.companion().is_leaving());
  world.reserve("repair", {"node2"}, 0);
  world.step();
  cr_assert_eq(world.companion().departure().reason(), "reservation repair has begun on its node");
  cr_assert_eq(world.server.last<control::Shrink>()->deadline_s, 20);
}

Test(returns, a_companion_ends_before_a_reservation_and_within_all_limits) {
  const struct {
    const char* what;
    std::function<void(Starting&, slurm::JobRecord&)> with;
    int minutes;
  } cases[] = {
      {"nothing", [](Starting&, slurm::JobRecord&) {}, 0},
      {"its job's",
       [](Starting& world, slurm::JobRecord& job) {
         job.time_limit_min = 120;
         job.end_time = world.slurm.now.taken + 1800;
       },
       30},
      {"a reservation",
       [](Starting& world, slurm::JobRecord&) {
         world.slurm.now.reservations = {
             {"m", {"node1", "node2"}, world.slurm.now.taken + 1200, world.slurm.now.taken + 9000}};
       },
       19},
      {"a reservation of another node",
       [](Starting& world, slurm::JobRecord&) {
         world.slurm.now.reservations = {
             {"m", {"node4"}, world.slurm.now.taken + 1200, world.slurm.now.taken + 9000}};
       },
       0},
      {"a reservation that began",
       [](Starting& world, slurm::JobRecord&) {
         world.slurm.now.reservations = {
             {"m", {"node1"}, world.slurm.now.taken - 10, world.slurm.now.taken + 9000}};
       },
       0},
      {"the partition's",
       [](Starting& world, slurm::JobRecord&) { world.slurm.now.partitions[0].max_time_min = 60; },
       59},
      {"its QOS'",
       [](Starting& world, slurm::JobRecord&) {
         world.slurm.now.qos_max_time_min = {{"Expansion", 45}, {"normal", 5}};
       },
       44},
      {"the QOS' of the partition",
       [](Starting& world, slurm::JobRecord&) {
         world.slurm.now.partitions[0].qos = "part";
         world.slurm.now.qos_max_time_min = {{"part", 50}};
       },
       49},
      {"the shortest",
       [](Starting& world, slurm::JobRecord& job) {
         job.time_limit_min = 60;
         job.end_time = world.slurm.now.taken + 3000;
         world.slurm.now.partitions[0].max_time_min = 40;
         world.slurm.now.qos_max_time_min = {{"expansion", 45}};
       },
       39},
  };
  for (const auto& each : cases) {
    Starting world;
    for (const JobId rigid : {52, 53, 54})
      world.slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
    slurm::JobRecord& job = world.start();
    each.with(world, job);
    cr_assert_eq(world.offered_min(), each.minutes, "%s: %d", each.what, world.offered_min());
  }
}

Test(returns, nothing_is_lent_where_a_reservation_begins_soon_and_why_names_it) {
  Starting world;
  for (const JobId rigid : {53, 54})
    world.slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
  world.start("max=16,grace=20");
  world.slurm.run(51, "node1", 4, "").gpus[0].gpus.indices = "4-7";
  world.slurm.now.reservations = {
      {"maintenance", {"node2"}, world.slurm.now.taken + 130, world.slurm.now.taken + 9000}};
  cr_assert_eq(world.offered_min(), -1);
  control::Ask ask;
  ask.job = 10;
  ask.what = "why";
  world.server.says(77, ask);
  world.step();
  const std::string why = world.server.last<control::Answer>()->text;
  cr_assert(has(why, "node2: reservation maintenance leaves 130 s, and at least 220 s are needed"),
            "%s", why.c_str());
  world.slurm.now.reservations.clear();
  world.step();
  cr_assert_eq(world.server.count<control::Grow>(), 1u);
}

Test(returns, a_companion_that_ends_before_its_job_goes_back_in_time) {
  Lent world;
  slurm::JobRecord& companion = *world.slurm.find(20);
  companion.time_limit_min = 19;
  companion.end_time = world.slurm.now.taken + 300;
  world.step();
  cr_assert_not(world.companion().is_leaving());
  cr_assert(has(world.why(), "companion 20 on node2 goes back in 300 s at the latest"), "%s",
            world.why().c_str());
  world.slurm.now.taken += 262;
  world.step();
  cr_assert(world.companion().is_leaving());
  cr_assert(has(world.companion().departure().reason(), "its time limit"));
}

Test(returns, a_reservation_that_is_made_later_takes_back_what_is_lent_on_its_nodes) {
  Lent world;
  world.reserve("m", {"node2"}, 600);
  world.step();
  cr_assert_not(world.companion().is_leaving());
  cr_assert(has(world.why(), "reservation m begins on its node"));
  world.slurm.now.taken += 565;
  world.step();
  cr_assert(world.companion().is_leaving());
  cr_assert(has(world.companion().departure().reason(), "reservation m begins on its node"));
}

Test(returns, a_companion_that_ends_with_its_job_stays_until_then) {
  Lent world;
  slurm::JobRecord &job = *world.slurm.find(10), &companion = *world.slurm.find(20);
  job.time_limit_min = companion.time_limit_min = 60;
  job.end_time = companion.end_time = world.slurm.now.taken + 30;
  world.step();
  cr_assert_not(world.companion().is_leaving());
}
