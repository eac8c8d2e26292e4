// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <optional>

#include "controller/held_gpus.h"
#include "controller/loop_state.h"
#include "controller/machines.h"
#include "core/policy/policy.h"
#include "slurm/fabric_source.h"

namespace swell::controller {

/// A job's GPUs as planners number them.
struct JobGpus {
  std::shared_ptr<const cluster::Cluster> machines;
  HeldGpus basic, held;
  plan::Allocations allocations;
};

/// Makes the views of the cluster that policies and planners read.
class ClusterViews {
 public:
  /// `fabric_files`: topology.conf and the calibration; null: neither is read.
  ClusterViews(LoopState& loop, slurm::FabricSource::Find fabric_files,
               policy::Preemption preemption)
      : loop_(loop), fabric_(std::move(fabric_files)), preemption_(preemption) {}

  /// Forgets the view of the last round.
  void begin_round() { of_round_.reset(); }
  /// Returns a view of the present moment.
  policy::ClusterView view(double now);
  /// Returns the view that was made first for an asker in this round: it takes long to make.
  const policy::ClusterView& view_of_round(double now);
  /// Returns the usable nodes as planners take them; null: there are none.
  std::shared_ptr<const cluster::Cluster> machines();
  /// Returns the job's GPUs. The error is a sentence for the job's owner that says why they are not
  /// known by index.
  Result<JobGpus> gpus_of(const ElasticJob& job);

 private:
  std::shared_ptr<const cluster::Fabric> fabric();

  LoopState& loop_;
  slurm::FabricSource fabric_;
  const policy::Preemption preemption_;
  std::shared_ptr<const slurm::KnownFabric> known_fabric_;
  Machines machines_;
  std::optional<policy::ClusterView> of_round_;
};

}  // namespace swell::controller
