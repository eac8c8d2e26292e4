// SPDX-License-Identifier: GPL-2.0-or-later
// Switches that need more memory than they may: in chunks, of which what nobody needs any more goes
// before the commit.
#include <atomic>
#include <criterion/criterion.h>
#include <thread>

#include "runtime/live_steps.h"

using namespace live_steps;

namespace {

using Hold = Keeper::Options::Hold;

/// 2 MiB over two ranks, from two stages to two shards of each layer: in one go that takes 512 KiB
/// beside the state of each.
constexpr std::uint64_t kState = 2 << 20, kAtOnce = 512 << 10, kBound = 128 << 10;
constexpr PlanShape kStages{2, 1, 1, 0}, kShards{1, 1, 2, 0};
std::vector<std::string> two_mib(const char* steps, const char* pace_us = "1000") {
  return {steps, "8", "64", "128", pace_us};
}

Coordinator::Options bounded() {
  auto made = options();
  made.max_extra_bytes = kBound;
  return made;
}

std::map<std::string, std::vector<double>> unresized_two_mib(const char* steps) {
  LiveJob job(SWELL_EXAMPLE, 1, two_mib(steps, "0"));
  const auto programs = job.start({});
  Coordinator coordinator(LiveJob::cluster(), options());
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  cr_assert_eq(job.wait(programs[0]), 0);
  return job.state(job.shims({}));
}

/// A job that trains in two stages, of which programs of two shards wait.
struct Job {
  explicit Job(const std::vector<std::string>& words, int shims = 2,
               const std::function<bool(Hold)>& holds = {}, bool apart = false)
      : live(SWELL_EXAMPLE, shims, words, apart, holds) {
    live.variables = {"SWELL_SNAPSHOT_EVERY=1000000000"};  // in time for none
  }
  void begin(Coordinator& coordinator, const PlanShape& to = kShards) {
    old = live.start(kStages);
    cr_assert(coordinator.begin(live.shims(kStages), 1).ok());
    wait_for_steps(live, 0, 5);
    next = live.start(to);
    for (int shim = 0; shim < to.ranks(); ++shim) wait_for_waiting(live, shim);
  }
  LiveJob live;
  std::vector<pid_t> old, next;
};

/// The old generation is over, and no program trains it: all go on from a snapshot of the very
/// step.
void goes_on(Job& job, const std::vector<Shim>& holders, const SwitchReport& report,
             std::uint64_t step, const char* steps) {
  cr_assert(report.is_old_gone && !report.committed, "%s", report.summary().c_str());
  for (const pid_t pid : job.old) job.live.stop(pid);
  for (const pid_t pid : job.next) job.live.stop(pid);
  job.live.arguments = two_mib(steps, "0");
  const PlanShape one{1, 1, 1, 0};
  const auto programs = job.live.start(one);
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto back = coordinator.recover(holders, job.live.shims(one), 3);
  cr_assert(back.ok(), "%s", back ? "" : back.error().message().c_str());
  cr_assert(back->committed, "%s", back->summary().c_str());
  cr_assert_eq(back->step, step, "from step %lu, not %lu", static_cast<unsigned long>(back->step),
               static_cast<unsigned long>(step));
  cr_assert_eq(job.live.wait(programs[0]), 0);
  cr_assert(job.live.state(job.live.shims(one)) == unresized_two_mib(steps));
}

}  // namespace

Test(live_chunks, a_switch_over_the_bound_is_made_within_it, .timeout = 300) {
  Job job(two_mib("1500", "200"));
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin(coordinator);
  const std::uint64_t before = job.live.keepers[0]->used_bytes();
  const auto report =
      coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_geq(report.chunks, kAtOnce / kBound, "%s", report.summary().c_str());
  cr_assert(report.max_extra_bytes > 0 && report.max_extra_bytes <= kBound, "%s",
            report.summary().c_str());
  cr_assert_neq(report.summary().find("bytes beside the state"), std::string::npos);
  for (const pid_t pid : job.old) cr_assert_eq(job.live.wait(pid), 0);
  // Both ranks' snapshots of the step are there, and no more than that and the state.
  cr_assert_lt(job.live.keepers[0]->used_bytes(), 3 * before + 65536);
  for (const pid_t pid : job.next) cr_assert_eq(job.live.wait(pid), 0);
  cr_assert(job.live.state(job.live.shims(kShards)) == unresized_two_mib("1500"));
}

Test(live_chunks, hosts_apart_release_what_the_others_have_fetched, .timeout = 300) {
  Job job(two_mib("1500", "200"), 2, {}, true);
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin(coordinator);
  const auto report =
      coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
  cr_assert(report.committed && report.chunks > 1, "%s", report.summary().c_str());
  cr_assert_leq(report.max_extra_bytes, kBound);
  for (const pid_t pid : job.next) cr_assert_eq(job.live.wait(pid), 0);
  cr_assert(job.live.state(job.live.shims(kShards)) == unresized_two_mib("1500"));
}

Test(live_chunks, where_there_is_room_nothing_is_made_in_chunks, .timeout = 300) {
  Job job(two_mib("1000000000"));
  auto roomy = options();
  roomy.max_extra_bytes = kAtOnce;
  Coordinator coordinator(LiveJob::cluster(), roomy);
  job.begin(coordinator);
  const auto report =
      coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
  cr_assert(report.committed && report.chunks == 0, "%s", report.summary().c_str());
  cr_assert_eq(report.max_extra_bytes, kAtOnce);
}

Test(live_chunks, without_snapshots_it_is_refused_before_anything_stops_and_says_why,
     .timeout = 300) {
  Job job(two_mib("1000000000"));
  job.live.variables.clear();
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin(coordinator);
  const auto report =
      coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
  cr_assert_not(report.committed || report.is_old_gone);
  cr_assert_eq(report.failed_in, Phase::prepare);
  cr_assert_neq(
      report.why.find("the switch needs 524288 bytes beside the state; the bound is 131072: raise "
                      "--switch-memory; it is not made in chunks: the program takes no snapshots"),
      std::string::npos, "%s", report.why.c_str());
  for (const pid_t pid : job.next) cr_assert_neq(job.live.wait(pid), 0, "they are told to leave");
  wait_for_steps(job.live, 0, job.live.status(0).step);
}

Test(live_chunks, a_switch_cancelled_while_the_state_is_secured_leaves_the_old_generation,
     .timeout = 300) {
  Job job(two_mib("1000000000"));
  auto with_end = bounded();
  Coordinator* own = nullptr;
  with_end.on_phase = [&](Phase phase) {
    if (phase == Phase::secure) cr_assert(own->call_off());
  };
  Coordinator coordinator(LiveJob::cluster(), with_end);
  own = &coordinator;
  job.begin(coordinator);
  const auto report =
      coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
  cr_assert(!report.committed && !report.is_old_gone, "%s", report.summary().c_str());
  cr_assert_eq(report.failed_in, Phase::secure);
  for (const int shim : {0, 1}) wait_for_steps(job.live, shim, job.live.status(shim).step);
}

/// kill -9 of a program as a phase begins.
static SwitchReport kill_in(Job& job, Phase phase, bool old) {
  auto with_kill = bounded();
  with_kill.on_phase = [&](Phase begins) {
    if (begins == phase) job.live.stop((old ? job.old : job.next)[1]);
  };
  Coordinator coordinator(LiveJob::cluster(), with_kill);
  job.begin(coordinator);
  return coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
}

Test(live_chunks, a_new_program_killed_while_the_state_is_secured_leaves_the_old_generation,
     .timeout = 300) {
  Job job(two_mib("1000000000"));
  // It may be noticed as late as with the first chunk; then the others have released something.
  const auto report = kill_in(job, Phase::secure, false);
  cr_assert_not(report.committed);
  if (report.is_old_gone) return;
  for (const int shim : {0, 1}) wait_for_steps(job.live, shim, job.live.status(shim).step);
}

Test(live_chunks, an_old_program_killed_at_its_boundary_is_not_missed, .timeout = 300) {
  for (const Phase phase : {Phase::secure, Phase::move}) {
    Job job(two_mib("1000000000"));
    const auto report = kill_in(job, phase, true);
    cr_assert(report.committed && report.chunks > 1, "%s", report.summary().c_str());
    for (const int shim : {0, 1}) wait_for_steps(job.live, shim, report.step);
  }
}

/// Where a shim waits between two chunks until the test lets it go on.
struct BetweenChunks {
  std::atomic<bool> is_reached = false, is_held = true;
  bool waits(Hold hold) {
    if (hold != Hold::chunk) return false;
    is_reached = true;
    return is_held;
  }
};

/// Something is lost while a shim waits between two chunks. `lose` is told the job; with whom the
/// run goes on then.
static void lose_between_chunks(const std::function<std::vector<Shim>(Job&)>& lose) {
  BetweenChunks between;
  Job job(two_mib("1000000000"), 2, [&](Hold hold) { return between.waits(hold); });
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin(coordinator);
  SwitchReport report;
  std::thread under_way([&] {
    report = coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
  });
  while (!between.is_reached) std::this_thread::yield();
  const std::uint64_t step = job.live.status(0).step;
  const std::vector<Shim> holders = lose(job);
  between.is_held = false;
  under_way.join();
  cr_assert_eq(report.failed_in, Phase::move);
  for (int shim = 0; shim < 2; ++shim) {
    if (job.live.keepers[static_cast<std::size_t>(shim)] == nullptr) continue;
    cr_assert_not(job.live.status(shim).has_program, "nobody trains the old generation");
    cr_assert_eq(job.live.status(shim).generation, 1u, "nor the new one");
  }
  goes_on(job, holders, report, step, std::to_string(step + 500).c_str());
}

Test(live_chunks, a_new_program_killed_between_chunks_costs_no_step, .timeout = 300) {
  lose_between_chunks([](Job& job) {
    job.live.stop(job.next[1]);
    return job.live.shims(kStages);
  });
}

Test(live_chunks, a_shim_killed_between_chunks_costs_no_step, .timeout = 300) {
  lose_between_chunks([](Job& job) {
    job.live.keepers[1].reset();
    return job.live.shims({1, 1, 1, 0});
  });
}

Test(live_chunks, old_programs_leave_where_the_old_generation_is_gone, .timeout = 300) {
  BetweenChunks between;
  Job job(two_mib("1000000000"), 2, [&](Hold hold) { return between.waits(hold); });
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin(coordinator);
  std::thread other([&] {
    while (!between.is_reached) std::this_thread::yield();
    cr_assert(coordinator.call_off());
    between.is_held = false;
  });
  const auto report =
      coordinator.switch_plan(job.live.shims(kStages), job.live.shims(kShards), 2).value();
  other.join();
  cr_assert(report.is_old_gone && !report.committed, "%s", report.summary().c_str());
  for (const pid_t pid : job.old) cr_assert_eq(job.live.wait(pid), 0, "they have nothing to train");
  for (const pid_t pid : job.next) cr_assert_neq(job.live.wait(pid), 0);
  // Their memory is given back; a snapshot of each rank is there, here and with its partner.
  cr_assert_leq(job.live.keepers[0]->used_bytes(), kState + 65536);
}

Test(live_chunks, ranks_that_leave_hand_over_in_chunks, .timeout = 300) {
  // Four stages, of which the ranks of two leave; the others become two shards of all layers.
  const PlanShape from{4, 1, 1, 0}, to{1, 1, 2, 0};
  LiveJob job(SWELL_EXAMPLE, 4, two_mib("1500", "200"));
  job.variables = {"SWELL_SNAPSHOT_EVERY=1000000000"};
  auto with_limit = bounded();
  with_limit.max_extra_bytes = 64 << 10;
  with_limit.leave_limit = 60s;
  Coordinator coordinator(LiveJob::cluster(), with_limit);
  const auto old = job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  wait_for_steps(job, 0, 5);
  const auto next = job.start(to);
  const auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2).value();
  cr_assert(report.committed && report.chunks > 1, "%s", report.summary().c_str());
  cr_assert_leq(report.max_extra_bytes, with_limit.max_extra_bytes);
  for (const pid_t pid : old) cr_assert_eq(job.wait(pid), 0);
  for (const pid_t pid : next) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(job.shims(to)) == unresized_two_mib("1500"));
}
