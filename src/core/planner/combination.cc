// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/combination.h"

#include <cstdint>
#include <fmt/format.h>
#include <utility>

#include "core/count_of.h"
#include "core/models/chain.h"

namespace swell::planner {

Result<void> check_combination(const perf::Combination& degrees, const models::Model& model,
                               KeptDegrees kept) {
  const std::pair<const char*, int> all[] = {
      {"PP", degrees.pp}, {"DP", degrees.dp},
      {"TP", degrees.tp}, {"CP", kept.cp},
      {"EP", kept.ep},    {"the number of micro-batches", degrees.micro_batches}};
  for (const auto& [name, degree] : all)
    if (degree < 1) return Error(fmt::format("{} is {}; it is at least 1", name, degree));
  if (model.global_batch % (std::int64_t{degrees.dp} * degrees.micro_batches) != 0)
    return Error(fmt::format("DP {} in {} does not divide the global batch of {} evenly",
                             degrees.dp, count_of(degrees.micro_batches, "micro-batch"),
                             count_of(model.global_batch, "sample")));
  const models::Chain chain(model);
  const bool has_chunks = degrees.chunks > 0;
  if (const int most = has_chunks ? chain.units() : chain.layers(); degrees.pp > most)
    return Error(fmt::format("PP {} leaves stages empty: model {} has {}", degrees.pp, model.name,
                             count_of(most, has_chunks ? "unit" : "layer")));
  if (model.heads % degrees.tp != 0)
    return Error(fmt::format("TP {} does not divide the {} of model {}", degrees.tp,
                             count_of(model.heads, "head"), model.name));
  if (model.sequence % kept.cp != 0)
    return Error(fmt::format("CP {} does not divide the {} of a sample", kept.cp,
                             count_of(model.sequence, "token")));
  if (kept.ep > 1 && model.moe.experts % kept.ep != 0)
    return Error(fmt::format("EP {} does not divide the {} of a layer", kept.ep,
                             count_of(model.moe.experts, "expert")));
  if (const auto ranks = std::int64_t{degrees.dp} * kept.cp; ranks % kept.ep != 0)
    return Error(fmt::format("EP {} does not divide the {} of DP {} and CP {}", kept.ep,
                             count_of(ranks, "rank"), degrees.dp, kept.cp));
  return {};
}

}  // namespace swell::planner
