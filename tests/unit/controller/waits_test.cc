// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/waits.h"

#include <criterion/criterion.h>
#include <functional>
#include <string>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

namespace {

/// Job 10 with 4 GPUs on node1, whose other GPUs and nodes are idle.
struct Waiter : World {
  control::ConnectionId asker = 50;

  void start(const std::string& elastic = "max=8", const std::string& more = "") {
    restart();
    slurm.run(10, "node1", 4, "swell[elastic=" + elastic + ",grace=20 basic=4" + more + "]");
    hello(1, 10, 4);
  }
  /// Rigid jobs take all other GPUs, so that nothing is offered, and every round decides.
  void fill() {
    slurm.run(51, "node1", 4, "").gpus[0].gpus.indices = "4-7";
    for (const JobId rigid : {52, 53, 54})
      slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
  }
  void alone(const std::string& elastic = "max=8", const std::string& more = "") {
    fill();
    start(elastic, more);
  }
  /// Job 10 holds 4 lent GPUs, and none is idle.
  void grown(const std::string& elastic = "max=16", const std::string& more = "") {
    alone(elastic, more);
    slurm.end(51);
    step();
    take_offers(1, 20);
    cr_assert_eq(controller->jobs().at(10).companions.lent_gpus(), 4);
  }
  void says(control::JobState state, const std::string& no_growth = "") {
    control::Status status;
    status.state = state;
    status.no_growth = no_growth;
    server.says(1, status);
    step();
  }
  void steps(std::int64_t made) {
    control::Status status;
    status.state = control::JobState::active;
    status.steps = made;
    server.says(1, status);
    step();
  }
  void ask(const char* what, int number = 0) {
    control::Ask ask;
    ask.job = 10;
    ask.what = what;
    ask.number = number;
    server.says(++asker, ask);
    step();
  }
  control::Answer why() {
    ask("why");
    return *server.last<control::Answer>();
  }
  std::string waits() { return why().details.string_at("waits_for").value(); }
};

struct Case {
  const char* what;
  std::function<void(Waiter&)> given;
  const char* waits;
};

const Case kCases[] = {
    {"nothing but a decision", [](Waiter& w) { w.start("max=8"), w.slurm.run(51, "node1", 4, ""); },
     "it is offered 4 GPUs, which its swellrun is just taking up"},
    // Causes that somebody has to change, whatever else holds.
    {"drain",
     [](Waiter& w) {
       w.alone();
       w.ask("pause");
       w.controller->set_draining(true);
     },
     "the administrator drains Swell: nothing is lent until that is over"},
    {"pause",
     [](Waiter& w) {
       w.alone();
       w.server.hangs_up(1);
       w.ask("pause");
     },
     "its owner has paused it"},
    {"no agent",
     [](Waiter& w) {
       w.alone();
       w.says(control::JobState::active, "its workers have no handler");
       w.server.hangs_up(1);
       w.step();
     },
     "its swellrun is not connected"},
    {"no handler",
     [](Waiter& w) {
       w.alone();
       w.slurm.find(10)->phase = slurm::JobPhase::suspended;
       w.says(control::JobState::active, "its workers have no handler");
     },
     "its workers have no handler"},
    // Causes in Slurm's record of the job.
    {"suspended",
     [](Waiter& w) {
       w.alone("max=4");
       w.slurm.find(10)->phase = slurm::JobPhase::suspended;
       w.step();
     },
     "Slurm does not run it just now"},
    {"preempted, with a grace",
     [](Waiter& w) {
       w.alone("max=4");
       w.slurm.find(10)->preempt_time = w.slurm.now.taken;
       w.step();
     },
     "Slurm preempts it, and ends it soon"},
    {"LeastRemaining",
     [](Waiter& w) {
       w.alone("max=4");
       w.slurm.find(10)->time_limit_min = 10;
       w.slurm.find(10)->end_time = w.slurm.now.taken + 119;
       w.step();
     },
     "its time limit leaves 119 s, below LeastRemaining (120 s)"},
    {"just LeastRemaining",
     [](Waiter& w) {
       w.alone();
       w.slurm.find(10)->time_limit_min = 10;
       w.slurm.find(10)->end_time = w.slurm.now.taken + 120;
       w.step();
     },
     "no GPU that it could use is idle"},
    {"no time limit, though Slurm has an end",
     [](Waiter& w) {
       w.alone();
       w.slurm.find(10)->end_time = w.slurm.now.taken + 10;
       w.step();
     },
     "no GPU that it could use is idle"},
    {"a constraint that is not understood",
     [](Waiter& w) {
       w.alone("max=4");
       w.slurm.find(10)->features = "a&b|c";
       w.step();
     },
     "its constraint \"a&b|c\" is not understood by Swell: write parentheses where & and | stand "
     "side by side, such as (a|b)&c; it is lent nothing"},
    {"a constraint that no idle node meets",
     [](Waiter& w) {
       w.slurm.now.nodes[0].features = {"a"};
       w.alone();
       w.slurm.find(10)->features = "a|b";
       w.slurm.end(52);
       w.step();
     },
     "no GPU that it could use is idle"},
    {"idle GPUs on a node of several types",
     [](Waiter& w) {
       w.slurm.now.nodes[2].gpus = {{4, "h100", ""}, {4, "v100", ""}};
       w.alone();
       w.slurm.end(53);
       w.step();
     },
     "no GPU that it could use is idle; node3 has several GPU types: none of it is lent"},
    {"only the other type is idle on such a node",
     [](Waiter& w) {
       w.slurm.now.nodes[2].gpus = {{4, "h100", ""}, {4, "v100", ""}};
       w.alone();
       w.slurm.find(53)->gpus[0].gpus = {4, "h100", "0-3"};
       w.step();
     },
     "no GPU that it could use is idle"},
    // Limits.
    {"its owner's limit",
     [](Waiter& w) {
       w.config.max_gpus_per_job = 4;
       w.alone();
       w.ask("max", 4);
     },
     "its owner wants at most 4 GPUs (swell max)"},
    {"the site's limit",
     [](Waiter& w) {
       w.config.max_gpus_per_job = 4;
       w.alone();
     },
     "no job has more than 4 GPUs here (MaxGPUsPerJob)"},
    {"the limit of --elastic", [](Waiter& w) { w.grown("max=8"); },
     "it has all 8 GPUs that --elastic lets it have"},
    {"an account's limit",
     [](Waiter& w) {
       w.config.max_lent_by_account = *control::LentLimits::parse("*:0");
       w.alone();
       w.slurm.find(10)->account = "physics";
       w.step();
     },
     "account physics may have 0 lent GPUs, and has 0"},
    {"no size within its limit", [](Waiter& w) { w.alone("max=7,step=4"); },
     "it may have 7 GPUs in all, and its next size is larger"},
    // Its profile.
    {"LendWithoutProfile=no",
     [](Waiter& w) {
       w.config.lends_without_profile = false;
       w.start();
     },
     "no profile of its program is known (LendWithoutProfile=no)"},
    {"LendWithoutProfile=no, but its user wanted more",
     [](Waiter& w) {
       w.config.lends_without_profile = false;
       w.alone("max=2x", " wanted=8");
     },
     "no GPU that it could use is idle"},
    {"LendWithoutProfile=no under a policy without plans",
     [](Waiter& w) {
       w.config.lends_without_profile = false;
       w.config.policy = "fewest-first";
       w.alone();
     },
     "no GPU that it could use is idle"},
    {"ProfileWait", [](Waiter& w) { w.start("max=8,mode=live"); },
     "its first 20 steps are measured before it is lent GPUs, and it has made none yet; Swell waits "
     "for 119 s more at most (ProfileWait)"},
    {"ProfileWait, in the first steps",
     [](Waiter& w) {
       w.start("max=8,mode=live");
       w.steps(100);
       w.steps(118);
     },
     "its first 20 steps are measured before it is lent GPUs, and it has made 19 of them; Swell waits "
     "for 597 s more at most (ProfileWait)"},
    {"ProfileWait, after fast steps",
     [](Waiter& w) {
       w.start("max=8,mode=live");
       w.steps(1);
       w.steps(40);
     },
     "it has made its first 20 steps, and may still report how fast they were; Swell waits for 7 s "
     "more at most (ProfileWait)"},
    {"the end of ProfileWait",
     [](Waiter& w) {
       w.alone("max=8,mode=live");
       w.step(119);
     },
     "no GPU that it could use is idle"},
    // Causes that pass by themselves.
    {"GrowthInterval", [](Waiter& w) { w.grown(); },
     "it was changed a short while ago, and is not grown for 13 s more (GrowthInterval)"},
    {"stay",
     [](Waiter& w) {
       w.grown("max=16,stay=300");
       w.step(19);
     },
     "it stays as it is for 280 s more (stay=300)"},
    {"stay and a longer GrowthInterval",
     [](Waiter& w) {
       w.config.growth_interval_s = 500;
       w.grown("max=16,stay=300");
     },
     "it was changed a short while ago, and is not grown for 498 s more (GrowthInterval)"},
    {"a reconfiguration",
     [](Waiter& w) {
       w.grown();
       w.step(20);
       w.says(control::JobState::warming);
     },
     "it is WARMING just now"},
    {"a reclaim under way",
     [](Waiter& w) {
       w.grown();
       w.step(20);
       w.slurm.wait(90, 4);
       w.step();
       w.step(12);
     },
     "the lent GPUs that go back are not back yet"},
    // Causes in the idle GPUs.
    {"nothing idle", [](Waiter& w) { w.alone(); }, "no GPU that it could use is idle"},
    {"other GPUs idle",
     [](Waiter& w) {
       w.slurm.now.nodes[1].gpus[0].type = "a100";
       w.alone();
       w.slurm.end(52);
       w.step();
     },
     "no GPU that it could use is idle"},
    {"too few for a step",
     [](Waiter& w) {
       w.fill();
       w.slurm.end(51);
       w.slurm.run(51, "node1", 1, "").gpus[0].gpus.indices = "4";
       w.start("max=8,step=4");
     },
     "of the GPUs that it could use 3 are idle, and its next size takes 4"},
    {"less than a tenth",
     [](Waiter& w) {
       w.fill();
       w.slurm.end(51);
       w.slurm.end(52);
       w.slurm.end(53);
       w.slurm.run(51, "node1", 3, "").gpus[0].gpus.indices = "4-6";
       w.start("max=100");
       w.take_offers(1, 20);
       w.step(20);
       w.slurm.end(54);
       w.slurm.run(54, "node4", 7, "");
       w.step();
     },
     "it could have 1 GPU more, and no job is grown by less than a tenth of what it has"},
    {"no CPUs",
     [](Waiter& w) {
       for (slurm::NodeRecord& node : w.slurm.now.nodes) node.cpus_used = 60;
       w.start();
     },
     "GPUs are idle, but not with 8 CPUs and 1000 MiB beside, as each of its workers has"},
    {"a pending job that takes all",
     [](Waiter& w) {
       w.slurm.wait(91, 8).priority = 1;
       w.slurm.wait(90, 8).priority = 100;
       w.fill();
       w.slurm.end(52);
       w.start("max=16");
     },
     "a pending job needs the GPUs first: job 90"},
    {"pending jobs that take all together",
     [](Waiter& w) {
       w.slurm.wait(91, 4).priority = 1;
       w.slurm.wait(90, 4).priority = 100;
       w.fill();
       w.slurm.end(52);
       w.start("max=16");
     },
     "pending jobs need the GPUs first, the first of them job 90"},
    {"a pending job behind others that fit nowhere",
     [](Waiter& w) {
       for (const JobId blocked : {80, 81, 82, 83, 84}) w.slurm.wait(blocked, 9);
       w.slurm.wait(90, 8).priority = 50;
       for (const JobId behind : {91, 92, 93, 94}) w.slurm.wait(behind, 8).priority = 1;
       w.fill();
       w.slurm.end(52);
       w.start("max=16");
     },
     "a pending job needs the GPUs first: job 90"},
    {"a part of a pending job",
     [](Waiter& w) {
       w.slurm.wait(90, 8).het_leader = 90;
       w.slurm.wait(91, 8).het_leader = 90;
       w.fill();
       w.slurm.end(52);
       w.slurm.end(53);
       w.start("max=16");
     },
     "a pending job needs the GPUs first: job 90"},
    {"a pending job that waits for something else",
     [](Waiter& w) {
       w.slurm.wait(90, 8).waiting = slurm::Waiting::for_other;
       w.alone();
     },
     "no GPU that it could use is idle"},
};

}  // namespace

Test(waits, says_what_a_job_waits_for_the_most_binding_first) {
  for (const Case& each : kCases) {
    Waiter world;
    each.given(world);
    const control::Answer answer = world.why();
    const std::string waits = answer.details.string_at("waits_for").value();
    cr_expect_eq(waits, std::string(each.waits), "%s: %s", each.what, waits.c_str());
    cr_expect_neq(answer.text.find("\nit takes no more now: " + waits), std::string::npos, "%s: %s",
                  each.what, answer.text.c_str());
  }
}

Test(waits, the_limit_of_its_owner_is_said_once) {
  const auto times = [](const std::string& text) {
    const std::string words = "its owner wants at most";
    std::size_t found = 0;
    for (std::size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++found;
    return found;
  };
  Waiter reached;
  reached.alone();
  reached.ask("max", 4);
  const std::string text = reached.why().text;
  cr_assert_eq(times(text), 1u, "%s", text.c_str());
  cr_assert_eq(text.find("no more GPUs that it could have"), text.npos, "%s", text.c_str());
  Waiter beyond;
  beyond.alone();
  beyond.ask("max", 6);
  cr_assert_eq(times(beyond.why().text), 1u, "also where it waits for something else");
}

Test(waits, an_offer_that_failed_is_named_only_until_one_is_taken_up) {
  Waiter world;
  world.alone("max=16");
  world.slurm.end(51);
  world.step();
  control::GrowDone done;
  done.results.push_back(
      {world.server.last<control::Grow>()->offers[0].nonce, 0, "Requested nodes are busy"});
  world.server.says(1, done);
  world.step();
  cr_assert_eq(world.waits(),
               std::string("its last offer failed (busy); the next comes in 9 s at the earliest"));
  world.step(10);
  world.take_offers(1, 20);
  cr_assert_eq(world.waits(), std::string("it was changed a short while ago, and is not grown for "
                                          "13 s more (GrowthInterval)"));
  world.step(20);
  cr_assert_eq(world.waits(), std::string("no GPU that it could use is idle"));
  world.step(3);  // its AdminComment is written
  cr_assert(world.shows(10, "refused=1 why=busy"), "%s", world.comment(10).c_str());
  world.restart();
  world.hello(1, 10, 4, {20});
  cr_assert_eq(world.controller->jobs().at(10).offers.refused().times, 1);
  cr_assert_eq(world.waits(), std::string("no GPU that it could use is idle"));
}

Test(waits, a_job_that_starts_while_the_administrator_drains_is_described) {
  Waiter world;
  world.controller->set_draining(true);
  world.slurm.run(10, "node1", 4, "swell[elastic=max=8,grace=20 basic=4]");
  world.hello(1, 10, 4);
  const std::string text = world.why().text;
  cr_assert_neq(text.find("(decision: worker by worker): only programs of live mode"),
                std::string::npos, "%s", text.c_str());
}
