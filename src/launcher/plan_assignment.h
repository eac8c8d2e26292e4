// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/plan/plan.h"
#include "core/result.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// Assigns the ranks of `plan` to workers in its order: stage by stage, group by group, GPU by GPU.
/// The RankAssignment's plan is the text that programs get as SWELL_PLAN. Slurm chooses the GPUs of
/// a companion by itself: if it took other GPUs of a node than the plan names, these replace them.
/// Workers whose GPUs the plan does not use wait, without a program. The error says why the plan
/// does not fit the nodes. Each rank needs a worker of its own that has one GPU.
Result<RankAssignment> seat_by_plan(const plan::Plan& plan, const std::vector<WorkerNode>& nodes,
                                    int gpus_per_worker);

}  // namespace swell::launcher
