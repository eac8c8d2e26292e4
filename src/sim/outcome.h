// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
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
  double still_s = 0;     ///< time with GPUs and without training, for changes of plan
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

/// The reason for a change of what a job holds or runs.
struct Cause {
  enum class Why : std::uint8_t {
    gain,           ///< idle GPUs, of which no other job made more, by the job's profile
    unprofiled,     ///< idle GPUs, lent one by one before the job's profile was there
    wanted,         ///< GPUs that the job consented to wait for
    better_plan,    ///< another plan for the same GPUs
    pending_job,    ///< a pending job needs them
    no_room,        ///< a pending job needs them, and the policy did not reclaim them
    another_job,    ///< another elastic job gains more by them
    owed,           ///< another one consented to wait for them
    deadline,       ///< another one keeps its deadline with them
    brings_little,  ///< they bring the job less than they must, by the policy
    slows,          ///< by its profile the job is no faster with them
    fell_short,     ///< they were measured to bring too little
    no_memory,      ///< the plan did not fit memory
    node_failed,
    placed,  ///< a policy that replaces the base scheduler wanted it so
  } why = Why::gain;
  std::uint32_t job = 0;  ///< the pending job; 0: none
};

/// A change of what one job holds or runs, and what came of it until its next one or its end.
struct Change {
  enum class Kind : std::uint8_t { lent, reclaimed, replanned };
  std::uint32_t job = 0;
  Kind kind = Kind::lent;
  Cause cause;
  double at_s = 0, until_s = 0;
  int gpus_before = 0, gpus_after = 0;  ///< of the plans
  std::string plan_before, plan_after;  ///< in short
  /// Speed after over that before: as the policy's model predicted it, and by the judge. `promised`
  /// is 0 where the job had no profile.
  double promised = 0, real = 0;
  /// The time until `until_s` in excess of what the work done in it takes: on the plan before, or
  /// of a job that lost GPUs on the slower one of that plan and its basic plan, since it has no
  /// claim to more. Below 0: time was saved.
  double own_delay_s = 0;
  double others_delay_s = 0;  ///< time that pending jobs waited for what it lent to leave
  double still_s = 0;         ///< time in which the job did not train
  double idle_gpu_s = 0;      ///< GPU-time held meanwhile, and by workers that initialized
  /// Job time lost by it.
  double cost_s() const noexcept { return (own_delay_s > 0 ? own_delay_s : 0) + others_delay_s; }
};

/// Outcome of one simulation: a workload under one policy.
struct Outcome {
  std::vector<JobOutcome> jobs;   ///< by id
  std::vector<Holding> holdings;  ///< rising by time
  std::vector<Change> changes;    ///< rising by time, where Setup::explain is set
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
