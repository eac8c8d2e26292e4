// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <vector>

namespace swell::sim {

/// Outcome of one job.
struct JobOutcome {
  std::uint32_t id = 0;
  int type = 0;
  int basic_gpus = 0;  ///< GPUs that it was traced with, though it may have consented to fewer
  bool elastic = true;
  double submit_s = 0;
  double start_s = 0;  ///< first start
  double end_s = 0;
  double waited_s = 0;  ///< total time without GPUs, after requeues too
  int reconfigurations = 0;
  bool consents = false;  ///< was submitted for fewer GPUs
  /// Its training time on the basic demand that it was submitted with; 0: not known.
  double basic_s = 0;
  double deadline_s = 0;  ///< JobSpec::deadline_s
  double jct_s() const noexcept { return end_s - submit_s; }
};

/// GPUs that a job holds from `at_s` on.
struct Holding {
  double at_s = 0;
  std::uint32_t job = 0;
  int basic = 0;
  int lent = 0;
};

/// Outcome of one simulation: a workload under one policy.
struct Outcome {
  std::vector<JobOutcome> jobs;   ///< by id
  std::vector<Holding> holdings;  ///< rising by time
  double makespan_s = 0;
  double used_gpu_s = 0;  ///< GPU-time held by jobs, working or not
  double lent_gpu_s = 0;
  int gpus = 0;
  int reconfigurations = 0;
  double lost_gpu_s = 0;  ///< GPU-time held while training stood still or new workers initialized
  double profile_gpu_s = 0;  ///< GPU-time held to measure profiles (Profiles)
  /// Value of |predicted / true iteration time - 1| for each plan that was taken.
  std::vector<double> prediction_errors;
  std::vector<double> decision_s;  ///< time that each decision took
  int refused = 0;                 ///< decisions that were out of date when they were applied
  int given_back = 0;              ///< times that a job gave all back, since it fell short
  int migrations = 0;              ///< basic allocations that moved
  int out_of_memory = 0;           ///< plans that did not fit memory, as the judge counts it
  int requeues = 0;                ///< jobs that went back to the queue when a node failed
  long events = 0;
};

}  // namespace swell::sim
