// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/held_gpus.h"
#include "controller/last_answer.h"
#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/models/model.h"
#include "core/plan/plan.h"
#include "core/policy/training.h"
#include "core/result.h"

namespace swell::controller {

/// The model that a job's user says it trains (swellrun --model), and what follows from it by the
/// data sheets of GPUs: what the job is planned by until it reports a profile. Pure; a copy is
/// cheap.
class ModelSheet {
 public:
  /// Reads what an agent says (core/models/model.h). The error is a sentence for the job's owner.
  static Result<ModelSheet> read(const Json& json);

  const models::Model& model() const noexcept { return *model_; }
  /// "gpt3-6.7b, 6.7e+09 parameters, 512 samples a step".
  std::string summary() const;

  /// The training as a policy's view has it: the best symmetric plan over the GPUs `basic`, and
  /// over `all` the plan that was decided last where it fits, else such a one. Null where no plan
  /// fits. The same object as long as nothing changed.
  std::shared_ptr<const policy::Training> seen(
      const HeldGpus& basic, const HeldGpus& all, const std::optional<plan::Plan>& decided,
      const std::shared_ptr<const cluster::Cluster>& machines,
      const plan::Allocations& allocations = {}) const;

 private:
  std::shared_ptr<const models::Model> model_;

  mutable LastAnswer<policy::Training, std::shared_ptr<const cluster::Cluster>, HeldGpus, HeldGpus,
                     std::optional<plan::Plan>, plan::Allocations>
      seen_;
};

}  // namespace swell::controller
