// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/node_health.h"

#include <criterion/criterion.h>
#include <string>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

namespace {

constexpr std::time_t kHour = 3600;

/// Jobs 10 of user 1000 and 11 of user 1001 on node1; node2 alone has idle GPUs.
struct Failing : World {
  control::ConnectionId asker = 70;
  JobId next = 20;

  explicit Failing(uid_t second = 1001, const std::string& elastic = "max=8,grace=20") {
    for (const JobId rigid : {53, 54}) slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
    for (const auto& [job, uid] : {std::pair<JobId, uid_t>{10, 1000}, {11, second}}) {
      slurm::JobRecord& record =
          slurm.run(job, "node1", 4, "swell[elastic=" + elastic + " basic=4]");
      record.uid = uid;
      record.gpus[0].gpus.indices = job == 10 ? "0-3" : "4-7";
      server.says(job, swell::test::hello_of(job, 4), uid);
    }
    step();
  }
  uid_t owner(JobId job) { return slurm.find(job)->uid; }
  /// The job that was offered GPUs last on that connection takes them up, as one companion.
  JobId take(JobId job) {
    const control::Grow* grow = nullptr;
    for (const auto& [connection, message] : server.sent)
      if (const auto* each = std::get_if<control::Grow>(&message); each && connection == job)
        grow = each;
    if (grow == nullptr) return 0;
    const control::Offer offer = grow->offers.at(0);
    server.sent.clear();
    const auto grant = book.use(offer.nonce, owner(job), now);
    cr_assert(grant.ok());
    slurm::JobRecord& record =
        slurm.run(next, offer.node, offer.gpus,
                  control::Tag{{"parent", std::to_string(job)}, {"grant", offer.nonce}}.text());
    record.uid = owner(job);
    server.says(job, control::GrowDone{{{offer.nonce, next, ""}}}, owner(job));
    step();
    return next++;
  }
  /// Waits until the job is offered GPUs, and takes them up; 0: it is offered none for so long.
  JobId grow(JobId job, int rounds = 400) {
    for (; rounds > 0; --rounds) {
      if (const JobId companion = take(job); companion != 0) return companion;
      pass(1);
    }
    return 0;
  }
  void pass(std::time_t seconds) {
    slurm.now.taken += seconds;
    step(static_cast<double>(seconds));
    for (const JobId job : {10, 11})
      server.says(job, control::Status{}, owner(job));  // a heartbeat
  }
  void fail(JobId job, JobId companion, bool failed = true, bool started = true) {
    slurm.end(companion);
    server.says(job, control::Released{companion, "a worker of it was killed", failed, started},
                owner(job));
    step();
  }
  /// Only `job` may be lent GPUs.
  void let_alone(JobId job) {
    for (const JobId each : {10, 11}) {
      control::Ask ask;
      ask.job = each;
      ask.what = each == job ? "resume" : "pause";
      server.says(++asker, ask, owner(each));
    }
    step();
    server.sent.clear();
  }
  std::string why(JobId job) {
    control::Ask ask;
    ask.job = job;
    ask.what = "why";
    server.says(++asker, ask, owner(job));
    step();
    return server.last<control::Answer>()->text;
  }
  /// Nodes that are lent to nobody.
  std::size_t shown() {
    control::Ask ask;
    ask.what = "metrics";
    server.says(++asker, ask, 1002);
    step();
    std::size_t count = 0;
    for (const Json& each : server.last<control::Answer>()->details.at("withheld").items())
      count += !each.has("uid");
    return count;
  }
  bool fails(JobId job, bool started = true) {
    let_alone(job);
    const JobId companion = grow(job);
    if (companion == 0) return false;
    fail(job, companion, true, started);
    return true;
  }
  /// The job trains on lent GPUs, and gives them back.
  bool trains(JobId job) {
    let_alone(job);
    const JobId companion = grow(job);
    if (companion == 0) return false;
    for (const int workers : {4, 8})
      server.says(job, control::Status{.state = control::JobState::active, .workers = workers},
                  owner(job));
    step();
    fail(job, companion, false);
    return true;
  }
};

}  // namespace

Test(node_health, a_node_on_which_companions_of_two_users_failed_is_lent_to_nobody_for_an_hour) {
  Failing world;
  cr_assert(world.fails(10));
  cr_assert_eq(world.shown(), 0u, "one failure is none");
  cr_assert(world.fails(11));
  cr_assert_eq(world.shown(), 1u);
  world.let_alone(10);
  cr_assert_eq(world.grow(10, 600), 0u);
  const std::string why = world.why(10);
  cr_assert_neq(why.find("nothing is lent on node2 for "), std::string::npos, "%s", why.c_str());
  cr_assert_neq(why.find("companions of several jobs failed there"), std::string::npos);
  world.pass(kHour);
  cr_assert_neq(world.grow(10, 60), 0u, "the hour is over");
  cr_assert_eq(world.shown(), 0u);
}

Test(node_health, a_restart_of_slurmctld_forgets_no_failure) {
  Failing world;
  cr_assert(world.fails(10));
  cr_assert(world.fails(11));
  world.restart();
  for (const JobId job : {10, 11})
    world.server.says(100 + job, swell::test::hello_of(job, 4), world.owner(job));
  world.step();
  cr_assert_eq(world.shown(), 1u);
}

Test(node_health, two_failing_jobs_of_one_user_keep_a_node_from_all) {
  Failing world(1000);
  cr_assert(world.fails(10));
  cr_assert_eq(world.shown(), 0u);
  cr_assert(world.fails(11));
  cr_assert_eq(world.shown(), 1u);
  world.let_alone(11);
  cr_assert_eq(world.grow(11, 600), 0u, "both jobs are his");
  cr_assert_neq(world.why(11).find("nothing is lent on node2"), std::string::npos);
  world.slurm.find(11)->uid = 1001;  // a job of another user got the id
  world.slurm.find(11)->start_time = 2;
  world.server.says(12, swell::test::hello_of(11, 4), 1001);
  world.step(1);
  world.step(1);
  cr_assert_null(world.server.last<control::Grow>());
}

// One user says that companions failed on node after node.
Test(node_health, one_user_keeps_one_node_at_a_time_from_others) {
  NodeHealth health;
  const auto fails = [&](int node, uid_t uid, std::time_t at) {
    for (const JobId job : {10u, 11u})
      health.failed("node" + std::to_string(node), 100 * uid + job, uid, at, 40, kHour);
  };
  const auto kept_from = [&](uid_t uid, std::time_t at) {
    std::string nodes;
    for (int node = 0; node < 40; ++node)
      if (health.withheld_until("node" + std::to_string(node), uid, at) != 0)
        nodes += std::to_string(node) + " ";
    return nodes;
  };
  for (int node = 0; node < 8; ++node) fails(node, 1000, 5000 + node);
  cr_assert_eq(kept_from(1000, 5010), std::string("0 1 2 3 4 5 6 7 "));
  cr_assert_eq(kept_from(1001, 5010), std::string("0 "));
  fails(9, 1002, 5010);
  cr_assert_eq(kept_from(1001, 5010), std::string("0 9 "), "that of another user");
  fails(3, 1002, 5011);
  cr_assert_eq(kept_from(1001, 5011), std::string("0 3 9 "), "two users say so");
  health.pass(5000 + kHour, kHour);
  cr_assert_eq(kept_from(1001, 5000 + kHour), std::string("3 9 "));
  fails(7, 1000, 5000 + kHour);
  cr_assert_eq(kept_from(1001, 5000 + kHour), std::string("3 7 9 "), "the first is over");
}

Test(node_health, what_one_user_says_gives_way_to_what_two_say) {
  NodeHealth health;
  const auto fails = [&](const char* node, JobId job, uid_t uid) {
    return health.failed(node, job, uid, 5000, 4, kHour);
  };
  fails("node1", 10, 1000);
  cr_assert_eq(fails("node1", 11, 1000),
               "node node1 is not lent for 3600 s: companions of jobs 10 and 11 failed there");
  fails("node2", 20, 1001);
  cr_assert_eq(
      fails("node2", 21, 1001),
      "node node2 is not lent to jobs of uid 1001 for 3600 s: companions of jobs 20 and 21 "
      "failed there",
      "a quarter of the nodes is withheld");
  cr_assert_eq(fails("node2", 30, 1002),
               "node node2 is not lent for 3600 s: companions of jobs 21 and 30 failed there");
  cr_assert_eq(health.withheld_until("node1", 1003, 5000), 0);
  cr_assert_eq(health.withheld_until("node1", 1000, 5000), 5000 + kHour, "it is kept from him");
  fails("node3", 40, 1003);
  cr_assert(fails("node3", 41, 1004).empty(), "two users' word gives way to nobody's");
}

// Options of srun that fail on lent nodes alone.
Test(node_health, jobs_whose_srun_starts_no_worker_on_lent_gpus_say_nothing_of_a_node) {
  for (const uid_t second : {1000u, 1001u}) {
    Failing world(second);
    for (int i = 0; i < 2; ++i)
      for (const JobId job : {10, 11}) cr_assert(world.fails(job, false), "%u %d", second, i);
    cr_assert_eq(world.shown(), 0u, "%u", second);
    world.let_alone(11);
    cr_assert_neq(world.grow(11), 0u, "%u", second);
  }
}

Test(node_health,
     a_node_where_srun_starts_no_worker_of_jobs_that_trained_on_lent_gpus_is_withheld) {
  for (const uid_t second : {1000u, 1001u}) {
    Failing world(second);
    for (const JobId job : {10, 11}) {
      cr_assert(world.trains(job), "%u %u", second, job);
      cr_assert(world.fails(job, false), "%u %u", second, job);
    }
    cr_assert_eq(world.shown(), second == 1000 ? 0u : 1u, "one user's jobs keep it from himself");
    world.let_alone(11);
    cr_assert_eq(world.grow(11, 600), 0u, "%u", second);
  }
}

Test(node_health, what_fails_before_a_worker_starts_keeps_nodes_from_its_user_alone) {
  using Stage = NodeHealth::Stage;
  for (const auto& [first, second] :
       {std::pair{Stage::launch, Stage::launch}, std::pair{Stage::launch, Stage::run},
        std::pair{Stage::run, Stage::launch}}) {
    NodeHealth health;
    health.failed("node1", 10, 1000, 5000, 8, kHour, first);
    health.failed("node1", 11, 1000, 5000, 8, kHour, second);
    cr_assert_eq(health.withheld_until("node1", 1000, 5000), 5000 + kHour);
    cr_assert_eq(health.withheld_until("node1", 1001, 5000), 0);
    cr_assert(*NodeHealth::from_json(health.to_json()) == health);
    health.failed("node1", 12, 1001, 5000, 8, kHour, Stage::launch);
    cr_assert_eq(health.withheld_until("node1", 1002, 5000), 5000 + kHour, "of two users");
  }
}

Test(node_health, one_job_that_fails_again_and_again_says_nothing_of_a_node) {
  Failing world;
  for (int i = 0; i < 3; ++i) cr_assert(world.fails(10), "%d", i);
  cr_assert_eq(world.shown(), 0u);
  world.let_alone(11);
  cr_assert_neq(world.grow(11), 0u);
}

Test(node_health, reclaimed_preempted_and_returned_companions_have_not_failed) {
  struct Case {
    const char* what;
    void (*end)(Failing&, JobId job, JobId companion);
  };
  const Case cases[] = {
      {"given back",
       [](Failing& world, JobId job, JobId companion) { world.fail(job, companion, false); }},
      {"preempted without a grace",
       [](Failing& world, JobId job, JobId companion) {
         slurm::JobRecord ended = *world.slurm.find(companion);
         ended.phase = slurm::JobPhase::ended;
         ended.was_preempted = true;
         world.slurm.fresh[companion] = ended;
         world.fail(job, companion);
       }},
      {"taken back",
       [](Failing& world, JobId job, JobId companion) {
         world.slurm.now.nodes[1].draining = true;
         world.step();
         world.fail(job, companion);
         world.slurm.now.nodes[1].draining = false;
       }},
      {"of another job", [](Failing& world, JobId job, JobId companion) {
         const JobId liar = job == 10 ? 11 : 10;
         world.server.says(liar, control::Released{companion, "", true}, world.owner(liar));
         world.step();
         world.fail(job, companion, false);
       }}};
  for (const Case& each : cases) {
    Failing world;
    for (const JobId job : {10, 11}) {
      world.let_alone(job);
      const JobId companion = world.grow(job);
      cr_assert_neq(companion, 0u, "%s", each.what);
      each.end(world, job, companion);
    }
    cr_assert_eq(world.shown(), 0u, "%s", each.what);
  }
}

Test(node_health, a_companion_that_slurms_records_lost_first_counts_when_its_agent_says_so) {
  Failing world;
  for (const JobId job : {10, 11}) {
    world.let_alone(job);
    const JobId companion = world.grow(job);
    world.slurm.end(companion);
    world.step();  // Slurm has forgotten it
    for (int i = 0; i < 3; ++i)
      world.server.says(job, control::Released{companion, "its step ended", true, true},
                        world.owner(job));
    world.step();
  }
  cr_assert_eq(world.shown(), 1u);
}

// As where a step cannot be launched: Slurm's records show the companion only as one that has
// ended.
// Slurm may not answer at that moment.
Test(node_health, a_companion_that_came_and_went_between_two_looks_counts_and_holds_no_gpus) {
  Failing world;
  for (const JobId job : {10, 11}) {
    world.let_alone(job);
    for (int rounds = 400; world.server.last<control::Grow>() == nullptr && rounds > 0; --rounds)
      world.pass(1);
    const control::Offer offer = world.server.last<control::Grow>()->offers.at(0);
    world.server.sent.clear();
    cr_assert(world.book.use(offer.nonce, world.owner(job), world.now).ok());
    const JobId companion = world.next++;
    slurm::JobRecord record = world.slurm.run(
        companion, offer.node, offer.gpus,
        control::Tag{{"parent", std::to_string(job)}, {"grant", offer.nonce}}.text());
    world.slurm.end(companion);
    record.uid = world.owner(job);
    record.phase = slurm::JobPhase::ended;
    world.slurm.fresh[companion] = record;
    const int failed = world.controller->jobs().at(job).offers.failures();
    world.server.says(job, control::GrowDone{{{offer.nonce, companion, ""}}}, world.owner(job));
    for (int i = 0; i < 3; ++i)
      world.server.says(job, control::Released{companion, "its step ended", true, true},
                        world.owner(job));
    world.slurm.answers_for_jobs = false;
    world.step();
    cr_assert(world.book.has_grant_of(job));
    world.slurm.answers_for_jobs = true;
    world.slurm.answers = false;
    world.slurm.asked_for_jobs = 0;
    world.step();
    cr_assert_eq(world.slurm.asked_for_jobs, 0, "each would be waited for, one after the other");
    world.slurm.answers = true;
    world.step();
    cr_assert_eq(world.slurm.asked_for_jobs, 1);
    cr_assert_not(world.book.has_grant_of(job));
    cr_assert_eq(world.controller->jobs().at(job).offers.failures(), failed + 1);
  }
  cr_assert_eq(world.shown(), 1u);
}

// An agent that names a job of somebody else learns nothing and ends nothing.
Test(node_health, a_job_that_an_agent_calls_its_companion_counts_for_nothing) {
  Failing world;
  world.let_alone(10);
  for (int rounds = 400; world.server.last<control::Grow>() == nullptr && rounds > 0; --rounds)
    world.pass(1);
  const control::Offer offer = world.server.last<control::Grow>()->offers.at(0);
  cr_assert(world.book.use(offer.nonce, world.owner(10), world.now).ok());
  for (const JobId other : {53, 11}) {
    world.server.says(10, control::GrowDone{{{offer.nonce, other, ""}}}, world.owner(10));
    world.server.says(10, control::Released{other, "its step ended", true}, world.owner(10));
  }
  world.step();
  cr_assert(world.book.has_grant_of(10));
  cr_assert_eq(world.shown(), 0u);
  cr_assert(world.slurm.cancelled.empty());
}

Test(node_health, at_most_a_quarter_of_the_nodes_is_withheld) {
  NodeHealth health;
  for (int node = 0; node < 8; ++node)
    for (const uid_t uid : {1000u, 1001u})
      health.failed("node" + std::to_string(node), 10 + uid, uid, 5000, 8, kHour);
  cr_assert_eq(health.shown(5000).size(), 2u);
  cr_assert_eq(health.shown(5000 + kHour).size(), 0u);
}

Test(node_health, failures_that_are_an_hour_apart_are_none_of_the_nodes) {
  NodeHealth health;
  health.failed("node1", 10, 1000, 5000, 8, kHour);
  health.failed("node1", 11, 1001, 5000 + kHour, 8, kHour);
  cr_assert_eq(health.shown(5000 + kHour).size(), 0u);
  cr_assert_eq(health.withheld_until("node1", 1000, 5000 + kHour), 0);
}

Test(node_health, nobody_drives_out_failures_of_others) {
  NodeHealth health;
  health.failed("node1", 10, 1000, 5000, 8, kHour);
  for (JobId job = 100; job < 1000; ++job) health.failed("node2", job, 1001, 5000, 8, kHour);
  for (JobId job = 1000; job < 2000; ++job) health.failed("node3", job, 1001, 5000, 8, kHour);
  std::size_t from_all = 0;
  for (const Json& each : health.shown(5000).items()) from_all += !each.has("uid");
  cr_assert_eq(from_all, 1u);
  cr_assert(health.failed("node1", 11, 1001, 5001, 8, kHour).find("10 and 11") !=
            std::string::npos);
  cr_assert_lt(health.to_json().dump().size(), 2000u);
}

Test(node_health, is_read_as_it_was_written_and_damage_is_said) {
  NodeHealth health;
  health.failed("node1", 10, 1000, 5000, 8, kHour);
  health.failed("node1", 11, 1000, 5000, 8, kHour);
  health.failed("node2", 10, 1000, 5000, 8, kHour);
  health.failed("node2", 12, 1001, 5000, 8, kHour);
  const auto read = NodeHealth::from_json(health.to_json());
  cr_assert(read.ok());
  cr_assert(*read == health);
  for (const char* bad :
       {"[]", R"({"n":1})", R"({"n":{"until":-1,"until_for":{},"failures":[]}})",
        R"({"n":{"until":1,"until_for":[],"failures":[]}})",
        R"({"n":{"until":1,"until_for":{"x":1},"failures":[]}})",
        R"({"n":{"until":1,"until_for":{},"failures":[1]}})",
        R"({"n":{"until":1,"by_one":-1,"until_for":{},"failures":[]}})",
        R"({"n":{"until":1,"until_for":{},"failures":[{"job":0,"uid":1,"at":1}]}})"})
    cr_assert_not(NodeHealth::from_json(*Json::parse(bad)).ok(), "%s", bad);
}
