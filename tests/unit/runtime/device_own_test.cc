// SPDX-License-Identifier: GPL-2.0-or-later
// Switches of programs whose state is in GPU memory that they allocated themselves, as PyTorch
// does: mapped in the new programs, else copied through the old ones, over a stand-in for the
// driver.
#include <algorithm>
#include <criterion/criterion.h>

#include "runtime/gpu_job.h"

using namespace gpu_jobs;

namespace {

const std::string kNoHandles = "STAND_IN_NO_HANDLES=1";
const std::string kNote =
    "state in GPU memory that programs allocated themselves goes through host memory";

bool is_noted(const SwitchReport& report, const std::string& why = "") {
  return std::any_of(report.notes.begin(), report.notes.end(), [&](const std::string& note) {
    return note.starts_with(kNote) && note.find(why) != std::string::npos;
  });
}

/// One rank that has "w" in `from` goes on in a new program that has it in `to`, on GPU `gpu`.
/// `more`: variables of both.
SwitchReport swap(GpuJob& gpus, const std::string& from, const std::string& to, int gpu = 0,
                  std::vector<std::string> more = {}) {
  more.push_back("WHERE=" + from);
  const pid_t old = gpus.start(kOne, 0, 0, more);
  gpus.begin(kOne);
  more.back() = "WHERE=" + to;
  const pid_t fresh = gpus.start(kOne, 0, gpu, more);
  const auto report = gpus.change(kOne, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.job.wait(old), 0, "it leaves");
  cr_assert_eq(gpus.job.wait(fresh), 0, "every value is what it must be");
  return report;
}

}  // namespace

Test(device_own, the_next_program_maps_what_the_last_one_allocated, .timeout = 300) {
  // No more memory may be taken beside the state: what is mapped takes none.
  auto tight = options();
  tight.max_extra_bytes = 1 << 20;
  for (const char* where : {"own", "pages"}) {
    GpuJob gpus(false, "400", tight);
    const auto report = swap(gpus, where, where);
    cr_assert_eq(gpus.way(), "device to device, from own GPU memory, to own GPU memory; in place; ",
                 "%s: %s", where, gpus.way().c_str());
    cr_assert_eq(gpus.paths["in place"], 8, "what is Swell's stays");
    cr_assert(report.notes.empty(), "%s", report.summary().c_str());
    cr_assert_eq(report.max_extra_bytes, 0);
  }
}

Test(device_own, memory_allocated_by_other_ranks_and_gpus_of_the_node_is_mapped, .timeout = 300) {
  for (const char* where : {"own", "pages"}) {
    GpuJob gpus;
    gpus.start(kOne, 0, 0, {std::string("WHERE=") + where});
    gpus.begin(kOne);
    const std::vector<std::string> own{"WHERE=own"};
    const pid_t first = gpus.start(kTwo, 0, 0, own), second = gpus.start(kTwo, 1, 1, own);
    const auto report = gpus.change(kOne, kTwo);
    cr_assert(report.committed, "%s", report.summary().c_str());
    cr_assert_eq(gpus.paths["device to device, from own GPU memory, to own GPU memory"],
                 kWeights / 2, "%s", gpus.way().c_str());
    cr_assert_eq(
        gpus.paths["device to device, another GPU, from own GPU memory, to own GPU memory"],
        kWeights / 2, "%s", gpus.way().c_str());
    cr_assert_eq(gpus.job.wait(first), 0);
    cr_assert_eq(gpus.job.wait(second), 0);
  }
}

Test(device_own, unmappable_memory_is_copied_through_memory_of_both, .timeout = 300) {
  GpuJob gpus;
  const auto report = swap(gpus, "own", "own", 0, {kNoHandles});
  cr_assert_eq(gpus.way(), "device to device, from own GPU memory, to own GPU memory; in place; ",
               "%s", gpus.way().c_str());
  cr_assert(report.notes.empty());
  cr_assert_eq(report.max_extra_bytes, kBounce, "what both programs map, to copy by way of it");
}

Test(device_own, more_than_the_memory_between_them_goes_in_pieces, .timeout = 300) {
  GpuJob gpus(false, "400");
  const std::vector<std::string> large{"WHERE=own", "ROWS=600", kNoHandles};
  const pid_t old = gpus.start(kOne, 0, 0, large);
  gpus.begin(kOne);
  const pid_t fresh = gpus.start(kOne, 0, 0, large);
  const auto report = gpus.change(kOne, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  constexpr std::uint64_t kLarge = kWeights / 64 * 600;
  static_assert(kLarge > kBounce && kLarge % kBounce != 0);
  cr_assert_eq(gpus.paths["device to device, from own GPU memory, to own GPU memory"], kLarge);
  cr_assert_eq(gpus.job.wait(old), 0);
  cr_assert_eq(gpus.job.wait(fresh), 0);
}

Test(device_own, without_memory_to_spare_it_goes_through_the_host, .timeout = 300) {
  auto tight = options();
  tight.max_extra_bytes = 1 << 20;
  GpuJob gpus(false, "400", tight);
  const auto report = swap(gpus, "own", "own", 0, {kNoHandles});
  cr_assert_eq(gpus.way(),
               "in place; through host memory, from own GPU memory, to own GPU memory; ", "%s",
               gpus.way().c_str());
  cr_assert(is_noted(report, "the driver does not share it"));
  cr_assert_eq(report.max_extra_bytes, 0, "its memory is the program's");
}

Test(device_own, a_full_gpu_has_it_go_through_the_host, .timeout = 300) {
  GpuJob gpus;
  const pid_t old = gpus.start(kOne, 0, 0, {"WHERE=own", kNoHandles});
  gpus.begin(kOne);
  const pid_t fresh = gpus.start(kOne, 0, 0, {"WHERE=own", "STAND_IN_BYTES=0"});
  const auto report = gpus.change(kOne, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.way(),
               "in place; through host memory, from own GPU memory, to own GPU memory; ");
  cr_assert(is_noted(report));
  cr_assert_eq(gpus.job.wait(old), 0);
  cr_assert_eq(gpus.job.wait(fresh), 0);
}

Test(device_own, to_a_gpu_that_is_no_peer_it_goes_through_the_host, .timeout = 300) {
  GpuJob gpus;
  const auto report = swap(gpus, "own", "own", 1, {"STAND_IN_NO_PEER=1"});
  cr_assert_eq(gpus.paths["through host memory, from own GPU memory, to own GPU memory"], kWeights,
               "%s", gpus.way().c_str());
  cr_assert(is_noted(report, "as it cannot be mapped: GPU 0: mapping what another process"));
}

Test(device_own, it_comes_from_and_goes_to_any_other_memory, .timeout = 300) {
  const struct {
    const char *from, *to, *way;
  } kWays[] = {
      {"own", "device", "device to device, from own GPU memory; in place; "},
      {"device", "own", "device to device, to own GPU memory; in place; "},
      {"own", "host", "in place; through host memory, from own GPU memory; "},
      {"host", "own", "in place; mapped arena, to own GPU memory; "},
  };
  for (const auto& each : kWays) {
    GpuJob gpus;
    const auto report = swap(gpus, each.from, each.to);
    cr_assert_eq(gpus.way(), each.way, "%s to %s: %s", each.from, each.to, gpus.way().c_str());
    cr_assert_eq(is_noted(report), std::string(each.to) == "host");
  }
}

Test(device_own, between_nodes_it_goes_over_the_network, .timeout = 300) {
  GpuJob gpus(true);
  gpus.start(kOne, 0, 0, {"WHERE=own"});
  gpus.begin(kOne);
  const pid_t first = gpus.start(kTwo, 0, 0, {"WHERE=own"}),
              second = gpus.start(kTwo, 1, 1, {"WHERE=own"});
  const auto report = gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.paths["tcp, from own GPU memory, to own GPU memory"], kWeights / 2, "%s",
               gpus.way().c_str());
  cr_assert_eq(gpus.job.wait(first), 0);
  cr_assert_eq(gpus.job.wait(second), 0);
}

Test(device_own, goes_with_a_program_that_is_killed_at_its_boundary, .timeout = 300) {
  // Mapped; by way of memory of the GPU, and of the host.
  const struct {
    std::vector<std::string> more;
    std::uint64_t extra;
  } kWays[] = {{{}, 0}, {{kNoHandles}, std::uint64_t{1} << 30}, {{kNoHandles}, 0}};
  for (auto [more, extra] : kWays) {
    GpuJob gpus;
    more.push_back("WHERE=own");
    const pid_t old = gpus.start(kOne, 0, 0, more);
    auto with_kill = options();
    with_kill.max_extra_bytes = extra;
    with_kill.on_phase = [&](Phase phase) {
      if (phase == Phase::move) gpus.job.stop(old);
    };
    Coordinator coordinator(LiveJob::cluster(), with_kill);
    cr_assert(coordinator.begin(gpus.job.shims(kOne), 1).ok());
    wait_for_steps(gpus.job, 0, 5);
    const pid_t fresh = gpus.start(kOne, 0, 0, {"WHERE=own"});
    const auto report =
        coordinator.switch_plan(gpus.job.shims(kOne), gpus.job.shims(kOne), 2).value();
    cr_assert_not(report.committed);
    cr_assert(report.why.starts_with("shim 0: moving state from old rank 0: ") &&
                  report.why.find("the program that ha") != std::string::npos &&
                  report.why.find(" is gone") != std::string::npos,
              "%s", report.why.c_str());
    cr_assert_eq(WEXITSTATUS(gpus.job.wait(fresh)), 1, "it is told to leave");
  }
}

Test(device_own, a_switch_that_is_called_off_leaves_the_old_program_as_it_was, .timeout = 300) {
  GpuJob gpus;
  const pid_t old = gpus.start(kOne, 0, 0, {"WHERE=own"});
  auto with_kill = options();
  pid_t fresh = 0;
  with_kill.on_phase = [&](Phase phase) {
    if (phase == Phase::move) gpus.job.stop(fresh);
  };
  Coordinator coordinator(LiveJob::cluster(), with_kill);
  cr_assert(coordinator.begin(gpus.job.shims(kOne), 1).ok());
  wait_for_steps(gpus.job, 0, 5);
  fresh = gpus.start(kOne, 0, 0, {"WHERE=own"});
  const auto report =
      coordinator.switch_plan(gpus.job.shims(kOne), gpus.job.shims(kOne), 2).value();
  cr_assert_not(report.committed);
  cr_assert_eq(gpus.job.wait(old), 0, "it trains on to the end with the right values");
}

Test(device_own, a_program_that_stays_gets_it_into_its_next_session, .timeout = 300) {
  GpuJob gpus(false, "3000");
  const pid_t stays = gpus.start(kOne, 0, 0, {"STAYS=1", "WHERE=own"});
  gpus.begin(kOne);
  cr_assert(
      gpus.job.keepers[0]->offer_next(2, {{"PLAN", "1,1,2,0"}, {"RANK", "0"}, {"WHERE", "own"}}));
  const pid_t second = gpus.start(kTwo, 1, 1, {"WHERE=own"});
  const auto report = gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.job.wait(stays), 0);
  cr_assert_eq(gpus.job.wait(second), 0);
}

Test(device_own, is_in_snapshots_and_comes_back_from_them, .timeout = 300) {
  GpuJob gpus(false, "400");
  const pid_t old = gpus.start(kOne, 0, 0, {"SWELL_SNAPSHOT_EVERY=10", "WHERE=own"});
  gpus.begin(kOne);
  wait_for_steps(gpus.job, 0, 40);
  gpus.job.stop(old);
  const pid_t fresh = gpus.start(kOne, 0, 0, {"WHERE=own"});
  const auto report = gpus.coordinator.recover(gpus.job.shims(kOne), gpus.job.shims(kOne), 2);
  cr_assert(report.ok(), "%s", report.ok() ? "" : report.error().message().c_str());
  cr_assert(report->committed, "%s", report->summary().c_str());
  cr_assert_geq(report->step, 10);
  cr_assert_eq(gpus.job.wait(fresh), 0);
}

Test(device_own, needs_no_gpu_whose_memory_can_be_shared, .timeout = 300) {
  GpuJob gpus;
  const std::vector<std::string> where{"WHERE=own", "SMALL=own", "STAND_IN_NO_SHARING=1"};
  const pid_t old = gpus.start(kOne, 0, 0, where);
  gpus.begin(kOne);
  const pid_t fresh = gpus.start(kOne, 0, 0, where);
  const auto report = gpus.change(kOne, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.job.wait(old), 0);
  cr_assert_eq(gpus.job.wait(fresh), 0);
}
