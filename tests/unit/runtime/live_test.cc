// SPDX-License-Identifier: GPL-2.0-or-later
// Switches among real processes on this host: examples/regression under shims of this process.
#include <atomic>
#include <criterion/criterion.h>
#include <set>
#include <thread>

#include "runtime/live_steps.h"

using namespace live_steps;
using Hold = Keeper::Options::Hold;

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
    for (pid_t pid : programs)
      cr_assert_eq(job.wait(pid), 0, "the old generation's programs leave");
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

Test(live, training_stands_still_from_the_agreed_step_on_not_before, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 1, {"1000000000", "4", "12", "10", "400000"});  // 0.4 s a step
  Coordinator coordinator(LiveJob::cluster(), options());
  job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  wait_for_steps(job, 0, 1);
  job.start({});
  const auto report = coordinator.switch_plan(job.shims({}), job.shims({}), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_gt(report.wait_s, 0.4, "it was told two steps ahead: %g s", report.wait_s);
  cr_assert_lt(report.stopped_s(), report.wait_s, "a pause of %g s", report.stopped_s());
}

Test(live, staying_parts_are_not_copied_and_leaving_ones_are_freed, .timeout = 300) {
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

Test(live, the_rest_of_parts_that_shrink_in_place_is_freed, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 2, {"1000000000", "8", "64", "512", "1000"});  // 8 MiB a run
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto old = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  wait_for_steps(job, 0, 1);
  const std::uint64_t state = 8 * 64 * 512 * 8 * 4;
  const PlanShape sharded{1, 2, 1, 1};
  job.start(sharded);
  const auto report = coordinator.switch_plan(job.shims({}), job.shims(sharded), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  for (const PathBytes& path : report.paths)
    cr_assert_eq(path.bytes, state / 2, "%s", report.summary().c_str());
  cr_assert_eq(job.wait(old[0]), 0);
  cr_assert_lt(job.keepers[0]->used_bytes(), state / 2 + 65536, "the other half was given back");
}

/// A job of one rank and then of two, whose shims keep the memory of the generation before until
/// they are let.
struct Freeing {
  std::atomic<bool> is_held = true;
  LiveJob job{SWELL_EXAMPLE, 2, {"1000000000", "8", "64", "512", "1000"}, false, [this](Hold hold) {
                return hold == Hold::freeing && is_held;
              }};
  static constexpr PlanShape kOne{1, 1, 1, 0}, kTwo{2, 1, 1, 0};
  static constexpr std::uint64_t kState = 8 * 64 * 512 * 8 * 4;
  SwitchReport grow() {
    Coordinator coordinator(LiveJob::cluster(), options());
    job.start(kOne);
    cr_assert(coordinator.begin(job.shims(kOne), 1).ok());
    wait_for_steps(job, 0, 1);
    job.start(kTwo);
    return coordinator.switch_plan(job.shims(kOne), job.shims(kTwo), 2).value();
  }
  std::uint64_t taken() const {
    auto channel = Channel::connect_unix(job.keepers[0]->unix_socket()).value();
    auto passed = ask(channel, Op::arena, {}).value();
    const auto bytes = swell::ByteReader(passed.body).get<std::uint64_t>();
    return Arena::map(std::move(passed.fd), bytes).value().used_bytes();
  }
};

Test(live, a_commit_waits_for_no_memory_and_the_next_switch_does, .timeout = 300) {
  Freeing one;
  const auto grown = one.grow();
  cr_assert(grown.committed, "%s", grown.summary().c_str());
  for (const int shim : {0, 1}) wait_for_steps(one.job, shim, grown.step);
  cr_assert_gt(one.taken(), Freeing::kState, "nothing has gone back yet");
  bool goes_on_meanwhile = false;
  auto looking = options();
  looking.on_phase = [&](Phase phase) {
    if (phase == Phase::quiesce) goes_on_meanwhile = one.is_held;
  };
  Coordinator coordinator(LiveJob::cluster(), looking);
  one.job.start(Freeing::kOne);
  wait_for_waiting(one.job, 0);
  SwitchReport report;
  std::thread next([&] {
    report = coordinator.switch_plan(one.job.shims(Freeing::kTwo), one.job.shims(Freeing::kOne), 3)
                 .value();
  });
  std::this_thread::sleep_for(500ms);
  one.is_held = false;
  next.join();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_not(goes_on_meanwhile, "it would hold the memory of three generations");
  cr_assert_leq(one.job.keepers[0]->used_bytes(), Freeing::kState + 65536);
  cr_assert_leq(one.taken(), Freeing::kState + 65536);
}

Test(live, a_shim_may_end_before_its_memory_has_gone_back, .timeout = 300) {
  Freeing one;
  cr_assert(one.grow().committed);
  for (auto& keeper : one.job.keepers) keeper.reset();
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
  prepare.generation = 2;
  prepare.cluster = LiveJob::cluster().to_json().dump();
  prepare.max_extra_bytes = 1 << 30;
  const auto table = read_table(ask(channels[0], Op::table, {}).value().body).value().second;
  prepare.from.push_back({{0, 0}, job.status(0).endpoint, prepare.roster.add(table)});
  for (int i = 0; i < 2; ++i) {
    const auto body = ask(channels[static_cast<std::size_t>(i)], Op::wait_ready,
                          swell::ByteWriter().put<std::uint32_t>(20'000).take())
                          .value()
                          .body;
    prepare.to.push_back({{0, i}, i == 0 ? 0 : -1, prepare.roster.add(read_entries(body).value())});
  }
  for (int i = 0; i < 2; ++i) {
    prepare.old_rank = i == 0 ? 0 : -1;
    prepare.new_rank = i;
    cr_assert(ask(channels[static_cast<std::size_t>(i)], Op::prepare, write(prepare)).ok());
  }
  std::uint64_t step = 0;
  for (Channel& channel : channels) {
    const auto at =
        swell::ByteReader(
            ask(channel, Op::quiesce,
                swell::ByteWriter().put<std::uint64_t>(6).put<std::uint32_t>(20'000).take())
                .value()
                .body)
            .get<std::uint64_t>();
    if (at != kNoStep) step = at;
  }
  for (Channel& channel : channels) cr_assert(ask(channel, Op::move, {}).ok());
  cr_assert(ask(channels[0], Op::commit, swell::ByteWriter().put<std::uint64_t>(2).put(step).take())
                .ok());
  channels.clear();  // it dies
  cr_assert_eq(job.status(1).prepared, 2, "what has moved waits for a decision");
  cr_assert_eq(coordinator.settle(shims).value(), 2);
  cr_assert_eq(job.status(1).generation, 2);
  wait_for_steps(job, 1, step);
}

/// Calls a switch off as a phase begins; returns whether that was certain, and whether all shims
/// hold the new generation.
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
  if (certain)
    cr_assert_eq(report->code, swell::ErrorCode::cancelled, "as whoever called it off knows it");
  for (int shim = 0; shim < (committed ? 4 : 2); ++shim)
    cr_assert_eq(job.status(shim).generation, committed ? 2 : 1);
  wait_for_steps(job, 0, job.status(0).step);
  return {certain, committed};
}

Test(live, a_switch_cancelled_before_the_commit_is_never_committed, .timeout = 300) {
  cr_assert(call_off_in(Phase::quiesce) == std::pair(true, false));
  cr_assert(call_off_in(Phase::move) == std::pair(true, false));
}

Test(live, a_switch_cancelled_while_it_waits_for_programs_says_only_that, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 2, kForEver);
  Coordinator coordinator(LiveJob::cluster(), options());
  job.start({1, 1, 1, 0});
  cr_assert(coordinator.begin(job.shims({1, 1, 1, 0}), 1).ok());
  wait_for_steps(job, 0, 5);
  std::thread other([&] {
    std::this_thread::sleep_for(200ms);  // programs of the next generation never come
    cr_assert(coordinator.call_off());
  });
  const auto report = coordinator.switch_plan(job.shims({1, 1, 1, 0}), job.shims({2, 1, 1, 0}), 2);
  other.join();
  cr_assert_not(report.ok());
  cr_assert_eq(report.error().code(), swell::ErrorCode::cancelled, "%s",
               report.error().message().c_str());
}

Test(live, calling_off_in_the_commit_comes_too_late_and_says_so, .timeout = 300) {
  cr_assert(call_off_in(Phase::commit) == std::pair(false, true));
}

Test(live, a_program_does_what_is_requested_at_its_next_boundary, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 1, kForEver);
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto programs = job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  auto channel = Channel::connect_unix(job.keepers[0]->unix_socket()).value();
  cr_assert(ask(channel, Op::request, swell::ByteWriter().put(kStopRequest).take()).ok());
  cr_assert_eq(job.wait(programs[0]), 0);
  cr_assert_eq(
      ask(channel, Op::request, swell::ByteWriter().put<std::uint64_t>(9).take()).error().message(),
      "a program can be asked to stop (2) or to write a checkpoint (3)");
}
