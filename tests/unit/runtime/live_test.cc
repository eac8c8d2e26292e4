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
  made.quiesce_limit = 60s;
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

/// Waits until a rank has passed a boundary beyond `step`; fails after two minutes.
void wait_for_steps(const LiveJob& job, int shim, std::uint64_t step) {
  for (const auto end = std::chrono::steady_clock::now() + 120s;
       std::chrono::steady_clock::now() < end;) {
    if (job.status(shim).step > step) return;
    std::this_thread::yield();
  }
  cr_assert(false, "shim %d stands at step %lu", shim,
            static_cast<unsigned long>(job.status(shim).step));
}

/// Waits until a new program waits in adopt.
void wait_for_waiting(const LiveJob& job, int shim) {
  for (const auto end = std::chrono::steady_clock::now() + 120s;
       std::chrono::steady_clock::now() < end;) {
    if (job.status(shim).has_waiting) return;
    std::this_thread::yield();
  }
  cr_assert(false, "no program waits at shim %d", shim);
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

Test(live, ten_plans_in_a_row_end_bitwise_as_a_run_without_any_switch, .timeout = 300) {
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

Test(live, ranks_that_hear_of_the_stop_too_late_are_asked_for_a_later_step, .timeout = 300) {
  // Two ranks without a pause: they pass far more than two steps while one of them is told.
  LiveJob job(SWELL_EXAMPLE, 2, {"1000000000", "4", "12", "10", "0"});
  const PlanShape from{2, 1, 1, 0}, to{1, 1, 1, 0};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto old = job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  wait_for_steps(job, 0, 1000);
  job.start(to);
  const auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  for (const pid_t pid : old) cr_assert_eq(job.wait(pid), 0);
}

Test(live, what_stays_is_not_copied_and_what_leaves_is_freed, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 2, {"1000000000", "8", "64", "512", "1000"});  // 8 MiB a run
  Coordinator coordinator(LiveJob::cluster(), options());
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
  cr_assert_eq(report.max_extra_bytes, 0, "no shim holds more than its state, old or new");
  cr_assert_eq(job.wait(old[0]), 0);
  cr_assert_lt(job.keepers[0]->used_bytes(), state / 2 + 65536, "the other half was given back");
}

/// From two stages to two shards of each layer, with so much memory beside the state.
static SwitchReport reshard(LiveJob& job, std::uint64_t max_extra_bytes) {
  auto bounded = options();
  bounded.max_extra_bytes = max_extra_bytes;
  Coordinator coordinator(LiveJob::cluster(), bounded);
  const PlanShape from{2, 1, 1, 0}, to{1, 1, 2, 0};
  const auto old = job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  const auto next = job.start(to);
  const auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2).value();
  for (const pid_t pid : report.committed ? old : next)
    cr_assert_eq(job.wait(pid) == 0, report.committed, "who does not train on leaves");
  wait_for_steps(job, 0, job.status(0).step);
  return report;
}
/// 8 MiB over two ranks: of each rank's half, half again comes from the other.
static const std::vector<std::string> kEightMiB{"1000000000", "8", "64", "512", "1000"};
static constexpr std::uint64_t kQuarter = 2 << 20;

Test(live, memory_within_the_bound_is_enough, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 2, kEightMiB);
  const auto report = reshard(job, kQuarter);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(report.max_extra_bytes, kQuarter);
}

Test(live, more_memory_than_the_bound_is_refused_before_anything_stops, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 2, kEightMiB);
  const auto report = reshard(job, kQuarter - 1);
  cr_assert_not(report.committed);
  cr_assert_eq(report.failed_in, Phase::prepare);
  cr_assert_neq(report.why.find("needs 2097152 bytes beside the state; the bound is 2097151"),
                std::string::npos, "%s", report.why.c_str());
}

Test(live, shims_of_different_hosts_move_state_over_tcp, .timeout = 300) {
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

Test(live, where_jobs_of_a_node_have_no_common_tmp_state_goes_by_tcp_and_says_so, .timeout = 300) {
  const PlanShape from{1, 1, 1, 0}, to{2, 1, 1, 0};
  LiveJob job(SWELL_EXAMPLE, 2, {"6000", "4", "12", "10", "200"});
  job.variables = {"SWELL_SNAPSHOT_EVERY=100"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto old = job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  const auto programs = job.start(to);
  wait_for_waiting(job, 0);
  wait_for_waiting(job, 1);
  // From here on nobody finds the sockets; what is connected stays so.
  for (const char* shim : {"/0", "/1"})
    support::fs::rename(job.folder() + shim, job.folder() + shim + ".of-another-job");
  std::vector<Shim> shims = job.shims(to);
  for (std::size_t i = 0; i < 2; ++i) shims[i] = {"", job.keepers[i]->tcp_address(), shims[i].gpu};
  const auto report = coordinator.switch_plan({shims[0]}, shims, 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  std::map<std::string, std::uint64_t> paths;
  for (const PathBytes& path : report.paths) paths[path.path] = path.bytes;
  cr_assert_gt(paths[kTcpWithinNode], 0);
  for (pid_t pid : programs) cr_assert_eq(job.wait(pid), 0);
  // The partner has got snapshots all the same.
  auto channel = Channel::connect_tcp(shims[1].tcp, LiveJob::kKey, within(60s)).value();
  const auto snapshots = read_snapshots(ask(channel, Op::snapshots, {}).value().body).value();
  std::set<std::int32_t> ranks;
  for (const Snapshot& each : snapshots) ranks.insert(each.rank);
  cr_assert(ranks == (std::set<std::int32_t>{0, 1}));
}

Test(live, after_the_coordinator_is_lost_in_the_middle_another_settles, .timeout = 300) {
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

Test(live, what_is_called_off_before_the_commit_is_never_committed, .timeout = 300) {
  cr_assert(call_off_in(Phase::quiesce) == std::pair(true, false));
  cr_assert(call_off_in(Phase::move) == std::pair(true, false));
}

Test(live, calling_off_in_the_commit_comes_too_late_and_says_so, .timeout = 300) {
  cr_assert(call_off_in(Phase::commit) == std::pair(false, true));
}

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

Test(live, who_was_told_to_stop_is_followed_from_that_very_step, .timeout = 300) {
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

Test(live, a_program_does_what_is_wished_at_its_next_boundary, .timeout = 300) {
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

Test(live, a_new_worker_killed_in_prepare_leaves_the_old_epoch, .timeout = 300) {
  kill_in(Phase::prepare, false, false);
}
Test(live, a_new_worker_killed_in_quiesce_leaves_the_old_epoch, .timeout = 300) {
  kill_in(Phase::quiesce, false, false);
}
Test(live, a_new_worker_killed_in_move_leaves_the_old_epoch, .timeout = 300) {
  kill_in(Phase::move, false, false);
}
Test(live, a_new_worker_killed_in_commit_is_lost_to_the_new_epoch, .timeout = 300) {
  kill_in(Phase::commit, false, true);
}
Test(live, an_old_worker_killed_in_prepare_leaves_the_others_in_the_old_epoch, .timeout = 300) {
  kill_in(Phase::prepare, true, false);
}
Test(live, an_old_worker_killed_in_quiesce_leaves_the_others_in_the_old_epoch, .timeout = 300) {
  kill_in(Phase::quiesce, true, false);
}
Test(live, an_old_worker_killed_in_move_has_left_whole_state_behind, .timeout = 300) {
  kill_in(Phase::move, true, true);
}
Test(live, an_old_worker_killed_in_commit_is_not_missed, .timeout = 300) {
  kill_in(Phase::commit, true, true);
}
