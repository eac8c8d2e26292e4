// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/cluster_views.h"

#include <algorithm>
#include <vector>

#include "controller/view_builder.h"

namespace swell::controller {

std::shared_ptr<const cluster::Fabric> ClusterViews::fabric() {
  auto known = fabric_.update(loop_.snapshot.nodes, loop_.snapshot.taken);
  if (known != known_fabric_)
    for (const std::string& note : known->notes) {
      const auto& before = known_fabric_ ? known_fabric_->notes : std::vector<std::string>{};
      if (std::find(before.begin(), before.end(), note) == before.end()) loop_.events.say(note);
    }
  known_fabric_ = std::move(known);
  return {known_fabric_, &known_fabric_->fabric};
}

std::shared_ptr<const cluster::Cluster> ClusterViews::machines() {
  return machines_.update(loop_.snapshot.nodes, fabric());
}

Result<JobGpus> ClusterViews::gpus_of(const ElasticJob& job) {
  const auto nodes = machines();
  const slurm::JobRecord* record = loop_.record_of(job.id);
  if (nodes == nullptr || record == nullptr) return Error("the planner knows no nodes");
  auto basic = held_gpus(job, *record, *nodes, false), held = held_gpus(job, *record, *nodes, true);
  if (!basic) return basic.error();
  if (!held) return held.error();
  return JobGpus{nodes, std::move(*basic), std::move(*held), allocations_of(job, *record, *nodes)};
}

policy::ClusterView ClusterViews::view(double now) {
  policy::ClusterView seen = build_view(loop_.snapshot, loop_.jobs, loop_.book.outstanding(),
                                        loop_.config, now, fabric(), machines(), &loop_.moves);
  seen.preemption = preemption_;
  loop_.saved.health.apply(seen, loop_.snapshot.taken);
  seen.submissions = std::make_shared<const std::vector<policy::Submission>>(
      loop_.saved.submissions.on_clock(now, loop_.snapshot.taken));
  for (policy::ElasticJobView& job : seen.jobs) {
    const ElasticJob& its = loop_.jobs.at(job.id);
    job.measured_cost =
        redeploy::expected_cost(its.pauses, loop_.saved.pauses, its.way(), job.owner,
                                static_cast<double>(loop_.snapshot.taken));
  }
  return seen;
}

const policy::ClusterView& ClusterViews::view_of_round(double now) {
  if (!of_round_) of_round_ = view(now);
  return *of_round_;
}

}  // namespace swell::controller
