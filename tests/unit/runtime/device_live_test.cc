// SPDX-License-Identifier: GPL-2.0-or-later
// Switches of programs whose state is on GPUs, over a stand-in for the driver.
#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>
#include <future>

#include "runtime/gpu_job.h"

using namespace gpu_jobs;

Test(device_live, the_next_program_on_a_gpu_adopts_its_memory_in_place, .timeout = 300) {
  GpuJob gpus;
  const pid_t old = gpus.start(kOne, 0, 0);
  gpus.begin(kOne);
  const pid_t fresh = gpus.start(kOne, 0, 0);
  const auto report = gpus.change(kOne, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.job.wait(old), 0, "it leaves");
  cr_assert_eq(gpus.way(), "in place; ");
  cr_assert_eq(gpus.paths["in place"], kWeights + 8);
  cr_assert_eq(report.max_extra_bytes, 0);
  cr_assert_eq(gpus.job.wait(fresh), 0, "every value is what it must be");
}

Test(device_live, a_program_that_is_killed_at_the_boundary_leaves_its_memory, .timeout = 300) {
  GpuJob gpus;
  const pid_t old = gpus.start(kOne, 0, 0);
  auto with_kill = options();
  with_kill.on_phase = [&](Phase phase) {
    if (phase == Phase::move) gpus.job.stop(old);
  };
  Coordinator coordinator(LiveJob::cluster(), with_kill);
  cr_assert(coordinator.begin(gpus.job.shims(kOne), 1).ok());
  wait_for_steps(gpus.job, 0, 5);
  const pid_t fresh = gpus.start(kOne, 0, 0);
  const auto report =
      coordinator.switch_plan(gpus.job.shims(kOne), gpus.job.shims(kOne), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.job.wait(fresh), 0);
}

Test(device_live, a_rank_that_begins_on_another_gpu_leaves_nothing_on_the_first, .timeout = 300) {
  GpuJob gpus;
  const pid_t old = gpus.start(kOne, 0, 0);
  gpus.begin(kOne);
  const pid_t fresh = gpus.start(kOne, 0, 1);
  const auto report = gpus.change(kOne, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.job.wait(old), 0);
  cr_assert_eq(gpus.way(), "device to device, another GPU; ");
  cr_assert_eq(gpus.slabs_of(fresh), 1, "its own");
  cr_assert_eq(gpus.job.wait(fresh), 0);
}

Test(device_live, ranks_of_one_gpu_copy_within_it, .timeout = 300) {
  GpuJob gpus;
  gpus.start(kTwo, 0, 0);
  gpus.start(kTwo, 1, 0);
  gpus.begin(kTwo);
  const pid_t fresh = gpus.start(kOne, 0, 0);
  const auto report = gpus.change(kTwo, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.way(), "device to device; in place; ");
  cr_assert_eq(gpus.paths["device to device"], kWeights);
  cr_assert_eq(gpus.slabs_of(fresh), 2, "its own, and the old one in which small has stayed");
  cr_assert_eq(gpus.job.wait(fresh), 0);
}

/// One rank on GPU 0 becomes two, the second on GPU 1.
static void split(GpuJob& gpus, const std::vector<std::string>& more, const std::string& way) {
  gpus.start(kOne, 0, 0);
  gpus.begin(kOne);
  const pid_t first = gpus.start(kTwo, 0, 0, more), second = gpus.start(kTwo, 1, 1, more);
  const auto report = gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.paths[way], kWeights / 2 + 8, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.paths["in place"], kWeights / 2 + 8, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.job.wait(first), 0);
  cr_assert_eq(gpus.job.wait(second), 0);
}

Test(device_live, another_gpu_of_the_node_reads_the_memory_itself, .timeout = 300) {
  GpuJob gpus;
  split(gpus, {}, "device to device, another GPU");
}

Test(device_live, gpus_that_cannot_map_each_other_go_through_host_memory, .timeout = 300) {
  GpuJob gpus;
  split(gpus, {"STAND_IN_NO_PEER=1"}, "through host memory, from a GPU, to a GPU");
}

Test(device_live, between_nodes_state_is_staged_on_both_sides, .timeout = 300) {
  GpuJob gpus(true);
  for (auto& keeper : gpus.job.keepers) cr_assert_not(keeper->tcp_address().empty());
  split(gpus, {}, "tcp, from a GPU, to a GPU");
}

Test(device_live, state_goes_from_a_gpu_to_the_host_and_back, .timeout = 300) {
  for (const char* from : {"host", "device"}) {
    GpuJob gpus;
    gpus.start(kOne, 0, 0, {std::string("WHERE=") + from});
    gpus.begin(kOne);
    const bool down = std::string(from) == "device";
    const pid_t fresh = gpus.start(kOne, 0, 0, {down ? "WHERE=host" : "WHERE=device"});
    const auto report = gpus.change(kOne, kOne);
    cr_assert(report.committed, "%s", report.summary().c_str());
    cr_assert_eq(gpus.way(), down ? "in place; through host memory, from a GPU; "
                                  : "in place; mapped arena, to a GPU; ");
    cr_assert_eq(gpus.job.wait(fresh), 0);
  }
}

Test(device_live, a_full_gpu_calls_the_switch_off_and_the_old_program_trains_on, .timeout = 300) {
  GpuJob gpus;
  const pid_t old = gpus.start(kOne, 0, 0);
  gpus.begin(kOne);
  gpus.start(kTwo, 0, 0);
  gpus.start(kTwo, 1, 1, {"STAND_IN_BYTES=0"});
  const auto report = gpus.change(kOne, kTwo);
  cr_assert_not(report.committed);
  cr_assert(report.why.find("no room on GPU 0: 4194304 bytes are needed, 0 are free; it is not "
                            "made in chunks: ") != std::string::npos,
            "%s", report.why.c_str());
  cr_assert_eq(gpus.job.wait(old), 0);
}

// The program of rank 0 hangs in the driver when its shim has it take memory.
Test(device_live, while_a_program_hangs_in_the_driver_its_shim_answers_others, .timeout = 300) {
  GpuJob gpus;
  const std::string hangs = gpus.job.folder() + "/hangs";
  const pid_t old = gpus.start(kOne, 0, 0, {"STAND_IN_HANGS=" + hangs});
  wait_for_waiting(gpus.job, 0);
  std::ofstream(hangs) << "";
  auto beginning = std::async(std::launch::async,
                              [&] { return gpus.coordinator.begin(gpus.job.shims(kOne), 1); });
  const auto connected = [&] {
    return Channel::connect_unix(gpus.job.keepers[0]->unix_socket()).value();
  };
  while (!std::filesystem::exists(hangs + ".now") &&
         beginning.wait_for(10ms) == std::future_status::timeout)
    continue;
  Channel one = connected(), other = connected();
  const auto called_off = ask(one, Op::abort, {}, within(20s));
  const auto status = ask(other, Op::status, {}, within(20s));
  std::filesystem::remove(hangs);
  cr_assert(called_off.ok(), "%s", called_off.ok() ? "" : called_off.error().message().c_str());
  cr_assert(status.ok(), "another is answered meanwhile");
  cr_assert_not(read_status(status->body)->has_waiting, "it counts as refused");
  const auto begun = beginning.get();
  cr_assert_not(begun.ok());
  cr_assert_eq(begun.error().message().find("did not answer"), std::string::npos, "%s",
               begun.error().message().c_str());
  cr_assert_eq(WEXITSTATUS(gpus.job.wait(old)), 1, "it hears of it once the driver has answered");
}

Test(device_live, a_program_that_stays_serves_its_shim_beside_the_training, .timeout = 300) {
  GpuJob gpus(false, "3000");
  const pid_t stays = gpus.start(kOne, 0, 0, {"STAYS=1"});
  gpus.begin(kOne);
  cr_assert(gpus.job.keepers[0]->offer_next(
      2, {{"PLAN", "1,1,2,0"}, {"RANK", "0"}, {"WHERE", "device"}}));
  const pid_t second = gpus.start(kTwo, 1, 1);
  const auto report = gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.paths["in place"], kWeights / 2 + 8, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.job.wait(stays), 0);
  cr_assert_eq(gpus.job.wait(second), 0);
}

Test(device_live, a_lost_gpu_program_goes_on_from_its_snapshot, .timeout = 300) {
  GpuJob gpus(false, "400");
  const pid_t old = gpus.start(kOne, 0, 0, {"SWELL_SNAPSHOT_EVERY=10"});
  gpus.begin(kOne);
  wait_for_steps(gpus.job, 0, 40);
  gpus.job.stop(old);
  const pid_t fresh = gpus.start(kOne, 0, 0);
  const auto report = gpus.coordinator.recover(gpus.job.shims(kOne), gpus.job.shims(kOne), 2);
  cr_assert(report.ok(), "%s", report.ok() ? "" : report.error().message().c_str());
  cr_assert(report->committed, "%s", report->summary().c_str());
  cr_assert_geq(report->step, 10);
  cr_assert_eq(gpus.job.wait(fresh), 0);
}
