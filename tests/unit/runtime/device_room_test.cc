// SPDX-License-Identifier: GPL-2.0-or-later
// Switches on GPUs that are four fifths full, over a stand-in whose GPUs have so much memory for
// all processes, with the context of each.
#include <chrono>
#include <criterion/criterion.h>
#include <memory>
#include <thread>

#include "runtime/gpu_job.h"
#include "runtime/stand_in_gpus.h"

using namespace gpu_jobs;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kContext = 2 * kMiB;
/// The sizes of "w" with 512 rows, and of it with "small", which shares its slab.
constexpr std::uint64_t kLarge = 32 * kMiB, kState = kLarge + 2 * kMiB;
/// The state of one rank and its context are 81 % of it.
constexpr std::uint64_t kGpu = 44 * kMiB;

struct FullJob {
  explicit FullJob(Coordinator::Options limits = options(), const char* steps = "400")
      : gpus(false, steps, std::move(limits)), file(gpus.job.folder() + "/gpus") {
    stand_in::Gpus::make(file, kGpu, kContext);
  }
  pid_t start(const PlanShape& plan, int rank, int gpu, std::vector<std::string> more = {}) {
    for (const std::string& each : {"STAND_IN_MEMORY=" + file, std::string("ROWS=512")})
      more.push_back(each);
    return gpus.start(plan, rank, gpu, more);
  }
  GpuJob gpus;
  const std::string file;
};

/// Waits until nobody has anything of GPU 0; false: 30 s have passed.
bool is_empty(const std::string& file) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (stand_in::Gpus(file).taken(0) > 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

Test(device_room, a_growth_hands_over_in_place_with_no_more_memory, .timeout = 300) {
  FullJob job;
  const pid_t old = job.start(kOne, 0, 0);
  job.gpus.begin(kOne);
  cr_assert_geq(stand_in::Gpus(job.file).taken(0) * 10, kGpu * 8, "it is four fifths full");
  const pid_t first = job.start(kTwo, 0, 0), second = job.start(kTwo, 1, 1);
  const auto report = job.gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(job.gpus.way(), "device to device, another GPU; in place; ");
  cr_assert_eq(job.gpus.paths["device to device, another GPU"], kLarge / 2 + 8,
               "what stays is not copied");
  // Beside the state: a context for each of the two programs, and for a moment what the second one
  // tries the driver with.
  cr_assert_eq(stand_in::Gpus(job.file).most(0), kState + 2 * kContext + 2 * kMiB);
  cr_assert_leq(report.max_extra_bytes, options().max_extra_bytes);
  for (const pid_t pid : {old, first, second}) cr_assert_eq(job.gpus.job.wait(pid), 0);
}

Test(device_room, a_job_without_snapshots_is_bounded_by_what_its_gpus_have_free, .timeout = 300) {
  auto limits = options();
  limits.max_extra_bytes = kMiB;
  GpuJob gpus(false, "400", limits);
  const std::vector<std::string> rows = {"ROWS=512"};
  const pid_t first = gpus.start(kTwo, 0, 0, rows), second = gpus.start(kTwo, 1, 1, rows);
  gpus.begin(kTwo);
  const pid_t whole = gpus.start(kOne, 0, 0, rows);
  const auto report = gpus.change(kTwo, kOne);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_geq(report.max_extra_bytes, kLarge / 2, "what it took is said all the same");
  for (const pid_t pid : {first, second, whole}) cr_assert_eq(gpus.job.wait(pid), 0);
}

Test(device_room, a_program_that_ends_within_a_step_leaves_the_gpu_empty, .timeout = 300) {
  FullJob job;
  const pid_t old = job.start(kOne, 0, 0, {});
  job.gpus.begin(kOne);
  job.gpus.job.stop(old);
  cr_assert(is_empty(job.file), "its shim has nothing of it");
  // A second state would not fit.
  const pid_t again = job.start(kOne, 0, 0);
  const auto begun = job.gpus.coordinator.begin(job.gpus.job.shims(kOne), 2);
  cr_assert(begun.ok(), "%s", begun.ok() ? "" : begun.error().message().c_str());
  cr_assert_eq(job.gpus.job.wait(again), 0);
}

Test(device_room, so_does_one_that_ends_while_a_switch_is_prepared, .timeout = 300) {
  auto limits = options();
  pid_t old = 0;
  std::unique_ptr<FullJob> job;
  limits.on_phase = [&](Phase phase) {
    if (phase == Phase::quiesce) job->gpus.job.stop(old);
  };
  job = std::make_unique<FullJob>(limits, "1000000000");
  old = job->start(kOne, 0, 0);
  job->gpus.begin(kOne);
  const pid_t next = job->start(kOne, 0, 0);
  const auto report = job->gpus.change(kOne, kOne);
  cr_assert(!report.committed, "%s", report.summary().c_str());
  job->gpus.job.wait(next);  // it is told to leave
  cr_assert(is_empty(job->file), "its shim has nothing of it");
}

Test(device_room, a_lack_of_memory_is_told_in_bytes_before_anything_stops, .timeout = 300) {
  FullJob job;
  const pid_t old = job.start(kOne, 0, 0);
  job.gpus.begin(kOne);
  // The state goes to memory of the host and back as one that Swell cannot leave in place.
  job.start(kOne, 0, 1, {"WHERE=device"});
  {  // Another job has most of the other GPU.
    stand_in::Gpus other(job.file);
    const int fd = other.take(1, kGpu - 12 * kMiB);
    cr_assert_geq(fd, 0);
    const auto report = job.gpus.change(kOne, kOne);
    close(fd);
    cr_assert_not(report.committed);
    cr_assert_eq(report.failed_in, Phase::prepare);
    cr_assert(
        report.lacks_room &&
            report.why.ends_with("no room on GPU 0: 35651584 bytes are needed, 10485760 are free; "
                                 "it is not made in chunks: the program takes no snapshots "
                                 "(SWELL_SNAPSHOT_EVERY)"),
        "%s", report.why.c_str());
  }
  cr_assert_eq(job.gpus.job.wait(old), 0, "it trains on");
}
