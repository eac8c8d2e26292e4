// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/allocations.h"
#include "core/plan/layout.h"
#include "core/result.h"
#include "slurm/records.h"

namespace swell::controller {

struct ElasticJob;

/// GPUs of one job: by the node's index in the cluster of planners, and by index there.
using HeldGpus = std::map<int, plan::GpuMask>;

/// Returns the GPUs that a job holds by itself, or with the companions that stay. The error is a
/// sentence for the job's owner that says why they are not known by index.
Result<HeldGpus> held_gpus(const ElasticJob& job, const slurm::JobRecord& record,
                           const cluster::Cluster& machines, bool with_companions);

/// Returns the job's allocations in the order in which it got them; none unless the processes of an
/// allocation on `machines` can open only its own GPUs.
plan::Allocations allocations_of(const ElasticJob& job, const slurm::JobRecord& record,
                                 const cluster::Cluster& machines);

/// GPUs that have a place in the layout.
HeldGpus gpus_of(const plan::Layout& layout);

/// Returns the plan of a program that starts anew over these GPUs: the best symmetric one with so
/// many micro-batches, with its TP groups within `allocations`. Nothing where none fits.
std::optional<plan::Layout> symmetric_layout(const models::Model& model,
                                             const perf::Coefficients& coefficients,
                                             const HeldGpus& held, int micro_batches,
                                             const cluster::Cluster& machines,
                                             const plan::Allocations& allocations = {});

}  // namespace swell::controller
