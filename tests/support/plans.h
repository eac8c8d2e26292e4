// SPDX-License-Identifier: GPL-2.0-or-later
// Builders of models, clusters and plans for tests and benchmarks.
#pragma once

#include "core/cluster/presets.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace support {

inline swell::models::Model small_model(int layers = 8, int global_batch = 64) {
  return {"small", layers, 1024, 16, 16, 4096, false, true, 32000, 1024, global_batch, {}};
}

inline swell::cluster::Cluster h100_nodes(int nodes, int gpus = 8, double network = 400e9) {
  return swell::cluster::uniform_cluster("test", *swell::cluster::find_gpu_type("h100"), nodes,
                                         gpus, network);
}

/// Returns a cluster with alternating nodes of `gpus_a` h100 and of `gpus_b` a100.
inline swell::cluster::Cluster mixed_nodes(int gpus_a, int gpus_b, double network = 100e9) {
  using namespace swell::cluster;
  std::vector<Node> nodes = {
      {"n1", 0, std::vector<int>(static_cast<std::size_t>(gpus_a), 0), network},
      {"n2", 0, std::vector<int>(static_cast<std::size_t>(gpus_b), 1), network}};
  return Cluster::make("mixed", {*find_gpu_type("h100"), *find_gpu_type("a100")}, nodes).value();
}

/// Returns coefficients in round numbers, for calculation by hand: 1 ms for each layer and sample;
/// backward takes twice as long.
inline swell::perf::Coefficients round_coefficients(std::size_t types = 1) {
  swell::perf::Coefficients k;
  for (std::size_t i = 0; i < types; ++i)
    k.types.push_back({1e-3 * static_cast<double>(i + 1), 2.0, 4e-3, 1.0});
  k.activ_bytes = 1 << 20;
  k.param_bytes = 1e8;
  k.param_optim_bytes = 7e8;
  k.activ_p_bytes = 1e7;
  k.activ_np_bytes = 5e6;
  return k;
}

/// Appends a stage of `dp` groups of `tp` GPUs on `node`, starting at GPU `first`.
inline void add_stage(swell::plan::Layout& layout, int layers, int tp, int dp, int local_batch,
                      int node = 0, int first = 0, int type = 0) {
  swell::plan::StageLayout stage{layers, tp, {}};
  for (int j = 0; j < dp; ++j)
    stage.groups.push_back(
        {node, type, local_batch, ((swell::plan::GpuMask{1} << tp) - 1) << (first + j * tp)});
  layout.stages.push_back(stage);
}

inline bool near(double a, double b, double relative = 1e-9) {
  const double size = a > 0 ? a : -a;
  return (a > b ? a - b : b - a) <= relative * (size > 1e-300 ? size : 1e-300) + 1e-15;
}

}  // namespace support
