// SPDX-License-Identifier: GPL-2.0-or-later
// Running jobs that move to another GPU type, as the controller moves them.
#include <criterion/criterion.h>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;

namespace {

constexpr const char* kComment =
    "swell[elastic=types=h100/a100,steps=36000,grace=20,table=t.json,switch=requeue basic=4 lent=0 "
    "state=ACTIVE speeds=m;10;a100:one-device:4=10;h100:one-device:4=20]";

/// Node 1 has idle h100, node 2 a100 on which job 30 trains, for ten hours yet.
struct Running : test::World {
  explicit Running(const std::string& comment = kComment) {
    slurm.now.nodes.resize(2);
    slurm.now.nodes[1].gpus = {{8, "a100", ""}};
    config.type_interval_s = 2;
    restart();
    slurm::JobRecord& job = slurm.run(30, "node2", 4, comment);
    job.gpus = {{"node2", {4, "a100", "0-3"}}};
    job.gpus_per_node = {4, "a100", ""};
    job.start_time = slurm.now.taken - 60;
    job.has_script = job.may_requeue = true;
  }
  void trains() {
    hello(1, 30, 4);
    says(control::JobState::active);
  }
  /// `order`: of the Requeue that it answers; 0: of the last one.
  void says(control::JobState state, bool has_left = false, const std::string& not_requeued = "",
            std::int64_t order = 0) {
    const auto* last = server.last<control::Requeue>();
    control::Status status;
    status.state = state;
    status.requeue_order = order != 0 || last == nullptr ? order : last->order;
    status.workers = 4;
    status.has_left = has_left;
    status.not_requeued = not_requeued;
    server.says(1, status);
    step();
  }
  /// It has been asked to leave, and its workers have left.
  void leaves() {
    trains();
    step(3);
    cr_assert(server.last<control::Requeue>());
    cr_assert_not(server.last<control::Requeue>()->called_off);
    says(control::JobState::switching, true);
  }
  std::string why() {
    control::Ask ask;
    ask.job = 30;
    ask.what = "why";
    static control::ConnectionId asker = 500;
    server.says(++asker, ask);
    step();
    const auto* answer = server.last<control::Answer>();
    return answer != nullptr ? answer->text : "";
  }
  /// Slurm has requeued it.
  void waits() {
    slurm::JobRecord& job = *slurm.find(30);
    job.phase = slurm::JobPhase::pending;
    job.priority = 100;
    job.waiting = slurm::Waiting::for_other;  // BeginTime
    job.nodes.clear();
    job.gpus.clear();
    server.hangs_up(1);
    step();
  }
};

#define says_why(world, words)                                              \
  do {                                                                      \
    const std::string text = (world).why();                                 \
    cr_assert_neq(text.find(words), std::string::npos, "%s", text.c_str()); \
  } while (false)

}  // namespace

Test(type_switcher, a_job_moves_where_it_pays_and_starts_on_the_other_type) {
  Running world;
  world.leaves();
  cr_assert(world.slurm.requeued == std::vector<JobId>{30});
  world.waits();
  cr_assert_eq(world.slurm.typed.size(), 1u);
  cr_assert_eq(world.slurm.typed[0].second, std::string("h100"));
  cr_assert(world.slurm.begin_at_once);
  const std::string comment = world.comment(30);
  cr_assert_neq(comment.find("chosen=moved_from_a100_to_h100"), std::string::npos, "%s",
                comment.c_str());
  cr_assert_neq(comment.find("moved=1000000"), std::string::npos, "%s", comment.c_str());
  slurm::JobRecord& job = *world.slurm.find(30);
  job.phase = slurm::JobPhase::running;
  job.nodes = {"node1"};
  job.gpus = {{"node1", {4, "h100", "0-3"}}};
  job.start_time = world.slurm.now.taken;
  world.step();
  world.trains();
  says_why(world,
           "its GPU type: moved from a100 to h100 while it ran: 4 h100 are 2.00 times as fast");
  world.step(10);
  cr_assert_eq(world.slurm.requeued.size(), 1u, "once");
}

Test(type_switcher, it_is_moved_once_an_hour) {
  const auto with = [](const char* moved) {
    std::string comment = kComment;
    return comment.insert(comment.size() - 1, moved);
  };
  Running late(with(" moved=999000"));
  late.trains();
  late.step(3);
  cr_assert_eq(late.server.count<control::Requeue>(), 0u);
  says_why(late, "it stays on a100: it was moved 17 min ago, and is moved once in 1 h");
  Running again(with(" moved=996000"));
  again.leaves();
}

Test(type_switcher, gpus_that_a_pending_job_needs_are_not_taken) {
  Running world;
  world.slurm.wait(40, 8);
  world.trains();
  world.step(3);
  cr_assert_eq(world.server.count<control::Requeue>(), 0u);
  says_why(world, "4 h100 would be faster, and are not idle, or a pending job needs them");
  // One that comes while the workers leave is served first, and the job trains on.
  Running late;
  late.trains();
  late.step(3);
  cr_assert_eq(late.server.count<control::Requeue>(), 1u);
  late.slurm.wait(40, 8);
  late.says(control::JobState::switching, true);
  cr_assert(late.slurm.requeued.empty());
  cr_assert(late.server.last<control::Requeue>()->called_off);
  says_why(late, "ago: the h100 are needed by others; it is tried once in 1 h");
}

Test(type_switcher, a_move_that_does_not_pay_is_left_out) {
  std::string comment = kComment;
  comment.replace(comment.find("steps=36000"), 11, "steps=100");
  Running brief(comment);
  brief.trains();
  brief.step(3);
  cr_assert_eq(brief.server.count<control::Requeue>(), 0u);
  says_why(brief, "which does not pay");
  comment = kComment;
  comment.replace(comment.find("h100:one-device:4=20"), 20, "h100:one-device:4=5");
  Running slower(comment);
  slower.trains();
  says_why(slower, "no other type of types= is faster");
}

// Ten per cent of ten minutes are not worth a move, but for the deadline.
Test(type_switcher, a_deadline_that_only_the_other_type_keeps_makes_a_small_gain_worth_it) {
  const auto moves = [](const char* deadline) {
    std::string comment = kComment;
    comment.replace(comment.find("steps=36000"), 11, std::string("steps=1060") + deadline);
    comment.replace(comment.find("h100:one-device:4=20"), 20, "h100:one-device:4=11");
    Running world(comment);
    world.trains();
    world.step(3);
    return world.server.count<control::Requeue>();
  };
  cr_assert_eq(moves(""), 0u);
  cr_assert_eq(moves(",deadline=1970-01-12T14:03:15Z"), 1u);  // 995 s from then
  cr_assert_eq(moves(",deadline=1970-01-12T14:20:00Z"), 0u, "it is kept here");
}

Test(type_switcher, lent_gpus_leave_first) {
  Running world;
  const char* words = "companions=31:node1:2:0-1";
  std::string& comment = world.slurm.find(30)->admin_comment;
  comment.insert(comment.size() - 1, std::string(" ") + words);
  slurm::JobRecord& lent =
      world.slurm.run(31, "node1", 2, control::Tag{{"parent", "30"}, {"grant", "n"}}.text());
  lent.start_time = world.slurm.now.taken;
  world.hello(1, 30, 4, {31});
  world.says(control::JobState::active);
  world.step(3);
  cr_assert_eq(world.server.count<control::Shrink>(), 1u);
  const std::size_t grown = world.server.count<control::Grow>();
  cr_assert_eq(world.server.count<control::Requeue>(), 0u);
  says_why(world, "it moves from a100 to h100, and its lent GPUs go back first");
  world.slurm.end(31);
  world.step();
  world.says(control::JobState::active);
  cr_assert_eq(world.server.count<control::Requeue>(), 1u);
  cr_assert_eq(world.server.count<control::Grow>(), grown, "it is lent nothing meanwhile");
}

Test(type_switcher, what_slurm_or_the_program_does_not_allow_is_said) {
  const auto stays = [](auto change, const char* words) {
    Running world;
    change(world);
    world.trains();
    world.step(3);
    cr_assert_eq(world.server.count<control::Requeue>(), 0u, "%s", words);
    says_why(world, words);
  };
  stays([](Running& w) { w.slurm.changes_types = false; }, "this version of Slurm does not let");
  stays([](Running& w) { w.slurm.find(30)->may_requeue = false; }, "Slurm may not requeue it");
  stays([](Running& w) { w.slurm.find(30)->has_script = false; }, "jobs of sbatch alone");
  stays([](Running& w) { w.slurm.find(30)->gpus_by_task_or_socket = true; }, "each task or socket");
  stays([](Running& w) { w.slurm.find(30)->required_nodes = "node2"; },
        "--nodelist names its nodes");
  Running refuses;
  refuses.trains();
  refuses.step(3);
  refuses.says(control::JobState::active, false, "its program does not handle USR1");
  says_why(refuses, "ago: its program does not handle USR1");
}

// The agent has not read the order yet, or repeats what it said of the one before.
Test(type_switcher, an_answer_to_an_earlier_order_is_not_one_to_this) {
  Running world;
  world.trains();
  world.step(3);
  const std::int64_t earlier = world.server.last<control::Requeue>()->order;
  world.says(control::JobState::active, false, "its workers did not leave");
  says_why(world, "ago: its workers did not leave");
  world.slurm.now.taken += 3600;
  world.step(3);
  cr_assert_gt(world.server.last<control::Requeue>()->order, earlier);
  world.says(control::JobState::active, false, "its workers did not leave", earlier);
  says_why(world, "it moves from a100 to h100, and its workers save and leave");
  world.says(control::JobState::switching, true, "", earlier);
  cr_assert(world.slurm.requeued.empty());
  world.says(control::JobState::switching, true);
  cr_assert(world.slurm.requeued == std::vector<JobId>{30});
}

// In the same second.
Test(type_switcher, each_order_has_its_own_number) {
  Running world;
  world.config.switch_interval_s = 0;
  world.restart();
  world.trains();
  world.step(3);
  const std::int64_t earlier = world.server.last<control::Requeue>()->order;
  world.says(control::JobState::active, false, "its workers did not leave");
  world.step(3);
  world.step(3);
  cr_assert_eq(world.server.count<control::Requeue>(), 3u, "order, called off, order");
  cr_assert_eq(world.server.last<control::Requeue>()->order, earlier + 1);
}

Test(type_switcher, what_others_took_meanwhile_sends_it_back_to_what_it_had) {
  Running world;
  world.leaves();
  world.waits();
  slurm::JobRecord& job = *world.slurm.find(30);
  job.waiting = slurm::Waiting::for_resources;
  world.slurm.run(50, "node1", 8, "");
  world.step(6);
  cr_assert_eq(world.slurm.typed.size(), 2u);
  cr_assert_eq(world.slurm.typed[1].second, std::string("a100"));
  cr_assert_neq(world.comment(30).find("chosen=back_on_a100"), std::string::npos);
}

// Its owner holds it, or has it wait for something else: no GPUs are set aside, and no other job
// waits for it to move.
Test(type_switcher, a_requeued_job_that_is_not_to_start_is_given_up) {
  // Returns how often a job that waits for its begin time is told to ask for a type.
  const auto asks = [](Running& world, int seconds) {
    const std::size_t before = world.slurm.typed.size();
    for (int i = 0; i < seconds; ++i) world.step();
    return world.slurm.typed.size() - before;
  };
  Running late;
  late.leaves();
  late.waits();
  cr_assert_gt(asks(late, 290), 2u, "it asks for either type");
  asks(late, 20);
  cr_assert_eq(asks(late, 100), 0u);
  Running held;
  held.leaves();
  held.waits();
  held.slurm.find(30)->priority = 0;
  held.step();
  held.slurm.find(30)->priority = 100;
  cr_assert_eq(asks(held, 100), 0u, "its move is over");
}

Test(type_switcher, a_later_run_that_fails_is_not_requeued) {
  Running world;
  world.trains();
  world.step(3);
  world.server.hangs_up(1);
  world.step();
  slurm::JobRecord& job = *world.slurm.find(30);
  job.phase = slurm::JobPhase::ended;
  job.state_text = "FAILED";
  job.start_time += 30;
  world.step();
  cr_assert(world.slurm.requeued.empty());
}

// kill -9 of swellrun: the job fails, and its training has said nothing of its end.
Test(type_switcher, a_job_that_fails_while_it_leaves_is_requeued_and_one_that_ends_is_not) {
  const auto requeued = [](const char* state, bool says_bye) {
    Running world;
    world.trains();
    world.step(3);
    cr_assert_eq(world.server.count<control::Requeue>(), 1u);
    if (says_bye) world.server.says(1, control::Bye{1});
    world.server.hangs_up(1);
    world.step();
    slurm::JobRecord& job = *world.slurm.find(30);
    job.phase = slurm::JobPhase::ended;
    job.state_text = state;
    world.step();
    return world.slurm.requeued.size();
  };
  cr_assert_eq(requeued("FAILED", false), 1u);
  cr_assert_eq(requeued("FAILED", true), 0u);
  cr_assert_eq(requeued("CANCELLED", false), 0u);
  cr_assert_eq(requeued("COMPLETED", false), 0u);
}

Test(type_switcher, after_a_crash_of_slurmctld_workers_that_wait_train_on) {
  Running world;
  world.trains();
  world.step(3);
  world.restart();
  world.step();
  world.hello(1, 30, 4);
  world.says(control::JobState::switching, true);
  cr_assert(world.slurm.requeued.empty());
  cr_assert(world.server.last<control::Requeue>()->called_off);
}
