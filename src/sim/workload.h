// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/models/catalogue.h"
#include "core/perf/coefficients.h"
#include "core/result.h"
#include "sim/trace.h"

namespace swell::sim {

/// A model of Suika's Table 1 as jobs train it: with the best symmetric plan for its number of
/// GPUs under the judge ("the initial plan is tuned to optimal", Suika 5.1).
struct JobType {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const perf::Coefficients> expected;  ///< from data sheets
  char size = 'S';                                     ///< S, M, L or X(L)
  int gpus = 1;
  int pp = 1, dp = 1, tp = 1;
  int micro_batches = 16;
};

/// A job as it will be submitted.
struct JobSpec {
  std::uint32_t id = 0;  ///< from 1 on, in order of submission
  int type = 0;          ///< index into Workload::types
  double submit_s = 0;
  double basic_s = 0;  ///< how long it trains on its basic demand alone
  double limit_s = 0;  ///< its Slurm time limit
  bool elastic = true;
};

struct Workload {
  std::vector<JobType> types;
  std::vector<JobSpec> jobs;
  const JobType& type_of(const JobSpec& job) const noexcept {
    return types[static_cast<std::size_t>(job.type)];
  }
};

/// How many jobs of each size there are, relative to each other.
struct Mix {
  double s = 3, m = 1, l = 1, xl = 0;
};

struct WorkloadOptions {
  Mix mix;
  bool xl_is_large = false;  ///< the XL models count as L: simulations of 1,024 GPUs
  double intensity = 1;      ///< submission intervals are divided by it
  double hours = 0;          ///< only what the trace submits in its first hours; 0: all
  double cap_hours = 0;      ///< longer jobs are cut to this; 0: none is
  double rigid_share = 0;    ///< jobs that are not elastic
  int max_jobs = 0;          ///< 0: as many as the load asks for
  double trace_gpus = 2490;  ///< of the cluster that the trace is from; Philly's here
  bool sample = true;        ///< false: every job of the trace, and its GPU-time as it is
};

/// The types that need no more GPUs than `cluster` has, tuned for it. An error where one of them
/// has no plan there. Takes a moment: once a cluster.
Result<std::vector<JobType>> job_types(const cluster::Cluster& cluster, bool with_xl);
/// The models that need more GPUs than `cluster` has, which job_types() leaves out.
std::vector<std::string> left_out(const cluster::Cluster& cluster, bool with_xl);

/// Suika 5.1: as many jobs of `trace` as `cluster` has GPUs in proportion to the trace's cluster,
/// one drawn from each of as many classes of equal size by duration, so that long jobs are as
/// frequent as in the trace; each trains a random model by the mix; durations are scaled by one
/// factor so that the GPU-time is the trace's times the same proportion. Other seeds, other
/// samples.
Result<Workload> make_workload(const Trace& trace, const std::vector<JobType>& types,
                               const cluster::Cluster& cluster, const WorkloadOptions& options,
                               std::uint64_t seed);

}  // namespace swell::sim
