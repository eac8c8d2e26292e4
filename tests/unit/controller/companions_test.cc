// SPDX-License-Identifier: GPL-2.0-or-later
// Which jobs the controller takes for companions, and what becomes of those that it does not.
#include <criterion/criterion.h>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

Test(controller, no_companion_outlives_its_parent) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.end(10);
  world.step();
  cr_assert_eq(world.slurm.cancelled.size(), 3u);
}

Test(controller, a_requeued_parent_loses_its_companions) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.find(10)->start_time = 2;
  world.step();
  cr_assert_eq(world.slurm.cancelled.size(), 3u);
}

Test(controller, after_kill_9_companions_are_recognised) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  // slurmctld dies when one companion runs and its agent could not tell of it yet.
  const control::Offer offer = world.server.last<control::Grow>()->offers.at(0);
  world.slurm.run(20, offer.node, offer.gpus, "swell[parent=10 grant=" + offer.nonce + "]");
  world.restart();
  world.hello(2, 10, 8, {20});
  world.step(2);
  cr_assert(world.slurm.cancelled.empty());
  cr_assert(world.shows(10, "companions=20:"), "%s", world.comment(10).c_str());
}

Test(controller, a_companion_that_the_parent_does_not_name_is_cancelled) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.slurm.run(66, "node2", 8, "swell[parent=10 grant=forged]");
  world.slurm.run(67, "node3", 8, "swell[parent=999 grant=orphan]");
  world.step();
  cr_assert_eq(world.slurm.cancelled.size(), 2u);
}

Test(controller, an_agent_cannot_name_jobs_of_others_as_its_companions) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.slurm.run(30, "node3", 1, "").uid = 1001;  // another user's
  world.slurm.run(31, "node3", 1, "").uid = 0;     // root's
  world.slurm.run(32, "node3", 1, "");             // its own user's, but no companion
  world.slurm.wait(33, 8);                         // pending
  world.hello(1, 10, 4);
  const control::Grow grow = *world.server.last<control::Grow>();
  control::GrowDone done;
  for (const control::Offer& offer : grow.offers)
    for (JobId id : {30u, 31u, 32u, 33u}) done.results.push_back({offer.nonce, id, ""});
  world.server.says(1, done);
  world.step();
  for (JobId id : {30u, 31u, 32u, 33u}) world.server.says(1, control::Released{id, ""});
  world.step(10);
  world.server.says(1, control::Bye{0});
  for (int i = 0; i < 10; ++i) world.step();
  cr_assert(world.slurm.cancelled.empty(), "%u was cancelled", world.slurm.cancelled.front());
  cr_assert(world.shows(10, "lent=0"), "%s", world.comment(10).c_str());
}

Test(controller, a_job_that_got_the_id_of_a_companion_is_not_cancelled) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  // Between the controller's look and its cancel the ids are given to others.
  for (JobId id : {20u, 21u, 22u}) world.slurm.fresh[id] = {};
  world.slurm.fresh[20].id = 20;
  world.slurm.fresh[20].phase = slurm::JobPhase::running;
  world.slurm.fresh[21] = *world.slurm.find(21);
  world.slurm.fresh[21].uid = 1001;
  world.slurm.fresh[22] = *world.slurm.find(22);
  world.slurm.fresh[22].in_array = true;
  world.server.says(1, control::Bye{0});
  world.step();
  cr_assert(world.slurm.cancelled.empty());
}

Test(controller, a_companion_is_adopted_by_its_grant_whatever_its_name) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  const control::Offer offer = world.server.last<control::Grow>()->offers.at(0);
  cr_assert(world.book.use(offer.nonce, 1000, world.now).ok());
  world.slurm.run(20, offer.node, offer.gpus, "swell[parent=10 grant=" + offer.nonce + "]").name =
      "renamed";
  world.step(3);  // the agent has not said anything
  cr_assert(world.shows(10, "companions=20:"), "%s", world.comment(10).c_str());
}

Test(controller, a_second_companion_on_one_grant_is_cancelled) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  const std::string tag = world.comment(20);
  world.slurm.run(40, "node1", 1, tag);
  world.step();
  cr_assert_eq(world.slurm.cancelled, (std::vector<JobId>{40}));
}

Test(controller, a_companion_that_holds_more_than_was_granted_is_cancelled) {
  struct {
    const char* what;
    void (*change)(slurm::JobRecord&);
  } const cases[] = {
      {"GPUs", [](slurm::JobRecord& r) { r.gpus[0].gpus.count += 1; }},
      {"a second node", [](slurm::JobRecord& r) { r.nodes.push_back("node4"); }},
      {"CPUs", [](slurm::JobRecord& r) { r.cpus = 1000; }},
      {"memory", [](slurm::JobRecord& r) { r.memory_mib = 512000; }},
      {"another partition", [](slurm::JobRecord& r) { r.partition = "urgent"; }},
      {"another QOS", [](slurm::JobRecord& r) { r.qos = "normal"; }},
  };
  for (const auto& each : cases) {
    World world;
    world.slurm.run_elastic(10, "node1", 8);
    world.hello(1, 10, 8);
    const control::Offer offer = world.server.last<control::Grow>()->offers.at(0);
    cr_assert(world.book.use(offer.nonce, 1000, world.now).ok());
    each.change(
        world.slurm.run(20, offer.node, offer.gpus, "swell[parent=10 grant=" + offer.nonce + "]"));
    world.step();
    cr_assert_eq(world.slurm.cancelled, (std::vector<JobId>{20}), "%s", each.what);
    world.step();
    cr_assert(world.shows(10, "refused=1 why=excess"), "%s: %s", each.what,
              world.comment(10).c_str());
  }
}

Test(controller, a_companion_that_is_released_unasked_has_a_moment_to_end) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.says(1, control::Released{20, "its step died"});
  world.step();
  cr_assert(world.slurm.cancelled.empty(), "its agent is just cancelling it");
  world.step(7);
  cr_assert_eq(world.slurm.cancelled, (std::vector<JobId>{20}));
}
