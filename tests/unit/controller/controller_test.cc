// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/controller.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include "unit/controller/fakes.h"

using namespace swell;
using namespace swell::controller;
using swell::test::FakeServer;
using swell::test::FakeSlurm;

namespace {

/// A controller over a fake cluster of 4 nodes with 8 GPUs each.
struct World {
  FakeSlurm slurm{4};
  FakeServer server;
  GrantBook book;
  std::string state_path;
  int nonces = 0;
  double now = 100;
  std::unique_ptr<Controller> controller;

  World() {
    char folder[] = "/tmp/swell-controller-test-XXXXXX";
    state_path = std::string(mkdtemp(folder)) + "/state";
    restart();
  }
  ~World() { std::filesystem::remove_all(std::filesystem::path(state_path).parent_path()); }

  /// As after kill -9 of slurmctld: all that is kept is Slurm's records and the state file.
  void restart() {
    book.~GrantBook();
    new (&book) GrantBook;
    Controller::Parts parts;
    parts.config.expansion_qos = "expansion";
    parts.config.growth_interval_s = 10;
    parts.slurm = &slurm;
    parts.server = &server;
    parts.book = &book;
    parts.state_path = state_path;
    parts.log = [](const std::string&) {};
    parts.nonce = [this] { return "nonce" + std::to_string(++nonces); };
    controller = std::make_unique<Controller>(std::move(parts));
  }
  void step(double seconds = 1) {
    now += seconds;
    controller->cycle(now);
  }
  void hello(control::ConnectionId connection, JobId job, int workers,
             std::vector<JobId> companions = {}) {
    control::Hello hello;
    hello.job = job;
    hello.workers = workers;
    hello.companions = std::move(companions);
    server.says(connection, hello);
    step();
  }
  /// Plays the agent: takes every offer of the last Grow up; companions get ids from `first` on.
  void take_offers(control::ConnectionId connection, JobId first) {
    const control::Grow grow = *server.last<control::Grow>();
    control::GrowDone done;
    for (const control::Offer& offer : grow.offers) {
      const auto grant = book.use(offer.nonce, 1000, now);
      cr_assert(grant.ok());
      const control::Tag tag{{"parent", std::to_string(grant->parent)}, {"grant", offer.nonce}};
      slurm.run(first, offer.node, offer.gpus, tag.text());
      done.results.push_back({offer.nonce, first++, ""});
    }
    server.says(connection, done);
    step();
  }
  std::string comment(JobId job) { return slurm.find(job)->admin_comment; }
  bool shows(JobId job, const char* words) { return comment(job).find(words) != std::string::npos; }
};

}  // namespace

Test(controller, lends_idle_gpus_to_a_job_with_an_agent) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.step();
  cr_assert_null(world.server.last<control::Grow>(), "nobody listens yet");
  world.hello(1, 10, 4);
  cr_assert_not_null(world.server.last<control::Welcome>());
  const auto* grow = world.server.last<control::Grow>();
  cr_assert_not_null(grow);
  int gpus = 0;
  for (const auto& offer : grow->offers) gpus += offer.gpus;
  cr_assert_eq(gpus, 12);
  world.take_offers(1, 20);
  cr_assert(world.shows(10, "lent=12"), "%s", world.comment(10).c_str());
  cr_assert(world.shows(10, "companions=20:node1:4:0-3;21:node2:8:0-7"), "%s",
            world.comment(10).c_str());
}

Test(controller, nothing_is_offered_twice) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.slurm.run_elastic(11, "node2", 4);
  world.hello(1, 10, 4);
  world.hello(2, 11, 4);
  int on_node[5] = {0, 4, 4, 0, 0};
  for (const auto& [connection, message] : world.server.sent)
    if (const auto* grow = std::get_if<control::Grow>(&message))
      for (const auto& offer : grow->offers) on_node[offer.node.back() - '0'] += offer.gpus;
  for (int gpus : on_node) cr_assert_leq(gpus, 8);
}

Test(controller, reclaims_for_a_pending_job_and_counts_it) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  cr_assert(world.shows(10, "lent=24"));
  world.slurm.wait(30, 8);
  world.step();
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert_not_null(shrink);
  cr_assert_eq(shrink->companions.size(), 1u);
  cr_assert_eq(shrink->reason, std::string("needed by job 30"));
  cr_assert_eq(shrink->deadline_s, 20, "the job's grace");
  world.slurm.end(shrink->companions[0]);
  world.server.says(1, control::Released{shrink->companions[0], ""});
  world.step();
  cr_assert(world.shows(10, "lent=16 "), "%s", world.comment(10).c_str());
  cr_assert(world.shows(10, "reclaims=1"));
}

Test(controller, tells_slurms_side_which_companions_go_first) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  cr_assert_eq(world.book.reclaim_order(), (std::vector<JobId>{20, 21, 22}));
  world.slurm.find(22)->preempt_time = world.slurm.now.taken;
  world.slurm.find(22)->end_time = world.slurm.now.taken + 7;
  world.step();
  cr_assert_eq(world.book.reclaim_order().front(), 22u);
}

Test(controller, tells_slurms_side_of_no_companion_when_the_last_elastic_job_has_ended) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  cr_assert_eq(world.book.reclaim_order().size(), 3u);
  for (JobId id : {20u, 21u, 22u, 10u}) world.slurm.end(id);
  world.step();
  cr_assert(world.book.reclaim_order().empty());
}

Test(controller, cancels_what_outlives_its_deadline) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.wait(30, 8);
  world.step();
  world.step(19);
  cr_assert(world.slurm.cancelled.empty());
  world.step(3);
  cr_assert_eq(world.slurm.cancelled.size(), 1u);
}

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

Test(controller, counters_survive_a_restart) {
  World world;
  world.slurm.run_elastic(10, "node1", 8, " grants=5 reclaims=3");
  world.step();
  cr_assert(world.shows(10, "grants=5 reclaims=3"), "%s", world.comment(10).c_str());
}

Test(controller, slurms_own_preemption_is_told_to_the_agent) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.find(20)->preempt_time = world.slurm.now.taken;
  world.slurm.find(20)->end_time = world.slurm.now.taken + 7;
  world.step();
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert_not_null(shrink);
  cr_assert_eq(shrink->companions[0], 20u);
  cr_assert_eq(shrink->deadline_s, 7);
}

Test(controller, only_the_owner_may_speak_for_a_job) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  control::Hello hello;
  hello.job = 10;
  hello.workers = 4;
  world.server.says(1, hello, 1001);
  world.step();
  cr_assert_eq(world.server.last<control::Refused>()->reason,
               std::string("job 10 belongs to another user"));
  cr_assert_null(world.server.last<control::Grow>());
  world.hello(2, 10, 4);
  world.hello(3, 10, 4);
  cr_assert_neq(world.server.last<control::Refused>()->reason.find("another swellrun"),
                std::string::npos);
}

Test(controller, a_job_that_is_not_elastic_is_told_so_once_it_is_certain) {
  World world;
  world.slurm.run(10, "node1", 4, "");
  world.hello(1, 10, 4);
  cr_assert_null(world.server.last<control::Refused>(), "it may just have started");
  world.step(6);
  cr_assert_neq(world.server.last<control::Refused>()->reason.find("--elastic"), std::string::npos);
}

Test(controller, an_agent_that_died_loses_its_expansions_after_a_while) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.hangs_up(1);
  world.step();
  cr_assert(world.slurm.cancelled.empty(), "it may come back");
  world.step(20);
  cr_assert_eq(world.slurm.cancelled.size(), 3u);
}

Test(controller, an_agent_that_comes_back_keeps_its_expansions) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.hangs_up(1);
  world.step(5);
  world.hello(2, 10, 8, {20, 21, 22});
  world.step(20);
  cr_assert(world.slurm.cancelled.empty());
}

Test(controller, an_ended_program_gives_everything_back_at_once) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.server.says(1, control::Bye{0});
  world.step();
  cr_assert_eq(world.slurm.cancelled.size(), 3u);
}

Test(controller, an_offer_nobody_takes_up_is_withdrawn) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const std::string nonce = world.server.last<control::Grow>()->offers.at(0).nonce;
  world.step(16);
  cr_assert_not(world.book.use(nonce, 1000, world.now).ok());
}

Test(controller, what_was_offered_to_a_job_that_has_ended_is_idle_again) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  // The agent takes an offer up, and the job and its companion end before anybody has seen that.
  cr_assert(world.book.use(grow.offers[0].nonce, 1000, world.now).ok());
  world.slurm.end(10);
  world.slurm.run_elastic(11, "node1", 8);
  world.hello(2, 11, 8);
  int gpus = 0;
  for (const auto& offer : world.server.last<control::Grow>()->offers) gpus += offer.gpus;
  cr_assert_eq(gpus, 24, "%d", gpus);
  cr_assert_not(world.book.use(grow.offers[1].nonce, 1000, world.now).ok(),
                "nobody is left who could be lent that");
}

Test(controller, what_was_offered_to_a_program_that_has_ended_cannot_be_taken_up) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  world.server.says(1, control::Bye{0});
  world.step();
  cr_assert_not(world.book.use(grow.offers[0].nonce, 1000, world.now).ok());
}

Test(controller, refused_growths_are_tried_again_ever_more_rarely) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  int grows = 0;
  for (int i = 0; i < 400; ++i) {
    if (!world.server.sent.empty()) {
      if (const auto* grow = world.server.last<control::Grow>()) {
        ++grows;
        control::GrowDone done;
        for (const auto& offer : grow->offers) done.results.push_back({offer.nonce, 0, "busy"});
        world.server.sent.clear();
        world.server.says(1, done);
      }
    }
    world.step(1);
  }
  cr_assert_geq(grows, 3);
  cr_assert_leq(grows, 8);
}

Test(controller, another_jobs_grant_cannot_be_answered) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.slurm.run_elastic(11, "node2", 4);
  world.hello(1, 10, 4);
  const std::string nonce = world.server.last<control::Grow>()->offers.at(0).nonce;
  world.hello(2, 11, 4);
  world.server.says(2, control::GrowDone{{{nonce, 0, "spite"}}});
  world.step();
  cr_assert(world.book.use(nonce, 1000, world.now).ok());
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

namespace {

/// Offers made to an agent that says nothing.
int grows_in_400_s(World& world) {
  int grows = 0;
  for (int i = 0; i < 400; ++i) {
    if (world.server.last<control::Grow>() != nullptr) ++grows;
    world.server.sent.clear();
    world.step(1);
  }
  return grows;
}

}  // namespace

Test(controller, an_agent_that_takes_nothing_up_is_offered_ever_less) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const int grows = grows_in_400_s(world);
  cr_assert_geq(grows, 3);
  cr_assert_leq(grows, 8, "%d offers", grows);
  cr_assert(world.shows(10, " why=expired"), "%s", world.comment(10).c_str());
}

Test(controller, an_agent_that_takes_one_offer_up_is_offered_the_others_ever_less) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const control::Offer first = world.server.last<control::Grow>()->offers[0];
  cr_assert(world.book.use(first.nonce, 1000, world.now).ok());
  world.slurm.run(20, first.node, first.gpus, "swell[parent=10 grant=" + first.nonce + "]");
  const int grows = grows_in_400_s(world);
  cr_assert_geq(grows, 3);
  cr_assert_leq(grows, 9, "%d offers", grows);
}

Test(controller, what_an_agent_claims_does_not_end_its_backoff) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.slurm.run(32, "node3", 1, "");
  world.hello(1, 10, 4);
  int grows = 0;
  for (int i = 0; i < 400; ++i) {
    if (const auto* grow = world.server.last<control::Grow>()) {
      ++grows;
      control::GrowDone done;
      for (const auto& offer : grow->offers) done.results.push_back({offer.nonce, 32, ""});
      world.server.sent.clear();
      world.server.says(1, done);
    }
    world.step(1);
  }
  cr_assert_leq(grows, 8, "%d offers", grows);
}

Test(controller, refusals_and_their_kind_are_shown) {
  World world;
  world.slurm.run_elastic(10, "node1", 4);
  world.hello(1, 10, 4);
  const control::Grow grow = *world.server.last<control::Grow>();
  control::GrowDone done;
  for (const auto& offer : grow.offers)
    done.results.push_back(
        {offer.nonce, 0, "Job submit/allocate failed: Invalid qos specification"});
  world.server.says(1, done);
  world.step(3);
  cr_assert(world.shows(10, "refused=2 why=qos"), "%s", world.comment(10).c_str());
  world.restart();
  world.step();
  cr_assert(world.shows(10, "refused=2 why=qos"), "%s", world.comment(10).c_str());
}

Test(controller, an_agent_that_is_refused_is_lost) {
  struct {
    const char* what;
    control::Message (*message)();
  } const cases[] = {
      {"a message that is not for the controller",
       [] { return control::Message(control::Welcome{}); }},
      {"a second hello",
       [] {
         control::Hello hello;
         hello.job = 10;
         hello.workers = 8;
         return control::Message(hello);
       }},
      {"a hello for another job",
       [] {
         control::Hello hello;
         hello.job = 11;
         hello.workers = 4;
         return control::Message(hello);
       }},
  };
  for (const auto& each : cases) {
    World world;
    world.slurm.run_elastic(10, "node1", 8);
    world.hello(1, 10, 8);
    world.take_offers(1, 20);
    world.slurm.run_elastic(11, "node1", 4);
    world.server.says(1, each.message());
    world.step();
    cr_assert_not_null(world.server.last<control::Refused>(), "%s", each.what);
    cr_assert_eq(world.server.closed.size(), 1u, "%s", each.what);
    cr_assert(world.slurm.cancelled.empty(), "%s", each.what);
    world.step(20);
    cr_assert_eq(world.slurm.cancelled.size(), 3u, "%s: AgentTimeout did not fire", each.what);
  }
}

Test(controller, nothing_is_heard_from_a_connection_that_was_closed) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.server.says(1, control::Bye{0});  // no hello came before: refused
  control::Hello hello;
  hello.job = 10;
  hello.workers = 8;
  world.server.says(1, hello);
  world.step();
  world.server.says(1, hello);
  world.step();
  cr_assert_null(world.server.last<control::Welcome>());
}

Test(controller, what_follows_a_hello_at_once_is_heard_after_it) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  control::Hello hello;
  hello.job = 10;
  hello.workers = 8;
  world.server.says(1, hello);
  control::Status status;
  status.state = control::JobState::active;
  status.epoch = 3;
  world.server.says(1, status);
  world.step();
  cr_assert_null(world.server.last<control::Refused>());
  world.step(2);
  cr_assert(world.shows(10, "epoch=3"), "%s", world.comment(10).c_str());
}

Test(controller, no_more_is_lent_than_the_program_says_that_it_can_run_on) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  control::Hello hello;
  hello.job = 10;
  hello.workers = 8;
  hello.sizes = {8, 12};
  world.server.says(1, hello);
  world.step();
  const auto* grow = world.server.last<control::Grow>();
  cr_assert_not_null(grow);
  int lent = 0;
  for (const control::Offer& offer : grow->offers) lent += offer.gpus;
  cr_assert_eq(lent, 4, "%d", lent);
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

Test(controller, the_state_file_forgets_the_grants_of_ended_jobs_and_companions) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  cr_assert_eq(load_state(world.state_path)->issued.size(), 3u);
  world.slurm.end(20);
  world.step();
  cr_assert_eq(load_state(world.state_path)->issued.size(), 2u);
  for (JobId id : {10u, 21u, 22u}) world.slurm.end(id);
  world.restart();  // they ended while slurmctld was away
  world.step();
  cr_assert(load_state(world.state_path)->issued.empty());
}

Test(controller, numbers_of_a_hello_cannot_overflow) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  control::Hello hello;
  hello.job = 10;
  hello.workers = hello.gpus_per_worker = 1'000'000;
  world.server.says(1, hello);
  world.step();
  cr_assert_not_null(world.server.last<control::Refused>());
}

Test(controller, admin_comment_is_written_only_when_it_changes) {
  World world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.step();
  const int written = world.slurm.comments_written;
  for (int i = 0; i < 10; ++i) world.step(0.1);
  cr_assert_eq(world.slurm.comments_written, written);
}

Test(controller, draining_reclaims_everything_within_the_grace_and_lends_no_more) {
  World world;
  world.slurm.run_elastic(1, "node1", 8);
  world.step();
  world.hello(7, 1, 8);
  world.take_offers(7, 100);
  world.step();
  cr_assert(world.shows(1, "lent=24"));

  world.controller->set_draining(true);
  world.step();
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert(shrink != nullptr);
  cr_assert_eq(shrink->deadline_s, 20, "the job's own grace, not at once");
  cr_assert_eq(shrink->reason, std::string("the administrator drains Swell"));
  cr_assert(world.slurm.cancelled.empty());
  for (const Companion& companion : world.controller->jobs().at(1).companions)
    cr_assert(companion.leaving);

  for (JobId companion : {100u, 101u, 102u}) world.slurm.end(companion);
  world.server.sent.clear();
  world.step(60);
  cr_assert(world.shows(1, "lent=0"));
  world.step(60);
  cr_assert_null(world.server.last<control::Grow>(), "lent while being drained");

  world.controller->set_draining(false);
  world.step();
  cr_assert_not_null(world.server.last<control::Grow>());
}

Test(controller, a_grant_that_stands_when_the_drain_begins_is_withdrawn) {
  World world;
  world.slurm.run_elastic(1, "node1", 8);
  world.step();
  world.hello(7, 1, 8);
  const control::Grow grow = *world.server.last<control::Grow>();
  world.controller->set_draining(true);
  world.step();
  for (const control::Offer& offer : grow.offers)
    cr_assert_not(world.book.use(offer.nonce, 1000, world.now).ok());
}
