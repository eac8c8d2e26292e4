// SPDX-License-Identifier: GPL-2.0-or-later
// Switches among real processes on this host: examples/regression under shims of this process.
#include <criterion/criterion.h>
#include <set>
#include <thread>

#include "support/live_job.h"

using namespace swell;
using namespace swell::runtime;
using support::LiveJob;
using support::PlanShape;

namespace {

using Phase = SwitchMachine::Phase;
using namespace std::chrono_literals;

Coordinator::Options options() {
  Coordinator::Options made;
  made.key = LiveJob::kKey;
  made.step_lead = 100;  // ranks of the example run free, at 1 ms a step
  made.quiesce_limit = 20s;
  return made;
}

const std::vector<std::string> kForEver{"1000000000", "4", "12", "10", "1000"};

/// What of Swell is in /dev/shm; other programs of the machine come and go.
std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& one : support::fs::directory_iterator("/dev/shm"))
    if (one.path().filename().string().find("swell") != std::string::npos) names.insert(one.path());
  return names;
}

/// Waits until a rank has passed a boundary beyond `step`; fails after 30 s.
void wait_for_steps(const LiveJob& job, int shim, std::uint64_t step) {
  for (const auto end = std::chrono::steady_clock::now() + 30s;
       std::chrono::steady_clock::now() < end;) {
    if (job.status(shim).step > step) return;
    std::this_thread::yield();
  }
  cr_assert(false, "shim %d stands at step %lu", shim,
            static_cast<unsigned long>(job.status(shim).step));
}

/// What a run of so many steps without any switch ends with.
std::map<std::string, std::vector<double>> unresized(const std::string& steps) {
  LiveJob job(SWELL_EXAMPLE, 1, {steps});
  const auto programs = job.start({});
  Coordinator coordinator(LiveJob::cluster(), options());
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  cr_assert_eq(job.wait(programs[0]), 0);
  return job.state(job.shims({}));
}

}  // namespace

Test(live, ten_plans_in_a_row_end_bitwise_as_a_run_without_any_switch, .timeout = 120) {
  // Up and down in each dimension, uneven shards (12 rows over 5), ZeRO on and off.
  const PlanShape plans[] = {{1, 1, 1, 0}, {2, 1, 1, 0}, {2, 2, 1, 0}, {1, 2, 2, 0}, {1, 2, 2, 1},
                             {1, 4, 2, 1}, {1, 1, 5, 0}, {4, 1, 2, 0}, {2, 2, 2, 1}, {1, 1, 1, 0}};
  // Each switch falls somewhere in the run; the last plan has steps left to do.
  LiveJob job(SWELL_EXAMPLE, 8, {"30000", "4", "12", "10", "200"});
  Coordinator coordinator(LiveJob::cluster(), options());
  auto programs = job.start(plans[0]);
  const auto begun = coordinator.begin(job.shims(plans[0]), 1);
  cr_assert(begun.ok());
  std::uint64_t last = 0;
  for (std::size_t i = 1; i < std::size(plans); ++i) {
    const auto next = job.start(plans[i]);
    const auto report =
        coordinator.switch_plan(job.shims(plans[i - 1]), job.shims(plans[i]), i + 1);
    cr_assert(report.ok(), "plan %zu: %s", i, report ? "" : report.error().message().c_str());
    cr_assert(report->committed, "plan %zu: %s", i, report->summary().c_str());
    cr_assert_gt(report->step, last);
    last = report->step;
    for (pid_t pid : programs) cr_assert_eq(job.wait(pid), 0, "the old epoch's programs leave");
    programs = next;
  }
  cr_assert_lt(last, 30000, "the last plan trained too");
  for (pid_t pid : programs) cr_assert_eq(job.wait(pid), 0);
  const auto state = job.state(job.shims(plans[std::size(plans) - 1]));
  const auto expected = unresized("30000");
  cr_assert_eq(state.size(), 16);
  cr_assert(state == expected, "a value differs from that of the run without switches");
}

Test(live, what_stays_is_not_copied_and_what_leaves_is_freed, .timeout = 60) {
  LiveJob job(SWELL_EXAMPLE, 2, {"1000000000", "8", "64", "512", "1000"});  // 8 MiB a run
  auto near = options();
  near.step_lead = 2;  // one rank needs no more
  Coordinator coordinator(LiveJob::cluster(), near);
  const auto old = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  wait_for_steps(job, 0, 1);
  const std::uint64_t state = 8 * 64 * 512 * 8 * 4;
  job.start({2, 1, 1, 0});
  const auto report = coordinator.switch_plan(job.shims({}), job.shims({2, 1, 1, 0}), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  std::map<std::string, std::uint64_t> paths;
  for (const PathBytes& path : report.paths) paths[path.path] = path.bytes;
  cr_assert_eq(paths["in place"], state / 2);
  cr_assert_eq(paths["mapped arena"], state / 2);
  cr_assert_eq(paths.size(), 2);
  cr_assert_eq(report.max_extra_bytes, state / 2, "only the shim that receives takes memory");
  cr_assert_eq(job.wait(old[0]), 0);
  cr_assert_lt(job.keepers[0]->used_bytes(), state / 2 + 65536, "the other half was given back");
}

Test(live, more_memory_than_the_bound_is_refused_before_anything_stops, .timeout = 60) {
  LiveJob job(SWELL_EXAMPLE, 2, kForEver);
  auto bounded = options();
  bounded.max_extra_bytes = 4096;
  Coordinator coordinator(LiveJob::cluster(), bounded);
  job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  const auto next = job.start({2, 1, 1, 0});
  const auto report = coordinator.switch_plan(job.shims({}), job.shims({2, 1, 1, 0}), 2).value();
  cr_assert_not(report.committed);
  cr_assert_neq(report.why.find("the bound is 4096"), std::string::npos, "%s", report.why.c_str());
  for (pid_t pid : next)
    cr_assert_neq(job.wait(pid), 0, "programs of an epoch that does not come leave");
  wait_for_steps(job, 0, job.status(0).step);
}

Test(live, shims_of_different_hosts_move_state_over_tcp, .timeout = 60) {
  const PlanShape from{1, 1, 2, 0}, to{1, 2, 3, 1};
  LiveJob job(SWELL_EXAMPLE, 6, {"6000", "4", "12", "10", "200"}, true);
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto old = job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  const auto programs = job.start(to);
  const auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  std::map<std::string, std::uint64_t> paths;
  for (const PathBytes& path : report.paths) paths[path.path] = path.bytes;
  cr_assert_gt(paths["tcp"], 0);
  cr_assert(paths.contains("tcp") && paths.size() <= 3, "%s", report.summary().c_str());
  for (pid_t pid : programs) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(job.shims(to)) == unresized("6000"));
}

Test(live, after_the_coordinator_is_lost_in_the_middle_another_settles, .timeout = 60) {
  const PlanShape from{1, 1, 1, 0}, to{2, 1, 1, 0};
  LiveJob job(SWELL_EXAMPLE, 2, kForEver);
  Coordinator coordinator(LiveJob::cluster(), options());
  job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  wait_for_steps(job, 0, 5);
  job.start(to);
  // As a coordinator that dies after its first commit: the steps of a switch, one shim at a time.
  const auto shims = job.shims(to);
  std::vector<Channel> channels;
  for (const Shim& shim : shims)
    channels.push_back(Channel::connect_unix(shim.unix_socket).value());
  Prepare prepare;
  prepare.epoch = 2;
  prepare.cluster = LiveJob::cluster().to_json().dump();
  prepare.max_extra_bytes = 1 << 30;
  prepare.from.push_back({{0, 0},
                          job.status(0).endpoint,
                          read_table(ask(channels[0], Op::table, {}).value().body).value().second});
  for (int i = 0; i < 2; ++i) {
    const auto body = ask(channels[static_cast<std::size_t>(i)], Op::wait_ready,
                          Writer().put<std::uint32_t>(20'000).take())
                          .value()
                          .body;
    prepare.to.push_back({{0, i}, read_entries(body).value()});
  }
  for (int i = 0; i < 2; ++i) {
    prepare.old_rank = i == 0 ? 0 : -1;
    prepare.new_rank = i;
    cr_assert(ask(channels[static_cast<std::size_t>(i)], Op::prepare, write(prepare)).ok());
  }
  std::uint64_t step = 0;
  for (Channel& channel : channels) {
    const auto at = Reader(ask(channel, Op::quiesce,
                               Writer().put<std::uint64_t>(6).put<std::uint32_t>(20'000).take())
                               .value()
                               .body)
                        .get<std::uint64_t>();
    if (at != kNoStep) step = at;
  }
  for (Channel& channel : channels) cr_assert(ask(channel, Op::move, {}).ok());
  cr_assert(ask(channels[0], Op::commit, Writer().put<std::uint64_t>(2).put(step).take()).ok());
  channels.clear();  // it dies
  cr_assert_eq(job.status(1).prepared, 2, "what has moved waits for a decision");
  cr_assert_eq(coordinator.settle(shims).value(), 2);
  cr_assert_eq(job.status(1).epoch, 2);
  wait_for_steps(job, 1, step);
}

/// Calls a switch off as a phase begins; returns whether that was certain, and whether all shims
/// hold the new epoch.
static std::pair<bool, bool> call_off_in(Phase phase) {
  LiveJob job(SWELL_EXAMPLE, 4, kForEver);
  const PlanShape from{2, 1, 1, 0}, to{2, 2, 1, 0};
  Coordinator* other = nullptr;
  bool certain = false;
  auto with_end = options();
  with_end.on_phase = [&](Phase begins) {
    if (begins == phase) certain = other->call_off();
  };
  Coordinator coordinator(LiveJob::cluster(), with_end);
  other = &coordinator;
  job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  wait_for_steps(job, 0, 5);
  job.start(to);
  const auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2);
  const bool committed = report.ok() && report->committed;
  for (int shim = 0; shim < (committed ? 4 : 2); ++shim)
    cr_assert_eq(job.status(shim).epoch, committed ? 2 : 1);
  wait_for_steps(job, 0, job.status(0).step);
  return {certain, committed};
}

Test(live, what_is_called_off_before_the_commit_is_never_committed, .timeout = 60) {
  cr_assert(call_off_in(Phase::quiesce) == std::pair(true, false));
  cr_assert(call_off_in(Phase::move) == std::pair(true, false));
}

Test(live, calling_off_in_the_commit_comes_too_late_and_says_so, .timeout = 60) {
  cr_assert(call_off_in(Phase::commit) == std::pair(false, true));
}

/// Two ranks on two nodes train with snapshots; then both programs are killed, and one's shim with
/// them. Returns how the run went on over the other shim.
static SwitchReport lose_a_node(bool apart) {
  LiveJob job(SWELL_EXAMPLE, 5, {"3000", "4", "12", "10", "1000"}, apart);
  job.variables = {"SWELL_SNAPSHOT_EVERY=100"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const std::vector<Shim> from{job.shims({}, 0)[0], job.shims({}, 4)[0]};
  const PlanShape plan{2, 1, 1, 0};
  const auto old = job.start_on(plan, {0, 4});
  cr_assert(coordinator.begin(from, 1).ok());
  wait_for_steps(job, 0, 450);
  wait_for_steps(job, 4, 450);
  for (const pid_t pid : old) job.stop(pid);
  job.keepers[4].reset();
  const auto next = job.start({});
  auto report = coordinator.recover(from, job.shims({}), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(job.wait(next[0]), 0);
  cr_assert(job.state(job.shims({})) == unresized("3000"));
  return report;
}

Test(live, a_lost_node_s_state_comes_back_from_its_partner, .timeout = 120) {
  const auto report = lose_a_node(true);
  cr_assert_eq(report.step % 100, 0u);
  cr_assert_geq(report.step, 200u, "two snapshots are kept, and ranks are close");
}

Test(live, on_one_host_snapshots_are_copied_from_arena_to_arena, .timeout = 120) {
  cr_assert_geq(lose_a_node(false).step, 200u);
}

Test(live, who_was_told_to_stop_is_followed_from_that_very_step, .timeout = 60) {
  LiveJob job(SWELL_EXAMPLE, 1, kForEver);
  job.variables = {"SWELL_SNAPSHOT_EVERY=1000000000"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  wait_for_steps(job, 0, 10);
  auto channel = Channel::connect_unix(job.keepers[0]->unix_socket()).value();
  cr_assert(ask(channel, Op::request, Writer().put(kStopWish).take()).ok());
  cr_assert_eq(job.wait(programs[0]), 0);
  job.start({});
  const auto report = coordinator.recover(job.shims({}), job.shims({}), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_geq(report.step, 10u);
}

Test(live, without_snapshots_there_is_nothing_to_recover_from, .timeout = 60) {
  LiveJob job(SWELL_EXAMPLE, 1, kForEver);
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  wait_for_steps(job, 0, 10);
  job.stop(programs[0]);
  cr_assert_eq(coordinator.recover(job.shims({}), job.shims({}), 2).error().message(),
               "no snapshot has every rank's part");
}

Test(live, a_program_does_what_is_wished_at_its_next_boundary, .timeout = 60) {
  LiveJob job(SWELL_EXAMPLE, 1, kForEver);
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  auto channel = Channel::connect_unix(job.keepers[0]->unix_socket()).value();
  cr_assert(ask(channel, Op::request, Writer().put(kStopWish).take()).ok());
  cr_assert_eq(job.wait(programs[0]), 0);
  cr_assert_eq(ask(channel, Op::request, Writer().put<std::uint64_t>(9).take()).error().message(),
               "a program can be asked to stop (2) or to write a checkpoint (3)");
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
    // Never a mixture: all shims are in one epoch.
    for (int shim = 0; shim < (commits ? 4 : 2); ++shim)
      cr_assert_eq(job.status(shim).epoch, commits ? 2 : 1);
    if (commits) cr_assert_eq(job.wait(old_programs[0]), 0);
    // Whoever was not killed trains on, old epoch or new.
    wait_for_steps(job, 0, job.status(0).step);
    if (!commits) cr_assert_eq(job.status(2).prepared, 0);
  }
  cr_assert_not(support::fs::exists(folder));
  cr_assert(shared_memory() == before);
}

Test(live, a_new_worker_killed_in_prepare_leaves_the_old_epoch, .timeout = 60) {
  kill_in(Phase::prepare, false, false);
}
Test(live, a_new_worker_killed_in_quiesce_leaves_the_old_epoch, .timeout = 60) {
  kill_in(Phase::quiesce, false, false);
}
Test(live, a_new_worker_killed_in_move_leaves_the_old_epoch, .timeout = 60) {
  kill_in(Phase::move, false, false);
}
Test(live, a_new_worker_killed_in_commit_is_lost_to_the_new_epoch, .timeout = 60) {
  kill_in(Phase::commit, false, true);
}
Test(live, an_old_worker_killed_in_prepare_leaves_the_others_in_the_old_epoch, .timeout = 60) {
  kill_in(Phase::prepare, true, false);
}
Test(live, an_old_worker_killed_in_quiesce_leaves_the_others_in_the_old_epoch, .timeout = 60) {
  kill_in(Phase::quiesce, true, false);
}
Test(live, an_old_worker_killed_in_move_has_left_whole_state_behind, .timeout = 60) {
  kill_in(Phase::move, true, true);
}
Test(live, an_old_worker_killed_in_commit_is_not_missed, .timeout = 60) {
  kill_in(Phase::commit, true, true);
}
