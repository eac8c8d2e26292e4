// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::sim {

/// One job that a real cluster once ran.
struct TraceJob {
  double submit_s = 0;  ///< since any moment
  double gpus = 1;
  double duration_s = 0;
  std::string account = {};  ///< whom it is of, where the file says that
};
using Trace = std::vector<TraceJob>;

/// A trace, and what of its file cannot be simulated.
struct TraceFile {
  Trace jobs;                           ///< sorted by submission
  std::map<std::string, int> left_out;  ///< number of jobs by reason, such as "ask for no GPU"

  /// Leaves out jobs of more than `gpus` GPUs, which the cluster `of` has.
  void leave_out_larger(double gpus, std::string_view of);
  /// Sentence that counts what was left out; empty: nothing was.
  std::string left_out_text() const;
};

/// Selects jobs of `sacct`.
struct JobFilter {
  /// QOS and partition of a site's companion jobs, which are left out; empty: those of other jobs.
  std::string qos, partition;
  double since_s = 0;  ///< jobs submitted before this moment, seconds since 1970, are left out
};

/// Reads a table (slurm_text::Delimited): with the columns submit_s, num_gpus and duration_s, in
/// any order and among others; what `sacct -P` prints with the fields Submit, AllocTRES or ReqTRES,
/// and ElapsedRaw or Elapsed, in which steps are skipped; or a published trace by its own columns
/// (Helios, Acme, Alibaba's PAI, MIT Supercloud). Jobs without GPUs or with parts of one, that did
/// not run or that still run are left out and counted. The error names line and column of what is
/// no number. `filter` holds for rows of `sacct`; what it leaves out is counted.
Result<TraceFile> trace_from_csv(std::string_view text, const JobFilter& filter = {});

/// Reads a table as trace_from_csv() does, or JSON: what `sacct --json` prints, and Philly's log.
Result<TraceFile> trace_from_text(std::string_view text, const JobFilter& filter = {});

/// Settings of a synthetic trace.
struct Generator {
  double hours = 8;
  double jobs_per_hour = 20;
  /// Mean of the durations, which are log-normal: most are short, a few take most of the time.
  double mean_duration_s = 3600;
  /// The rate of arrivals varies over the day by 80 %; false: constant (Poisson).
  bool diurnal = false;
};
Trace generate(const Generator& generator, std::uint64_t seed);

}  // namespace swell::sim
