// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/models/catalogue.h"
#include "core/perf/coefficients.h"
#include "core/result.h"
#include "sim/judge/software.h"
#include "sim/trace.h"

namespace swell::sim {

/// A model of Suika's Table 1 with the best symmetric plan under the judge for its number of GPUs
/// ("the initial plan is tuned to optimal", Suika 5.1).
struct JobType {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const perf::Coefficients> expected;  ///< coefficients from data sheets
  char size = 'S';                                     ///< S, M, L or X(L)
  int gpus = 1;
  int gpu_type = 0;  ///< which of the cluster's types its user asks for
  int pp = 1, dp = 1, tp = 1;
  int micro_batches = 16;
  judge::Software software = judge::Software::fused();  ///< hidden: how its program really runs
  /// The same model tuned for fewer GPUs, which a job that consents is submitted for; null: it runs
  /// with no fewer, or nobody asked (JobTypeOptions::least_share).
  std::shared_ptr<const JobType> least;
};

/// A job as it will be submitted.
struct JobSpec {
  std::uint32_t id = 0;  ///< from 1 on, in order of submission
  int type = 0;          ///< index into Workload::types
  double submit_s = 0;
  double basic_s = 0;  ///< training time on its basic demand alone
  double limit_s = 0;  ///< its Slurm time limit
  bool elastic = true;
  bool consents = false;  ///< to be submitted for the GPUs of JobType::least
  double deadline_s = 0;  ///< when its user wants it to have ended; 0: it has no deadline
  std::string account;    ///< TraceJob::account
};

struct Workload {
  std::vector<JobType> types;
  std::vector<JobSpec> jobs;
  const JobType& type_of(const JobSpec& job) const noexcept {
    return types[static_cast<std::size_t>(job.type)];
  }
};

/// Relative numbers of jobs of each size.
struct Mix {
  double s = 3, m = 1, l = 1, xl = 0;
};

struct WorkloadOptions {
  Mix mix;
  bool xl_is_large = false;  ///< the XL models count as L: for simulations of 1,024 GPUs
  double intensity = 1;      ///< divisor of submission intervals
  double hours = 0;          ///< part of the trace used, from its first submission; 0: all
  double cap_hours = 0;      ///< limit to which longer jobs are cut; 0: none
  double rigid_share = 0;    ///< share of jobs that are not elastic
  double consent_share = 0;  ///< share of elastic jobs that consent to fewer GPUs
  /// Elastic jobs have a deadline, from their submission on this many times their time on their
  /// basic demand: drawn for each job between the two. 0: they have none.
  double soonest = 0, latest = 0;
  double deadline_share = 1;  ///< share of elastic jobs that have one
  int max_jobs = 0;           ///< 0: as many as the load asks for
  /// GPUs of the cluster that the trace is from; the default is Philly's.
  double trace_gpus = 2490;
  bool sample = true;  ///< false: uses every job of the trace, with unchanged GPU-time
  /// Each job has as many GPUs as in the trace, and a model that trains on these; else the GPUs of
  /// the model that it draws. REQUIRES: !sample, and JobTypeOptions::gpu_counts of the trace.
  bool own_gpus = false;
};

struct JobTypeOptions {
  bool with_xl = false;
  /// Leaves out what needs more GPUs than the cluster has (left_out()); otherwise that is an error.
  bool leave_out_large = false;
  double launch_floor_s = 0;  ///< Software::layer_launch_s; 0: the usual one
  /// Share of its GPUs for which JobType::least is made, rounded up to the next number on which a
  /// plan fits; 0: none is made.
  double least_share = 0;
  /// Each model is tuned for each of these numbers of GPUs on which it has a plan, in the place of
  /// its own number; empty: its own.
  std::vector<int> gpu_counts = {};
};

/// Models of Suika's Table 1, tuned for `cluster`: one entry for each of its GPU types on which a
/// plan fits. An error where a model needs more GPUs, or has no plan on any. Slow: call once for
/// each cluster.
Result<std::vector<JobType>> job_types(const cluster::Cluster& cluster,
                                       const JobTypeOptions& options);
/// Models that need more GPUs than `cluster` has.
std::vector<std::string> left_out(const cluster::Cluster& cluster, bool with_xl);

/// Makes a workload from a trace as Suika 5.1 does. The share of jobs taken is the share of
/// `cluster`'s GPUs in the trace's cluster; one job is drawn from each of as many classes of equal
/// size by duration, so that long jobs are as frequent as in the trace. Each trains a random model
/// by the mix, and asks for GPUs of a type that holds it, the more often the more there are; one
/// factor scales durations so that the GPU-time is the same share of the trace's. Each seed draws
/// another sample. With own_gpus the model is one of those that are tuned for the job's GPUs; the
/// error names a number of GPUs for which `types` has none.
Result<Workload> make_workload(const Trace& trace, const std::vector<JobType>& types,
                               const cluster::Cluster& cluster, const WorkloadOptions& options,
                               std::uint64_t seed);

}  // namespace swell::sim
