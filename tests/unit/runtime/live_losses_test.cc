// SPDX-License-Identifier: GPL-2.0-or-later
// Programs and shims that are lost: kill -9 in each phase of a switch, and what comes back from
// snapshots.
#include <criterion/criterion.h>
#include <set>

#include "runtime/live_steps.h"

using namespace live_steps;

namespace {

/// Returns Swell's files in /dev/shm; other programs of the machine come and go.
std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& one : support::fs::directory_iterator("/dev/shm"))
    if (one.path().filename().string().find("swell") != std::string::npos) names.insert(one.path());
  return names;
}

}  // namespace

/// Two ranks on two nodes train 450 steps with a snapshot each 100, and end; one's shim is lost. As
/// ranks of the example keep no step with each other, both have come to the same end. Returns how
/// the run went on over the other shim.
static SwitchReport lose_a_node(bool apart) {
  LiveJob job(SWELL_EXAMPLE, 5, {"450", "4", "12", "10", "1000"}, apart);
  job.variables = {"SWELL_SNAPSHOT_EVERY=100"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const std::vector<Shim> from{job.shims({}, 0)[0], job.shims({}, 4)[0]};
  const auto old = job.start_on({2, 1, 1, 0}, {0, 4});
  cr_assert(coordinator.begin(from, 1).ok());
  for (const pid_t pid : old) cr_assert_eq(job.wait(pid), 0);
  job.keepers[4].reset();
  job.arguments = {"3000", "4", "12", "10", "0"};
  const auto next = job.start({});
  auto report = coordinator.recover(from, job.shims({}), 2);
  cr_assert(report.ok(), "%s", report ? "" : report.error().message().c_str());
  cr_assert(report->committed, "%s", report->summary().c_str());
  cr_assert_eq(job.wait(next[0]), 0);
  cr_assert(job.state(job.shims({})) == unresized("3000"));
  return *report;
}

Test(live, a_lost_node_s_state_comes_back_from_its_partner, .timeout = 300) {
  // The partner may not have had the last one yet; the next is not begun before it has.
  const auto step = lose_a_node(true).step;
  cr_assert(step == 300 || step == 400, "step %lu", static_cast<unsigned long>(step));
}

Test(live, on_one_host_snapshots_are_copied_from_arena_to_arena, .timeout = 300) {
  const auto step = lose_a_node(false).step;
  cr_assert(step == 300 || step == 400, "step %lu", static_cast<unsigned long>(step));
}

Test(live, snapshots_of_lent_ranks_outlive_all_lent_shims, .timeout = 300) {
  // Four ranks of one host, of which the last two are lent and go together.
  LiveJob job(SWELL_EXAMPLE, 4, {"450", "4", "12", "10", "1000"});
  job.variables = {"SWELL_SNAPSHOT_EVERY=100"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const PlanShape four{4, 1, 1, 0};
  auto shims = job.shims(four);
  shims[2].is_lent = shims[3].is_lent = true;
  const auto old = job.start(four);
  cr_assert(coordinator.begin(shims, 1).ok());
  for (const pid_t pid : old) cr_assert_eq(job.wait(pid), 0);
  job.keepers[2].reset();
  job.keepers[3].reset();
  job.arguments = {"3000", "4", "12", "10", "0"};
  const PlanShape two{2, 1, 1, 0};
  const auto next = job.start(two);
  const auto report = coordinator.recover(shims, job.shims(two), 2);
  cr_assert(report.ok(), "%s", report ? "" : report.error().message().c_str());
  cr_assert(report->committed && report->step >= 300, "%s", report->summary().c_str());
  for (const pid_t pid : next) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(job.shims(two)) == unresized("3000"));
}

Test(live, where_all_ranks_are_lent_a_shim_that_waits_keeps_their_snapshots, .timeout = 300) {
  // A plan leaves the job's own shims 0 and 1 out; shims 2 and 3 are lent.
  LiveJob job(SWELL_EXAMPLE, 4, {"450", "4", "12", "10", "1000"});
  job.variables = {"SWELL_SNAPSHOT_EVERY=100"};
  const PlanShape two{2, 1, 1, 0};
  const auto own = job.shims(two);
  auto lent = job.shims(two, 2);
  lent[0].is_lent = lent[1].is_lent = true;
  auto with_own = options();
  with_own.waiting = own;
  Coordinator coordinator(LiveJob::cluster(), with_own);
  const auto old = job.start(two, 2);
  cr_assert(coordinator.begin(lent, 1).ok());
  for (const pid_t pid : old) cr_assert_eq(job.wait(pid), 0);
  job.keepers[2].reset();
  job.keepers[3].reset();
  job.arguments = {"3000", "4", "12", "10", "0"};
  const auto next = job.start(two);
  const auto report = coordinator.recover(own, own, 2);
  cr_assert(report.ok(), "%s", report ? "" : report.error().message().c_str());
  cr_assert(report->committed && report->step >= 300, "%s", report->summary().c_str());
  for (const pid_t pid : next) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(own) == unresized("3000"));
}

Test(live, a_recovery_goes_on_from_the_last_step_of_a_stopped_program, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 1, kForEver);
  job.variables = {"SWELL_SNAPSHOT_EVERY=1000000000"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  wait_for_steps(job, 0, 10);
  auto channel = Channel::connect_unix(job.keepers[0]->unix_socket()).value();
  cr_assert(ask(channel, Op::request, swell::ByteWriter().put(kStopRequest).take()).ok());
  cr_assert_eq(job.wait(programs[0]), 0);
  job.start({});
  const auto report = coordinator.recover(job.shims({}), job.shims({}), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_geq(report.step, 10u);
}

Test(live, without_snapshots_there_is_nothing_to_recover_from, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 1, kForEver);
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  wait_for_steps(job, 0, 10);
  job.stop(programs[0]);
  cr_assert_eq(coordinator.recover(job.shims({}), job.shims({}), 2).error().message(),
               "no snapshot has every rank's part");
}

/// kill -9 of one program as a phase begins.
static void kill_in(Phase phase, bool old, bool commits) {
  const auto before = shared_memory();
  std::string folder;
  {
    LiveJob job(SWELL_EXAMPLE, 4, kForEver);
    folder = job.folder();
    const PlanShape from{2, 1, 1, 0}, to{2, 2, 1, 0};
    const auto old_programs = job.start(from);
    std::vector<pid_t> new_programs;
    auto with_kill = options();
    with_kill.prepare_limit = 10s;
    with_kill.on_phase = [&](Phase begins) {
      if (begins == phase) job.stop(old ? old_programs[1] : new_programs[1]);
    };
    Coordinator coordinator(LiveJob::cluster(), with_kill);
    cr_assert(coordinator.begin(job.shims(from), 1).ok());
    wait_for_steps(job, 0, 5);
    new_programs = job.start(to);
    const auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2);
    const bool committed = report.ok() && report->committed;
    cr_assert_eq(committed, commits, "%s",
                 report ? report->summary().c_str() : report.error().message().c_str());
    // Never a mixture: all shims are in one generation.
    for (int shim = 0; shim < (commits ? 4 : 2); ++shim)
      cr_assert_eq(job.status(shim).generation, commits ? 2 : 1);
    if (commits) cr_assert_eq(job.wait(old_programs[0]), 0);
    // Whoever was not killed trains on, old generation or new.
    wait_for_steps(job, 0, job.status(0).step);
    if (!commits) cr_assert_eq(job.status(2).prepared, 0);
  }
  cr_assert_not(support::fs::exists(folder));
  cr_assert(shared_memory() == before);
}

Test(live, a_new_worker_killed_in_prepare_leaves_the_old_generation, .timeout = 300) {
  kill_in(Phase::prepare, false, false);
}
Test(live, a_new_worker_killed_in_quiesce_leaves_the_old_generation, .timeout = 300) {
  kill_in(Phase::quiesce, false, false);
}
Test(live, a_new_worker_killed_in_move_leaves_the_old_generation, .timeout = 300) {
  kill_in(Phase::move, false, false);
}
Test(live, a_new_worker_killed_in_commit_is_lost_to_the_new_generation, .timeout = 300) {
  kill_in(Phase::commit, false, true);
}
Test(live, an_old_worker_killed_in_prepare_leaves_the_others_in_the_old_generation,
     .timeout = 300) {
  kill_in(Phase::prepare, true, false);
}
Test(live, an_old_worker_killed_in_quiesce_leaves_the_others_in_the_old_generation,
     .timeout = 300) {
  kill_in(Phase::quiesce, true, false);
}
Test(live, an_old_worker_killed_in_move_has_left_whole_state_behind, .timeout = 300) {
  kill_in(Phase::move, true, true);
}
Test(live, an_old_worker_killed_in_commit_is_not_missed, .timeout = 300) {
  kill_in(Phase::commit, true, true);
}
