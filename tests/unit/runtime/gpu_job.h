// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "runtime/live_steps.h"

// Shared by tests of switches on GPUs: device_program over a stand-in for the driver.
namespace gpu_jobs {

using namespace live_steps;

inline const std::string kDriver =
    "LD_LIBRARY_PATH=" + std::filesystem::path(SWELL_STAND_IN_CUDA).parent_path().string();
inline const PlanShape kOne{}, kTwo{1, 1, 2, 0};

struct GpuJob {
  explicit GpuJob(bool apart = false, const char* steps = "400",
                  Coordinator::Options limits = options(),
                  const std::optional<NcclOptions>& nccl = {})
      : job(SWELL_DEVICE_PROGRAM, 2, {steps}, apart, {}, {}, nccl),
        coordinator(LiveJob::cluster(), limits) {}

  /// Starts rank `rank` of a plan on the machine's GPU `gpu`.
  pid_t start(const PlanShape& plan, int rank, int gpu, const std::vector<std::string>& more = {}) {
    job.variables = {kDriver, "STAND_IN_FIRST=" + std::to_string(gpu)};
    job.variables.insert(job.variables.end(), more.begin(), more.end());
    return job.start_rank(plan, static_cast<std::size_t>(rank), static_cast<std::size_t>(rank));
  }
  void begin(const PlanShape& plan) {
    const auto begun = coordinator.begin(job.shims(plan), 1);
    cr_assert(begun.ok(), "%s", begun.ok() ? "" : begun.error().message().c_str());
    wait_for_steps(job, 0, 5);
  }
  SwitchReport change(const PlanShape& from, const PlanShape& to) {
    auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2);
    cr_assert(report.ok(), "%s", report.ok() ? "" : report.error().message().c_str());
    for (const PathBytes& path : report->paths) paths[path.path] = path.bytes;
    return *report;
  }
  /// How much of GPUs a program has mapped.
  static long slabs_of(pid_t pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    long count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("stand-in-gpu") != std::string::npos ? 1 : 0;
    return count;
  }
  std::string way() const {
    std::string text;
    for (const auto& [path, bytes] : paths) text += path + "; ";
    return text;
  }

  LiveJob job;
  Coordinator coordinator;
  std::map<std::string, std::uint64_t> paths;
};

inline constexpr std::uint64_t kWeights = std::uint64_t{4} << 20;

}  // namespace gpu_jobs
