// SPDX-License-Identifier: GPL-2.0-or-later
// Which jobs the controller takes for companions, and what becomes of those that it does not.
#include <criterion/criterion.h>

#include <map>
#include <string>

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
  cr_assert_eq(world.controller->jobs().at(10).lending.taken_back(), std::string("its step died"));
  world.step(7);
  cr_assert_eq(world.slurm.cancelled, (std::vector<JobId>{20}));
}

Test(controller, the_agent_s_reason_counts_where_slurm_shows_the_end_first) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  const auto taken_back = [&] { return world.controller->jobs().at(10).lending.taken_back(); };
  for (const JobId companion : {20u, 21u}) world.slurm.end(companion);
  world.step();
  cr_assert(taken_back().find("ended though Swell had not asked for it") != std::string::npos);
  world.server.says(1, control::Released{20, "it has ended"});
  world.server.says(1, control::Released{20, "its step died", true});
  world.step();
  cr_assert(taken_back().find("ended though Swell had not asked for it") != std::string::npos,
            "the agent only repeats it");
  world.server.says(1, control::Released{21, "needed by job 30"});
  world.step();
  cr_assert_eq(taken_back(), std::string("needed by job 30"), "%s", taken_back().c_str());
}

namespace {

/// Returns the counts of swell_reclaims by cause, without zeros.
std::map<std::string, int> reclaims_of(World& world) {
  control::Ask ask;
  ask.what = "metrics";
  static control::ConnectionId asker = 90;
  world.server.says(++asker, ask);
  world.step();
  std::map<std::string, int> by_cause;
  for (const Json& family : world.server.last<control::Answer>()->details.at("families").items()) {
    if (family.string_at("name").value() != "swell_reclaims") continue;
    for (const Json& sample : family.at("samples").items())
      if (const double count = sample.number_at("value", 0, 1e9).value(); count > 0)
        by_cause[sample.at("labels").string_at("cause").value()] = static_cast<int>(count);
  }
  return by_cause;
}

using ByCause = std::map<std::string, int>;

std::string text_of(const ByCause& by_cause) {
  std::string text;
  for (const auto& [cause, count] : by_cause) text += cause + "=" + std::to_string(count) + " ";
  return text;
}

/// Slurm preempts it: the record says so from now on.
void preempt(World& world, JobId companion) {
  world.slurm.find(companion)->preempt_time = world.slurm.now.taken;
  world.slurm.find(companion)->end_time = world.slurm.now.taken + 5;
}

}  // namespace

Test(controller, a_companion_whose_end_slurm_shows_before_its_reason_is_counted_once) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.end(20);
  world.step();
  world.server.says(1, control::Released{20, "needed by job 30"});
  world.step();
  cr_assert_eq(world.controller->jobs().at(10).lending.taken_back(),
               std::string("needed by job 30"));
  const ByCause found = reclaims_of(world);
  cr_assert_eq(found, (ByCause{{"lost", 1}}), "%s", text_of(found).c_str());
}

Test(controller, every_companion_that_goes_back_is_counted_once_by_its_cause) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.wait(30, 8);
  world.step();
  const JobId taken = world.server.last<control::Shrink>()->companions.at(0);
  cr_assert_eq(reclaims_of(world), (ByCause{{"basic-demand", 1}}));
  preempt(world, taken);
  world.step();
  cr_assert_eq(reclaims_of(world), (ByCause{{"basic-demand", 1}}), "it was leaving already");
  world.server.says(1, control::Released{taken, "needed by job 30"});
  world.step();
  world.slurm.end(taken);
  world.slurm.end(30);
  world.step();
  std::vector<JobId> left;
  for (const JobId id : {20u, 21u, 22u})
    if (id != taken) left.push_back(id);
  preempt(world, left[0]);
  world.step();
  world.server.says(1, control::Released{left[1], "its step died"});
  world.step();
  for (const JobId id : left) world.slurm.end(id);
  world.step();
  cr_assert_eq(text_of(reclaims_of(world)), "basic-demand=1 preempted=1 released=1 ", "%s",
               text_of(reclaims_of(world)).c_str());
  cr_assert(world.shows(10, "reclaims=3 "), "%s", world.comment(10).c_str());
}

Test(controller, companions_unknown_to_their_agent_are_counted_and_logged) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.hangs_up(1);
  world.step();
  world.hello(2, 10, 8, {20, 22});
  cr_assert_eq(reclaims_of(world), (ByCause{{"agent", 1}}));
  world.step(3);
  cr_assert(world.shows(10, "taken_back=the_job^s_agent_does_not_know_it"), "%s",
            world.comment(10).c_str());
  world.hello(3, 10, 8, {20, 22});
  cr_assert_eq(reclaims_of(world), (ByCause{{"agent", 1}}));
}

Test(controller, companions_of_a_silent_agent_are_counted_and_logged) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.hangs_up(1);
  world.step();
  world.step(world.config.agent_timeout_s);
  cr_assert_eq(world.slurm.cancelled.size(), 3u);
  cr_assert_eq(reclaims_of(world), (ByCause{{"agent", 3}}));
  world.step();
  cr_assert(world.shows(10, "taken_back=job_10_has_no_agent_any_more"), "%s",
            world.comment(10).c_str());
}

Test(controller,
     oversized_and_lost_companions_are_counted_but_not_those_that_end_with_their_program) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  JobId next = 20;
  for (const control::Offer& offer : grow.offers) {
    cr_assert(world.book.use(offer.nonce, 1000, world.now).ok());
    world.slurm.run(next++, offer.node, offer.gpus, "swell[parent=10 grant=" + offer.nonce + "]");
  }
  cr_assert_eq(next, 23u);
  world.slurm.find(20)->cpus = 1000;
  world.step();
  world.step(3);
  cr_assert(world.shows(10, "taken_back=it_holds_more_than_was_granted"), "%s",
            world.comment(10).c_str());
  world.slurm.end(21);
  world.step(3);
  cr_assert(world.shows(10, "taken_back=companion_21_on_node"), "%s", world.comment(10).c_str());
  world.server.says(1, control::Bye{0});
  world.step();
  world.slurm.end(10);
  world.step();
  cr_assert_eq(reclaims_of(world), (ByCause{{"excess", 1}, {"lost", 1}}));
}
