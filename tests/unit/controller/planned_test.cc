// SPDX-License-Identifier: GPL-2.0-or-later
// The controller with jobs that report profiles.
#include <algorithm>
#include <chrono>
#include <criterion/criterion.h>
#include <filesystem>
#include <string>
#include <thread>

#include "core/plan/plan.h"
#include "unit/controller/live_world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::kEight;
using swell::test::Live;
using swell::test::Reported;

Test(planned, a_live_job_waits_for_its_profile_and_is_then_lent_with_a_plan) {
  Live world;
  world.step();
  cr_assert_null(world.server.last<control::Grow>(), "ProfileWait is not over");
  world.report({.gpus = kEight});
  cr_assert(world.grown());
  const auto* grow = world.server.last<control::Grow>();
  const auto plan = plan::Plan::from_json(grow->plan);
  cr_assert(plan.ok(), "%s", grow->plan.dump().c_str());
  cr_assert_eq(plan->gpu_count(), 16);
  cr_assert_neq(grow->reason.find("times as fast is predicted"), std::string::npos);
  cr_assert_eq(world.job().decision.by(), std::string("planned"));
}

// Other jobs have a GPU of every second node, so that few nodes lend alike.
Test(planned, a_plan_over_a_thousand_gpus_reaches_its_agent) {
  constexpr int kNodes = 146;
  Live world(kNodes, 1024, 2);
  for (int node = 4; node <= kNodes; node += 2) {
    auto& other =
        world.slurm.run(static_cast<JobId>(1000 + node), "node" + std::to_string(node), 1, "");
    other.gpus.front().gpus.indices = std::to_string(node / 2 % 8);
  }
  Reported reported{.gpus = kEight, .lent_node = "node2"};
  reported.samples = 32768;
  reported.layer_s = 1e-2;
  world.report(reported);
  cr_assert(world.grown());
  const auto* grow = world.server.last<control::Grow>();
  const auto plan = plan::Plan::from_json(grow->plan);
  cr_assert(plan.ok(), "%s", grow->reason.c_str());
  cr_assert_geq(plan->gpu_count(), 1000, "%s", grow->reason.c_str());
  cr_assert_eq(plan->stages[0].tp, 1);
  cr_assert_leq(grow->plan.dump().size(), control::kMaxDocument);
}

// Its steps take 6 s each, and the training was resumed at step 500.
Test(planned, a_program_with_slow_steps_is_lent_nothing_before_it_can_have_a_profile) {
  Live world;
  control::Status status;
  status.state = control::JobState::active;
  for (int step = 0; step < 19; ++step) {
    status.steps = 500 + step;
    world.server.says(1, status);
    world.step(6);
  }
  world.step(100);
  cr_assert_null(world.server.last<control::Grow>(), "it has made 19 steps here");
  ++status.steps;
  world.server.says(1, status);
  world.step(6);
  cr_assert(world.grown());
}

Test(planned, a_program_that_stops_in_its_first_steps_is_waited_for_ten_minutes) {
  Live world;
  control::Status status;
  status.state = control::JobState::active;
  status.steps = 3;
  world.server.says(1, status);
  world.step(590);
  cr_assert_null(world.server.last<control::Grow>());
  world.step(15);
  cr_assert(world.grown());
}

Test(planned, a_job_without_a_profile_is_lent_after_the_wait) {
  Live world;
  world.step(121);
  cr_assert(world.grown());
  cr_assert_not(is_object(world.server.last<control::Grow>()->plan));
  cr_assert_eq(world.job().decision.by(), std::string("worker by worker"));
  cr_assert_eq(world.job().decision.why(), std::string("its program has reported no profile"));
}

Test(planned, a_job_that_gains_nothing_gets_nothing) {
  Live world;
  // One layer, and a sample for each group: nothing can be divided any more.
  Reported reported{.gpus = kEight, .layers = 1};
  reported.samples = 8;
  reported.micro_batches = 1;
  world.report(reported);
  for (int round = 0; round < 30; ++round) world.step();
  cr_assert_null(world.server.last<control::Grow>());
  cr_assert_eq(world.job().decision.by(), std::string("planned"));
}

Test(planned, a_profile_that_cannot_be_true_is_refused_and_said) {
  Live world;
  world.report({.gpus = kEight, .layer_s = 1e-9, .layer_bytes = 4e8});
  world.step(6);
  cr_assert_neq(world.job().reports.refused().find("fwd_s"), std::string::npos);
  cr_assert_not(world.job().training.is_known());
  const auto heard = std::find_if(world.said.begin(), world.said.end(), [](const auto& line) {
    return line.find("its profile is not used") != std::string::npos;
  });
  cr_assert(heard != world.said.end());
}

Test(planned, reads_one_profile_a_round_in_a_flood) {
  Live world;
  for (int i = 0; i < 500; ++i) world.server.says(1, Reported{.gpus = kEight}.message());
  world.step();
  cr_assert(world.job().training.is_known());
  const auto looked_at =
      std::count_if(world.said.begin(), world.said.end(), [](const std::string& line) {
        return line.find("samples a second") != std::string::npos &&
               line.find("(decision: ") == std::string::npos;
      });
  cr_assert_eq(looked_at, 1);
}

Test(planned, a_profile_outlives_slurmctld) {
  Live world;
  world.report({.gpus = kEight});
  cr_assert(world.job().training.is_known());
  world.restart();
  world.step();
  cr_assert(world.job().training.is_known());
  world.hello(1);
  cr_assert(world.grown());
  cr_assert(is_object(world.server.last<control::Grow>()->plan));
}

Test(planned, a_requeued_jobs_profile_is_forgotten) {
  Live world;
  world.report({.gpus = kEight});
  world.controller.reset();
  world.slurm.find(10)->start_time = 2;
  world.restart();
  world.step();
  cr_assert_not(world.job().training.is_known());
}

Test(planned, gpus_that_bring_less_than_promised_are_reclaimed) {
  Live world;
  world.report({.gpus = kEight});
  cr_assert(world.grown());
  world.take_offers(20);
  cr_assert_eq(world.job().companions.lent_gpus(), 8);
  Reported slow{.gpus = kEight, .step_factor = 1.9, .generation = 1};
  slow.lent_node = "node2";
  cr_assert_eq(world.slurm.find(20)->nodes.front(), slow.lent_node);
  world.report(slow);
  cr_assert_neq(world.job().trust.why().find("where"), std::string::npos, "%s; %s",
                world.job().trust.why().c_str(), world.job().reports.refused().c_str());
  cr_assert_null(world.server.last<control::Shrink>());
  world.step(21);
  const auto* shrink = world.server.last<control::Shrink>();
  cr_assert_not_null(shrink);
  cr_assert_eq(shrink->reason, world.job().trust.why());
  cr_assert(shrink->reason.ends_with("a gain below 5 %"), "%s", shrink->reason.c_str());
  cr_assert_neq(world.ask("why").text.find("times as fast"), std::string::npos);
}

Test(planned, rows_that_the_policy_leaves_out_are_named_with_the_rule) {
  Live world;
  world.config.policy = "flextrain";
  world.restart();
  world.hello(1);
  // One layer, and a sample for each group: more GPUs bring nothing.
  Reported reported{.gpus = kEight, .layers = 1};
  reported.samples = 8;
  reported.micro_batches = 1;
  world.report(reported);
  cr_assert(world.until([&] { return !world.job().decision.scale().rows.empty(); }));
  const control::Answer answer = world.ask("why");
  cr_assert_neq(answer.text.find("left out of its scale table: "), std::string::npos, "%s",
                answer.text.c_str());
  cr_assert_neq(answer.text.find("16 GPUs: no significant gain"), std::string::npos, "%s",
                answer.text.c_str());
  cr_assert_eq(answer.text.find("times as much"), std::string::npos, "%s", answer.text.c_str());
  const std::vector<Json> rows = answer.details.at("scale").items();
  cr_assert_gt(rows.size(), 1u);
  cr_assert(!rows.front().has("omitted") &&
            rows.front().number_at("modelled_samples_per_s", 1e-9, 1e18).ok());
  cr_assert_eq(rows.back().string_at("omitted").value(), "no-gain");
}

Test(planned, gpus_lent_before_a_profile_without_gain_go_back_and_the_owner_reads_why) {
  const std::string why = "by its profile it is no faster with them";
  Live world;
  world.step(121);
  cr_assert(world.grown());
  world.take_offers(20);
  Reported one_layer{.gpus = kEight, .layers = 1};
  one_layer.samples = 8;
  one_layer.micro_batches = 1;
  world.report(one_layer);
  world.step(60);  // GrowthInterval: it may be changed again
  cr_assert(world.until([&] { return world.server.last<control::Shrink>() != nullptr; }));
  cr_assert_eq(world.server.last<control::Shrink>()->reason, why);
  std::string answer = world.ask("why").text;
  cr_assert_neq(answer.find("on node2 goes back: " + why), std::string::npos, "%s", answer.c_str());
  cr_assert_eq(answer.find("taken back last"), std::string::npos, "not yet: %s", answer.c_str());
  world.slurm.end(20);
  world.step();
  answer = world.ask("why").text;
  cr_assert_neq(answer.find("taken back last: " + why), std::string::npos, "%s", answer.c_str());
}

Test(planned, a_job_that_runs_with_fewer_than_its_user_wanted_is_lent_these_before_its_profile) {
  Live world;
  cr_assert_eq(world.ask("why").text.find("consented"), std::string::npos);
  world.slurm.run(11, "node2", 4, "swell[elastic=max=2x,mode=live,grace=20 basic=4 wanted=8]");
  world.World::hello(2, 11, 4);
  cr_assert(world.grown());
  const auto* grow = world.server.last<control::Grow>();
  cr_assert_eq(grow->offers.size(), 1u);
  cr_assert_eq(grow->offers[0].name, std::string("swell-11-lent"));
  cr_assert_eq(grow->offers[0].gpus, 4, "16 only with a profile");
  const control::Answer answer = world.ask("why", 0, 1000, 11);
  cr_assert_neq(answer.text.find("\nits user asked for 8 GPUs and consented to run with 4"),
                std::string::npos, "%s", answer.text.c_str());
  cr_assert_eq(answer.details.integer_at("wanted_gpus", 0, 100).value(), 8);
}

Test(planned, a_job_waits_for_the_offer_alone_where_it_is_lent_no_more_than_it_wanted) {
  Live world;
  world.config.growth_interval_s = 500;
  world.restart();
  world.hello(1);
  world.slurm.run(11, "node2", 4, "swell[elastic=max=8,mode=live,grace=20 basic=4 wanted=8]");
  world.World::hello(2, 11, 4);
  const auto waits_s = [&](JobId job) {
    const auto lent = [&] {
      return world.controller->jobs().at(job).offers.times().grows_after > 0;
    };
    cr_assert(world.until(lent));
    return world.controller->jobs().at(job).offers.times().grows_after - world.now;
  };
  cr_assert_lt(waits_s(11), 16, "GrantExpiry");
  world.step(121);
  cr_assert_gt(waits_s(10), 400, "GrowthInterval");
}

Test(planned, owed_gpus_do_not_wait_for_growth_interval_after_a_loss) {
  ElasticJob job;
  job.basic_gpus = 4;
  job.wanted_gpus = 8;
  job.spec.stay_s = 30;
  job.stay(100, 60);
  cr_assert_eq(job.offers.times().grows_after, 0);
  cr_assert_eq(job.offers.times().stays_until, 130, "that is the user's own word");
  job.basic_gpus = 8;
  job.stay(100, 60);
  cr_assert_eq(job.offers.times().grows_after, 160);
}

Test(planned, an_owner_pauses_resumes_and_limits) {
  Live world;
  world.ask("pause");
  world.report({.gpus = kEight});
  for (int round = 0; round < 20; ++round) world.step();
  cr_assert_null(world.server.last<control::Grow>());
  world.restart();
  world.hello(1);
  cr_assert(world.job().limits.is_paused(), "over a restart");
  world.ask("max", 8);
  world.ask("resume");
  for (int round = 0; round < 20; ++round) world.step();
  cr_assert_null(world.server.last<control::Grow>());
  world.ask("max", 0);
  cr_assert(world.grown());
  world.take_offers(20);
  world.ask("max", 8);
  world.step();
  cr_assert_not_null(world.server.last<control::Shrink>());
  cr_assert_eq(world.server.last<control::Shrink>()->reason,
               std::string("its owner wants at most 8 GPUs"));
}

Test(planned, questions_about_unknown_jobs_are_answered_with_what_they_are) {
  Live world;
  auto add = [&](JobId id, slurm::JobPhase phase, const char* state, const std::string& comment) {
    slurm::JobRecord& record = world.slurm.run(id, "node4", 0, comment);
    record.phase = phase;
    record.state_text = state;
  };
  add(30, slurm::JobPhase::pending, "PENDING", "swell[elastic=max=8 basic=4]");
  add(31, slurm::JobPhase::ended, "FAILED", "swell[elastic=max=8 basic=4]");
  add(32, slurm::JobPhase::running, "RUNNING", "");
  add(33, slurm::JobPhase::ended, "CANCELLED", "swell[parent=10 grant=none]");
  world.step();
  const std::pair<JobId, const char*> expected[] = {
      {30, "job 30 waits still: it can be lent GPUs once it runs"},
      {31, "job 31 has ended (FAILED): swell history 31"},
      {32, "job 32 was submitted without --elastic, so it is lent nothing"},
      {33, "job 33 is a companion of job 10, and holds what that job is lent: swell pause 10"},
      {34, "there is no job 34 (squeue); of an elastic job that ended long ago: swell history 34"}};
  for (const auto& [id, reason] : expected) {
    world.ask("pause", 0, 1000, id);
    const auto* refused = world.server.last<control::Refused>();
    cr_assert_not_null(refused);
    cr_assert(refused->reason == reason, "%s", refused->reason.c_str());
  }
  world.ask("why", 0, 2000, 32);
  cr_assert_eq(world.server.last<control::Refused>()->reason,
               std::string("job 32 belongs to another user"));
}

Test(planned, the_answer_to_a_limit_names_the_one_that_holds) {
  Live world;
  const int of_spec = world.job().spec.max_total(world.job().asked_gpus(), true);
  const auto said = [&](int wanted) { return world.ask("max", wanted).text; };
  cr_assert_eq(said(of_spec + 50), "it has at most " + std::to_string(of_spec) +
                                       " GPUs all the same: that is the max of its --elastic");
  cr_assert_eq(said(9), std::string("it has at most 9 GPUs from now on"));
  world.report({.gpus = kEight});
  world.ask("max", 0);
  cr_assert(world.grown());
  world.take_offers(20);
  world.step();
  cr_assert_gt(world.job().companions.lent_gpus(), 1);
  const std::string less = said(9);
  cr_assert_eq(less,
               std::string("it has at most 9 GPUs from now on; lent GPUs go back companion by "
                           "companion, so that it keeps 8 for now"),
               "%s", less.c_str());
  world.config.max_gpus_per_job = 10;
  world.restart();
  world.hello(1, {20});
  const std::string capped = said(12);
  cr_assert_eq(capped,
               std::string("it has at most 10 GPUs all the same: the site gives no job more "
                           "than that (MaxGPUsPerJob)"),
               "%s", capped.c_str());
}

Test(planned, an_owner_s_plan_is_told_before_there_is_a_profile_and_forgotten_where_it_is_refused) {
  for (const bool is_refused : {true, false}) {
    Live world;
    const Reported one_stage{.gpus = kEight};
    plan::Plan two_stages = one_stage.plan();
    plan::Stage second = two_stages.stages[0];
    two_stages.stages[0].layers = second.layers /= 2;
    two_stages.stages[0].groups.resize(4);
    second.groups.erase(second.groups.begin(), second.groups.begin() + 4);
    two_stages.stages.push_back(second);
    for (plan::Stage& stage : two_stages.stages)
      for (auto& group : stage.groups) group.local_batch *= 2;
    control::Ask ask;
    ask.job = 10;
    ask.what = "replan";
    ask.plan = two_stages.to_json();
    world.server.says(60, ask, 1000);
    world.step();
    cr_assert_not_null(world.server.last<control::Replan>());
    cr_assert_neq(world.server.last<control::Answer>()->text.find("no profile"), std::string::npos);
    control::Status status;
    status.state = control::JobState::active;
    status.generation = 1;
    if (is_refused) status.plan_refused = "the switch was called off";
    world.server.says(1, status);
    world.step();
    cr_assert_eq(world.job().agent_words.last().plan_refused, status.plan_refused);
    Reported later = one_stage;
    later.generation = 1;
    world.report(later);
    // A job that runs another plan than the last one sent makes its own.
    cr_assert_eq(world.job().training.told().makes_own_plans(), !is_refused);
  }
}

/// 32 samples a micro-batch, two on each of 16 GPUs, of which the last one takes some of the
/// others': with all 15 it is slower than on its own GPUs, with one still faster.
struct Uneven : Live {
  Reported reported{.gpus = kEight, .generation = 1, .lent_node = "node2"};

  explicit Uneven(int more_of_last = 15) {
    reported.samples = 32;
    reported.more_of_last = more_of_last;
    step(121);
    cr_assert(grown());
    cr_assert_not(is_object(server.last<control::Grow>()->plan));
    take_offers(20);
    runs(1);
    report(reported);
  }
  void runs(int generation, const char* refused = "") {
    control::Status status;
    status.state = control::JobState::active;
    status.generation = generation;
    status.workers = 16;
    status.plan_refused = refused;
    server.says(1, status);
    step();
  }
  /// Orders to run another plan that were sent in so many seconds.
  std::size_t orders_within(double seconds) {
    const std::size_t before = server.count<control::Replan>();
    for (double end = now + seconds; now < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(2)))
      step();
    return server.count<control::Replan>() - before;
  }
  bool told() {
    step(121);
    return until([this] { return server.last<control::Replan>() != nullptr; });
  }
};

Test(planned, a_job_that_runs_badly_on_its_gpus_is_sent_a_better_plan_once) {
  Uneven world;
  cr_assert(world.told());
  const auto* order = world.server.last<control::Replan>();
  const auto plan = plan::Plan::from_json(order->plan);
  cr_assert(plan.ok(), "%s", order->plan.dump().c_str());
  cr_assert_eq(plan->gpu_count(), 16);
  cr_assert_neq(order->reason.find("times as fast is predicted"), std::string::npos);
  world.runs(2);
  cr_assert_eq(world.orders_within(300), 0, "until it reports of it");
  cr_assert_null(world.server.last<control::Shrink>(), "it is taken to run it");
  world.reported.more_of_last = 0;
  world.reported.generation = 2;
  world.report(world.reported);
  cr_assert_not(world.job().training.told().makes_own_plans());
  cr_assert_eq(world.orders_within(300), 0, "it is as good now");
}

Test(planned, a_better_plan_that_is_refused_is_told_again_later_each_time) {
  Uneven world(1);
  cr_assert(world.told());
  world.runs(1, "its switch was called off: first");
  cr_assert_eq(world.orders_within(12), 1);
  world.runs(1, "its switch was called off: second");
  cr_assert_eq(world.orders_within(15), 0);
  cr_assert_eq(world.orders_within(10), 1);
  cr_assert_eq(world.orders_within(200), 0, "it has said nothing of the last one");
}

Test(planned, a_plan_of_its_owner_stands_until_the_gpus_change_over_a_restart_too) {
  Uneven world(1);
  control::Ask ask;
  ask.job = 10;
  ask.what = "replan";
  ask.plan = world.reported.plan().to_json();
  world.server.says(60, ask, 1000);
  world.step();
  cr_assert_eq(world.server.count<control::Replan>(), 1u);
  world.runs(2);
  world.reported.generation = 2;
  world.reported.step_factor = 1.05;
  world.report(world.reported);
  world.orders_within(100);
  world.restart();
  world.step();
  world.hello(1, {20});
  world.runs(2);
  world.reported.step_factor = 1;
  world.report(world.reported);
  world.orders_within(100);
  cr_assert_eq(world.server.count<control::Replan>(), 1, "no other than the owner's");
}

Test(planned, an_owner_has_the_plan_that_runs_run_under_another_schedule) {
  Live world;
  control::Ask ask;
  ask.job = 10;
  ask.what = "replan";
  ask.schedule = "zero-bubble";
  world.server.says(60, ask, 1000);
  world.step();
  cr_assert_neq(world.server.last<control::Refused>()->reason.find("is not known yet"),
                std::string::npos);
  world.report({.gpus = kEight});
  ask.schedule = "fastest";
  world.server.says(61, ask, 1000);
  world.step();
  const std::string& wrong = world.server.last<control::Refused>()->reason;
  cr_assert_neq(wrong.find("is called \"fastest\""), std::string::npos, "%s", wrong.c_str());
  cr_assert_eq(world.server.count<control::Replan>(), 0u);
  ask.schedule = "zero-bubble";
  world.server.says(62, ask, 1000);
  world.step();
  const auto told = plan::Plan::from_json(world.server.last<control::Replan>()->plan);
  cr_assert(told.ok());
  cr_assert_eq(told->schedule, "zero-bubble");
  cr_assert_eq(told->gpu_count(), 8);
  cr_assert_eq(world.job().training.told().plan()->schedule, "zero-bubble");
}

Test(planned, only_the_owner_is_answered) {
  Live world;
  for (const char* what : {"pause", "resume", "max", "replan", "why"}) {
    world.server.sent.clear();
    world.ask(what, 8, 1001);
    cr_assert_null(world.server.last<control::Answer>(), "%s", what);
    cr_assert_eq(world.server.last<control::Refused>()->reason,
                 std::string("job 10 belongs to another user"), "%s", what);
  }
  cr_assert_not(world.job().limits.is_paused());
  cr_assert_eq(world.job().limits.max_gpus(), 0);
  world.ask("max", 4);
  cr_assert_neq(world.server.last<control::Refused>()->reason.find("8 of its own"),
                std::string::npos);
  world.ask("rename");
  cr_assert_neq(world.server.last<control::Refused>()->reason.find("there are replan"),
                std::string::npos);
}

namespace {

std::string why_of(Live& world) { return world.ask("why").text; }

bool expects(Live& world, const std::string& words) {
  return why_of(world).find(words) != std::string::npos;
}

}  // namespace

namespace {

/// A live job that is lent GPUs, and what its agent says of that change.
struct Changing : Live {
  void settles(int generation, control::JobState state = control::JobState::active) {
    control::Status status;
    status.state = state;
    status.generation = generation;
    status.workers = 8 * (generation + 1);
    server.says(1, status);
    step(0.1);
  }
  /// The job is offered GPUs, takes them up and has changed to generation 1 after so long.
  void grows(double seconds) {
    settles(0);
    report({.gpus = kEight});
    cr_assert(grown());
    take_offers(20);
    now += seconds;
  }
  void says(double stopped_s, int generation = 1, double prepare_s = 6) {
    server.says(1, control::Switched{"live", generation, 16, stopped_s,
                                     Json::object({{"prepare_s", prepare_s}})});
    step(0.1);
  }
  bool is_measured() { return expects(*this, "by its own last ones"); }
};

}  // namespace

Test(planned, a_change_of_plan_is_priced_by_the_job_s_own_pauses_also_after_a_restart) {
  Changing world;
  world.grows(30);
  cr_assert_not(expects(world, "is expected to cost"), "nothing was measured");
  world.says(2.5);
  world.settles(1);
  cr_assert(expects(world, "is expected to cost 2.50 s of training, by its own last ones"), "%s",
            why_of(world).c_str());
  world.step(3);
  world.restart();
  world.hello(2, {20});
  world.step();
  cr_assert(expects(world, "cost 2.50 s of training, by its own last ones"), "%s",
            why_of(world).c_str());
}

Test(planned, a_change_of_plan_is_priced_by_the_training_time_that_it_cost) {
  const auto loses = [](Changing& world, double lost_s, int generation = 1) {
    control::Status status;
    status.state = control::JobState::active;
    status.generation = 1;
    status.workers = 16;
    status.lost_generation = generation;
    status.lost_s = lost_s;
    world.server.says(1, status);
    world.step(0.1);
  };
  Changing world;
  world.grows(30);
  world.says(0);
  world.settles(1);
  cr_assert(expects(world, "cost 0.00 s of training, by its own last ones"), "before it is known");
  loses(world, 0.87);
  cr_assert(expects(world, "a change of its plan, live, is expected to cost 0.87 s of training"),
            "%s", why_of(world).c_str());
  for (const double again_s : {5., 0.1}) loses(world, again_s);
  cr_assert(expects(world, "cost 0.87 s of training, by"), "%s", why_of(world).c_str());
  world.step(3);
  world.restart();
  world.hello(2, {20});
  world.step();
  cr_assert(expects(world, "cost 0.87 s of training, by"), "%s", why_of(world).c_str());

  for (const auto& [lost_s, generation] :
       {std::pair{500., 1}, std::pair{1e8, 1}, std::pair{5., 2}, std::pair{1., 1}}) {
    Changing other;  // longer than the change was seen to take, another change, less than it stood
    other.grows(30);
    other.says(2.5);
    other.settles(1);
    loses(other, lost_s, generation);
    cr_assert(expects(other, "cost 2.50 s of training, by its own"), "%g: %s", lost_s,
              why_of(other).c_str());
  }
}

Test(planned, the_first_growth_of_a_job_is_measured) {
  Changing world;
  world.report({.gpus = kEight});
  cr_assert(world.grown());
  world.take_offers(20);
  world.now += 30;
  world.says(2.5);
  cr_assert(world.is_measured(), "%s", why_of(world).c_str());
}

Test(planned, a_job_s_word_of_a_pause_counts_for_no_change_that_was_not_ordered) {
  Changing never;
  never.settles(0);
  never.report({.gpus = kEight});
  never.now += 3600;
  for (const double stopped_s : {3600., 1e8, 0., 2.5}) never.says(stopped_s);
  cr_assert_not(never.is_measured(), "%s", why_of(never).c_str());
}

Test(planned, a_job_s_word_of_a_pause_that_is_longer_than_its_change_does_not_count) {
  for (const double stopped_s : {1e8, 3600., 40.}) {
    Changing world;
    world.grows(30);
    world.says(stopped_s);
    cr_assert_not(world.is_measured(), "%g: %s", stopped_s, why_of(world).c_str());
  }
  Changing slow;
  slow.grows(3600);
  slow.says(3000);
  cr_assert_not(slow.is_measured(), "nobody saw what took an hour: %s", why_of(slow).c_str());
}

Test(planned, a_job_s_word_of_a_pause_counts_once_for_each_change) {
  Changing world;
  world.grows(30);
  world.says(2.5);
  world.settles(1);
  world.now += 300;
  for (int generation = 1; generation < 20; ++generation) world.says(200, generation);
  cr_assert(expects(world, "cost 2.50 s of training, by its own last ones"), "%s",
            why_of(world).c_str());
}

Test(planned, a_job_s_word_of_an_earlier_change_or_of_a_later_failure_does_not_count) {
  Changing world;
  world.grows(30);
  world.says(2.5, 0);
  cr_assert_not(world.is_measured(), "of the change before");
  world.settles(1);
  world.says(2.5, 2);
  cr_assert_not(world.is_measured(), "of one that nobody ordered");
}

Test(planned, a_restart_of_slurmctld_amid_a_change_yields_no_short_pause) {
  for (const bool tells_state_first : {true, false}) {
    Changing world;
    world.grows(60);
    world.step(3);
    world.restart();
    world.hello(2, {20});
    if (tells_state_first) {
      control::Status status;
      status.state = control::JobState::switching;
      world.server.says(2, status);
    }
    world.step();
    world.controller->set_draining(true);  // Shrink is sent amid the change
    world.step(0.5);
    cr_assert_not_null(world.server.last<control::Shrink>());
    for (const double stopped_s : {0.2, 50.})
      world.server.says(2, control::Switched{"live", 1, 16, stopped_s, Json::object({})});
    world.step();
    cr_assert_not(expects(world, "by its own last ones"), "%s", why_of(world).c_str());
  }
}

Test(planned, changes_of_an_agent_in_each_round_are_not_written_in_each) {
  const auto writes_in = [](auto change) {
    Changing world;
    world.settles(0);
    int writes = 0;
    for (int round = 0; round < 100; ++round) {
      change(world, round);
      world.step(0.1);
      writes += std::filesystem::remove(world.state_path) ? 1 : 0;
    }
    return writes;
  };
  const int by_start = writes_in([](Changing& world, int round) {
    control::Status status;
    status.state = control::JobState::active;
    status.start_s = 5 + 20 * (round % 2);
    world.server.says(1, status);
  });
  const int by_profile = writes_in([](Changing& world, int round) {
    Reported reported{.gpus = kEight};
    reported.step_factor = 1 + 0.01 * (round % 5);
    world.server.says(1, reported.message());
  });
  cr_assert_leq(by_start, 4, "%d", by_start);
  cr_assert_geq(by_start, 1);
  cr_assert_leq(by_profile, 8, "%d", by_profile);
  cr_assert_geq(by_profile, 1);
}

Test(planned, answers_to_an_owner_survive_a_kill_of_slurmctld) {
  Changing world;
  world.ask("pause");
  world.ask("max", 12);  // a second later
  world.restart();
  world.step();
  cr_assert_eq(world.job().limits.max_gpus(), 12);
}

Test(planned, a_job_is_expected_to_stop_as_long_as_its_start_took_or_as_others_stopped) {
  Live world;
  control::Status status;
  status.state = control::JobState::active;
  status.workers = 8;
  status.start_s = 17;
  world.server.says(1, status);
  world.step();
  cr_assert_not(expects(world, "is expected to cost"), "a live switch does not wait for that");
  world.slurm.run(11, "node2", 8, "swell[elastic=max=16,grace=20 basic=8]");
  world.World::hello(2, 11, 8, {});
  world.step();
  const auto why = [&] { return world.ask("why", 0, 1000, 11).text; };
  cr_assert_eq(why().find("is expected to cost"), std::string::npos, "%s", why().c_str());
  const auto others = [&](const auto& message_of) {
    for (const uid_t owner : {1001, 1002, 1003})
      world.server.says(owner, message_of(static_cast<JobId>(owner)), owner);
    world.step();
  };
  for (const JobId id : {1001, 1002, 1003})
    world.slurm.run(id, "node3", 2, "swell[elastic=max=4,grace=20 basic=2]").uid = id;
  for (const JobId id : {1001, 1002, 1003}) world.server.says(id, swell::test::hello_of(id, 2), id);
  others([](JobId) {
    control::Status said;
    said.state = control::JobState::active;
    said.workers = 2;
    return said;
  });
  cr_assert(world.until([&] {
    return std::all_of(
        world.controller->jobs().begin(), world.controller->jobs().end(),
        [](const auto& one) { return one.first < 1000 || one.second.offers.is_open(); });
  }));
  world.now += 10;
  others([](JobId) { return control::Switched{"restart", 1, 4, 9, Json()}; });
  cr_assert_neq(
      why().find("by a restart, is expected to cost 9.00 s of training, by those of other jobs"),
      std::string::npos, "%s", why().c_str());
  status.workers = 8;
  world.server.says(2, status);
  world.step();
  cr_assert_neq(
      why().find("expected to cost 17.00 s of training, by the time from its start to its "
                 "first step"),
      std::string::npos, "%s", why().c_str());
}
