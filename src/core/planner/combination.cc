// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/combination.h"

#include <cstdint>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "core/count_of.h"
#include "core/models/chain.h"

namespace swell::planner {

Result<void> check_combination(const perf::Combination& degrees, const models::Model& model) {
  const std::pair<const char*, int> all[] = {
      {"PP", degrees.pp},
      {"DP", degrees.dp},
      {"TP", degrees.tp},
      {"the number of micro-batches", degrees.micro_batches}};
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
  if (model.kv_heads % degrees.tp != 0)
    return Error(fmt::format("TP {} does not divide the {} for keys and values of model {}",
                             degrees.tp, count_of(model.kv_heads, "head"), model.name));
  if (const auto ranks = std::int64_t{degrees.dp} * model.cp; ranks % model.ep != 0)
    return Error(fmt::format("EP {} does not divide the {} of DP {} and CP {}", model.ep,
                             count_of(ranks, "rank"), degrees.dp, model.cp));
  return {};
}

Result<void> check_gpus(int gpus, const models::Model& model) {
  if (gpus % model.cp != 0)
    return Error(fmt::format("CP {} does not divide {}", model.cp, count_of(gpus, "GPU")));
  if (gpus % std::lcm(model.cp, model.ep) != 0)
    return Error(fmt::format("EP {} does not divide the ranks of any DP on {}{}", model.ep,
                             count_of(gpus, "GPU"),
                             model.cp > 1 ? fmt::format(" with CP {}", model.cp) : ""));
  return {};
}

void leave_out_indivisible(ScaleTable& table, const models::Model& model) {
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    const auto good = check_gpus(table.rows[i].gpus, model);
    if (good) continue;
    table.rows[i].omitted = RowRule::indivisible;
    table.rows[i].why = good.error().message();
  }
}

}  // namespace swell::planner
