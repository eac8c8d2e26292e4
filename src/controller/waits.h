// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "controller/config.h"
#include "controller/elastic_job.h"
#include "controller/grant_book.h"
#include "controller/node_health.h"
#include "core/policy/view.h"
#include "slurm/records.h"

namespace swell::controller {

/// Basis of the controller's decisions at one moment. Refers to all of it.
struct Waiting {
  const Config& config;
  const slurm::Snapshot& snapshot;
  const JobTable& jobs;
  const std::vector<LiveGrant>& outstanding;  ///< offers that stand
  const policy::ClusterView& view;            ///< built of all these, at `now`
  bool draining = false;
  double now = 0;
  const NodeHealth* health = nullptr;  ///< null: no companion has failed
};

/// Returns why the job is lent no more GPUs now, for its owner. If there are several reasons, takes
/// the one that lasts longest, or that somebody must remove. Empty: no reason is known here; the
/// policy may still find that more GPUs would not pay.
std::string waits_for(const ElasticJob& job, const Waiting& waiting);

}  // namespace swell::controller
