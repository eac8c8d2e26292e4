// SPDX-License-Identifier: GPL-2.0-or-later
// Types of jobs that wait, as the controller moves them.
#include <criterion/criterion.h>

#include "control/speed_table.h"
#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;

namespace {

constexpr const char* kComment =
    "mine swell[elastic=types=h100/a100,steps=21600 basic=4 lent=0 state=ALLOCATED "
    "speeds=m;10;a100:one-device:4=10;h100:one-device:4=20]";

/// Two nodes: h100 that are taken for six hours, and idle a100; job 20 waits for h100.
struct Waiting : test::World {
  Waiting() {
    slurm.now.nodes.resize(2);
    slurm.now.nodes[1].gpus = {{8, "a100", ""}};
    slurm::JobRecord& running = slurm.run(10, "node1", 8, "");
    running.time_limit_min = 720;
    running.end_time = slurm.now.taken + 6 * 3600;
    slurm.wait(20, 4).admin_comment = kComment;
    slurm.find(20)->uid = 1000;
  }
};

void ask(test::World& world, control::ConnectionId connection, JobId job) {
  control::Ask ask;
  ask.job = job;
  ask.what = "why";
  world.server.says(connection, ask);
  world.step();
}

}  // namespace

Test(types, a_job_that_waits_is_moved_to_the_type_on_which_it_ends_first) {
  Waiting world;
  world.step();
  cr_assert_eq(world.slurm.typed.size(), 1u);
  cr_assert(world.slurm.typed[0] == std::pair(JobId{20}, std::string("a100")));
  const std::string& comment = world.slurm.find(20)->admin_comment;
  cr_assert(comment.starts_with("mine swell[elastic="), "%s", comment.c_str());
  cr_assert_neq(comment.find("chosen=4_a100:_idle_now,_done_in_6_h;"), std::string::npos, "%s",
                comment.c_str());
  cr_assert_neq(comment.find("speeds=m;10;"), std::string::npos);
}

Test(types, it_is_looked_at_again_after_the_interval_alone) {
  Waiting world;
  world.slurm.find(10)->end_time = world.slurm.now.taken + 600;  // the h100 come soon
  for (int i = 0; i < 5; ++i) world.step();
  cr_assert_eq(world.slurm.typed.size(), 0u);
  world.slurm.find(10)->end_time = world.slurm.now.taken + 6 * 3600;
  for (int i = 0; i < 5; ++i) world.step();
  cr_assert_eq(world.slurm.typed.size(), 0u, "not before the interval is over");
  world.step(180);
  cr_assert_eq(world.slurm.typed.size(), 1u);
}

// Slurm's lists of these GPUs would keep the other type.
Test(types, a_job_that_asks_by_task_or_socket_stays_as_it_is) {
  Waiting world;
  world.slurm.find(20)->gpus_by_task_or_socket = true;
  world.step();
  cr_assert_eq(world.slurm.typed.size(), 0u);
  ask(world, 70, 20);
  const std::string why = world.server.last<control::Refused>()->reason;
  cr_assert_neq(why.find("its type stays as it is: it asks for GPUs of each task or socket"),
                std::string::npos, "%s", why.c_str());
}

Test(types, nothing_moves_without_consent_or_while_nothing_is_lent) {
  for (const char* without :
       {"types=h100/a100,", " speeds=m;10;a100:one-device:4=10;h100:one-device:4=20"}) {
    Waiting world;
    std::string& comment = world.slurm.find(20)->admin_comment;
    comment.erase(comment.find(without), std::string(without).size());
    world.step();
    cr_assert_eq(world.slurm.typed.size(), 0u, "%s", without);
  }
  Waiting held;
  held.slurm.find(20)->waiting = slurm::Waiting::for_other;
  held.step();
  cr_assert_eq(held.slurm.typed.size(), 0u);
  Waiting drained;
  drained.controller->set_draining(true);
  drained.step();
  cr_assert_eq(drained.slurm.typed.size(), 0u);
}

Test(types, a_version_of_slurm_that_cannot_change_types_is_not_asked_and_why_says_so) {
  Waiting world;
  world.slurm.changes_types = false;
  world.step();
  cr_assert_eq(world.slurm.typed.size(), 0u);
  ask(world, 1, 20);
  cr_assert_neq(world.server.last<control::Refused>()->reason.find(
                    "this version of Slurm does not let it change its type"),
                std::string::npos);
}

Test(types, a_slurm_that_refuses_is_asked_again_later_and_nothing_else_suffers) {
  Waiting world;
  world.slurm.refuses_types = true;
  world.step();
  cr_assert_eq(world.slurm.typed.size(), 1u);
  cr_assert_eq(world.slurm.find(20)->admin_comment, std::string(kComment));
  world.slurm.refuses_types = false;
  world.step(200);
  cr_assert_eq(world.slurm.typed.size(), 2u);
  cr_assert_eq(world.slurm.find(20)->gpus_per_node.type, std::string("a100"));
}

Test(types, why_tells_the_types_of_a_job_that_waits_and_of_one_that_runs) {
  Waiting world;
  world.slurm.refuses_types = true;
  world.step();
  world.server.says(1, control::Ask{.job = 20, .what = "why"});
  world.step();
  const auto refused = world.server.last<control::Refused>();
  cr_assert(refused);
  cr_assert_neq(
      refused->reason.find("it asks for h100, by its table: 4 a100: idle now, done in 6 h"),
      std::string::npos, "%s", refused->reason.c_str());
  slurm::JobRecord& job = world.slurm.run(30, "node2", 4, kComment);
  job.admin_comment.insert(job.admin_comment.size() - 1,
                           " chosen=4_a100:_idle_now:_starts_on_a100");
  world.step();
  ask(world, 2, 30);
  const auto answer = world.server.last<control::Answer>();
  cr_assert(answer);
  cr_assert_neq(answer->text.find("its GPU type: 4 a100: idle now: starts on a100"),
                std::string::npos, "%s", answer->text.c_str());
  cr_assert_neq(world.controller->jobs().at(30).tag().text().find("speeds=m;10;"),
                std::string::npos, "a running job keeps its table");
}

Test(types, a_table_of_another_model_is_not_used_and_why_says_so) {
  const auto why = [](const char* model, bool& is_used) {
    test::World world;
    world.slurm.run(10, "node2", 4, kComment);
    control::Hello hello = test::hello_of(10, 4);
    hello.model = Json::object({{"name", model},
                                {"layers", 8},
                                {"hidden", 1024},
                                {"heads", 16},
                                {"sequence", 1024},
                                {"global_batch", 64}});
    world.server.says(1, hello);
    world.step();
    is_used = !world.controller->jobs().at(10).description.speeds().empty();
    ask(world, 2, 10);
    const auto answer = world.server.last<control::Answer>();
    return answer ? answer->text : std::string();
  };
  bool is_used = false;
  cr_assert_eq(why("m", is_used).find("its table"), std::string::npos);
  cr_assert(is_used);
  const std::string text = why("other", is_used);
  cr_assert_neq(text.find("its table is of model m, and it trains other"), std::string::npos, "%s",
                text.c_str());
  cr_assert_not(is_used);
}
