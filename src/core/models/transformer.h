// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/models/model.h"
#include "core/models/model_graph.h"

namespace swell::models {

/// How attention scores are computed: by one fused kernel that keeps them on the chip, or by
/// separate kernels that store them in memory.
enum class Scores { fused, stored };

/// Returns the operators of one transformer layer. Costs are those of the forward pass of one
/// sample in half precision; the sums of operations and parameters equal Model's.
std::vector<Operator> layer_operators(const Model& model, Scores scores = Scores::fused);

/// Returns the operators of the output projection and its cross-entropy, with costs of the same
/// kind. The parameters are Model::embedding_parameters().
std::vector<Operator> head_operators(const Model& model);

}  // namespace swell::models
