// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/elastic_spec.h"

namespace swell::control {

/// Facts about the site that decide what --elastic can do. The controller fills them in; they are
/// read at submission.
struct SiteFacts {
  /// All GPUs of all nodes, by Slurm's name of their type; empty: not known.
  std::map<std::string, int> gpus_by_type;
  int max_gpus_per_job = 0;  ///< MaxGPUsPerJob; 0: no cap
  int max_grace_s = 0;       ///< longest grace of any job (MaxGrace); 0: not known
  std::optional<int>
      grace_s;            ///< GraceTime that Slurm gives a preempted companion; nothing: not known
  bool draining = false;  ///< nothing is lent for now
  bool keeps_deadlines = true;    ///< whether the site's Policy and Objective keep deadlines
  bool changes_gpu_types = true;  ///< whether Slurm lets pending jobs change their GPU type
};

/// Returns advice on a valid spec that will not have the effect that its user expects: one sentence
/// for each problem, with what to write instead. Pure; the job is accepted all the same.
std::vector<std::string> advice(const ElasticSpec& spec, int basic_gpus, const SiteFacts& site);

}  // namespace swell::control
