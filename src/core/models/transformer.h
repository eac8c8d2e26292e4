// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/models/model.h"
#include "core/models/model_graph.h"

namespace swell::models {

/// How attention's scores are computed: by one fused kernel that keeps them on the chip, or by
/// separate kernels that store them in memory.
enum class Scores { fused, stored };

/// The operators of one transformer layer. Costs are those of the forward pass of one sample in
/// half precision; operations and parameters sum up to Model's.
std::vector<Operator> layer_operators(const Model& model, Scores scores = Scores::fused);

/// The operators of the output projection and its cross-entropy, likewise. The parameters are
/// Model::embedding_parameters().
std::vector<Operator> head_operators(const Model& model);

}  // namespace swell::models
