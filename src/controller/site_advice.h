// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "base/mutex.h"
#include "control/elastic_advice.h"
#include "controller/admission.h"
#include "controller/config.h"
#include "slurm/slurm_api.h"

namespace swell::controller {

/// Advice about the site for submissions. Learnt by the controller's thread, asked by those of
/// slurmctld that submit.
class SiteAdvice {
 public:
  /// Whether lending is stopped for now.
  void set_draining(bool draining);
  bool draining();

  /// Looks up, now and then, which GPUs the cluster has and what grace its expansions get; asks
  /// slurmctld. From the controller's thread alone.
  void learn(const slurm::Snapshot& snapshot, const Config& config, bool changes_gpu_types);

  /// Returns the longest grace that a job is given, by the last learn(); 0: not known.
  int max_grace_s();

  /// Returns the GPU types that the cluster has, by the last learn(); none: not known.
  std::set<std::string> gpu_types();

  /// A line for each thing that the owner of this elastic submission should hear; empty: none, or
  /// its specification is wrong, which others say.
  /// REQUIRES: the submission is elastic.
  std::string on(const SubmitRequest& request);

 private:
  Mutex mutex_;
  control::SiteFacts facts_ SWELL_GUARDED_BY(mutex_);
  std::optional<std::chrono::steady_clock::time_point> learnt_;  ///< of the controller's thread
};

}  // namespace swell::controller
