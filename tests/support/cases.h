// SPDX-License-Identifier: GPL-2.0-or-later
// Generated planning problems: models, clusters, coefficients and starting plans from one seed.
#pragma once

#include <memory>
#include <optional>
#include <random>

#include "core/models/catalogue.h"
#include "core/planner/affinity.h"
#include "core/planner/symmetric.h"
#include "support/plans.h"

namespace support {

/// A job on part of a cluster, with all objects that the planner refers to.
struct Case {
  /// Pointers, since `perf` keeps references to them.
  std::unique_ptr<swell::models::Model> model;
  std::unique_ptr<swell::cluster::Cluster> cluster;
  std::unique_ptr<swell::perf::Coefficients> coefficients;
  std::unique_ptr<swell::perf::PerformanceModel> perf;
  swell::plan::Layout start;

  swell::planner::Problem problem() const {
    return {*perf, start, swell::planner::unused(start, *cluster)};
  }
};

class CaseGenerator {
 public:
  explicit CaseGenerator(unsigned seed) : random_(seed) {}

  int between(int min, int max) { return std::uniform_int_distribution<int>(min, max)(random_); }
  double factor(double spread) {
    return std::exp(std::uniform_real_distribution<double>(-spread, spread)(random_));
  }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<int>(values.size()) - 1)];
  }

  /// Makes a case of at most `max_gpus` GPUs on `nodes` nodes of one or two types. The job starts
  /// with the best symmetric plan on some of them, as if a user had tuned it. Returns nothing if
  /// the model does not fit there.
  std::optional<Case> make(int nodes, int max_gpus, int min_start, int max_start) {
    using namespace swell;
    Case made;
    const int micro_batch = one_of({4, 6, 8, 12, 16}), micro_batches = one_of({4, 8, 16, 32});
    const int heads = one_of({16, 32}), hidden = heads * 128;
    made.model = std::make_unique<models::Model>(models::Model{"generated",
                                                               between(6, 16),
                                                               hidden,
                                                               heads,
                                                               heads,
                                                               4 * hidden,
                                                               false,
                                                               false,
                                                               32000,
                                                               one_of({1024, 2048}),
                                                               micro_batch * micro_batches,
                                                               {}});
    made.cluster = std::make_unique<cluster::Cluster>(make_cluster(nodes, max_gpus));
    made.coefficients = std::make_unique<perf::Coefficients>(
        perf::expected_coefficients(*made.model, *made.cluster));
    for (auto& type : made.coefficients->types) {
      type.comp_s *= factor(0.3);
      type.backward *= factor(0.2);
      type.overlap = 1 + 2 * std::uniform_real_distribution<double>(0, 1)(random_);
    }
    made.perf =
        std::make_unique<perf::PerformanceModel>(*made.model, *made.cluster, *made.coefficients);
    const int wanted = between(min_start, std::min(max_start, made.cluster->gpu_count()));
    planner::Islands gpus;
    int taken = 0;
    for (int n = 0; n < static_cast<int>(made.cluster->nodes().size()); ++n)
      for (int g = 0; g < static_cast<int>(made.cluster->node(n).gpus.size()) && taken < wanted;
           ++g, ++taken)
        planner::add_to(gpus, n, made.cluster->type_of({n, g}), plan::GpuMask{1} << g);
    planner::Evaluator evaluator(*made.perf, micro_batch);
    auto start = planner::best_symmetric(evaluator, gpus, micro_batches,
                                         planner::degrees_for(heads, micro_batch), {});
    if (!(start.seconds < 1e300)) return std::nullopt;
    made.start = std::move(start.layout);
    return made;
  }

 private:
  swell::cluster::Cluster make_cluster(int nodes, int max_gpus) {
    using namespace swell::cluster;
    const std::vector<GpuType> types = {*find_gpu_type(one_of({"h100", "a100", "h200"})),
                                        *find_gpu_type(one_of({"a100-40g", "a40", "l20", "v100"}))};
    const bool two_types = between(0, 3) > 0;
    const double network = one_of({12.5e9, 50e9, 100e9, 400e9});
    std::vector<Node> list;
    int left = max_gpus;
    for (int n = 0; n < nodes; ++n) {
      const int type = two_types ? between(0, 1) : 0;
      const int share =
          n + 1 == nodes
              ? left
              : std::min(left - (nodes - n - 1),
                         std::max(1, between(max_gpus / nodes - 1, max_gpus / nodes + 1)));
      left -= share;
      std::vector<int> gpus(static_cast<std::size_t>(share), type);
      if (two_types && nodes == 1)
        for (std::size_t g = gpus.size() / 2; g < gpus.size(); ++g) gpus[g] = 1 - type;
      list.push_back({"n" + std::to_string(n + 1), n / 2, gpus, network});
    }
    return Cluster::make("generated", types, list, {one_of({0.5, 1.0})}).value();
  }
  std::mt19937 random_;
};

}  // namespace support
