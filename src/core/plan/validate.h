// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/plan/plan.h"

namespace swell::plan {

/// Returns an error unless `plan` may train `model` on `cluster` by the rules of Suika's appendix
/// A.1. The error names the stage, the rule and the value:
///  - at least one stage; each has layers, and together they have each layer of the model once;
///  - chunks, if listed, satisfy Plan::check_chunks() and have the units of the model;
///  - a stage's TP degree divides the model's heads, and every group has as many GPUs as that
///    degree (times CP);
///  - a group's GPUs are of one node and one type, exist there, and are in no other group;
///  - each group has at least one sample, and the samples of a stage, times the micro-batches, are
///    the global batch.
/// Memory is not checked: perf::MemoryModel does that.
Result<void> validate(const Plan& plan, const models::Model& model,
                      const cluster::Cluster& cluster);

}  // namespace swell::plan
