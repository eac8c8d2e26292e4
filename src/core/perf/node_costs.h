// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/models/chain.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/result.h"

namespace swell::perf {

/// Times that were measured on one device for a unit: seconds of one micro-batch, and of the
/// optimizer's step. Communication takes no time in it.
struct NodeCost {
  double fwd = 0, bwd = 0, optim = 0;
  NodeCost& operator+=(const NodeCost& other) noexcept {
    fwd += other.fwd;
    bwd += other.bwd;
    optim += other.optim;
    return *this;
  }
  NodeCost operator*(double times) const noexcept {
    return {fwd * times, bwd * times, optim * times};
  }
};

/// Parts of a model that are measured. `pass`: what a chunk's pass takes beside its units.
enum class NodeUnit : unsigned char { layer, embedding, head, module, pass };
inline constexpr int kNodeUnits = 5;

/// Times of a model's units by GPU type, TP degree and samples of a micro-batch, as
/// python -m swell.profile measures them on one device of each type (Arena, section 3.4). Made by
/// from_json(); read by PerformanceModel, which computes what the table lacks from its
/// coefficients. Immutable, hence safe between threads.
class NodeCosts {
 public:
  /// Reads a table of `model`. Types that `cluster` has not are left out.
  static Result<NodeCosts> from_json(const Json& json, const models::Model& model,
                                     const cluster::Cluster& cluster);

  /// Cost of a unit on one of `tp` GPUs: interpolated between two measured numbers of samples,
  /// in proportion to the samples outside of these. None where no such shard was measured.
  std::optional<NodeCost> of(NodeUnit unit, int type, int tp, int samples) const noexcept;
  /// Cost of a chunk with `load`, its pass included; none where one of its units was not measured.
  std::optional<NodeCost> chunk(const models::Load& load, int type, int tp,
                                int samples) const noexcept;
  /// Whether a layer was measured on a type.
  bool knows(int type) const noexcept;

  /// Makes the coefficients of measured types agree with what was measured of a layer, so that
  /// shards that the table lacks are extrapolated from those it has: from the lowest TP degree at
  /// the largest number of samples.
  void fit(Coefficients& coefficients) const noexcept;

 private:
  struct Entry {
    int samples = 0;
    NodeCost cost;
  };
  struct Shard {
    int tp = 1;
    std::array<std::vector<Entry>, kNodeUnits> units;  ///< by rising samples
  };
  static Result<std::vector<Shard>> read_units(const Json& units, const models::Model& model);
  std::vector<std::vector<Shard>> types_;  ///< by Cluster's type index; by rising TP degree
};

}  // namespace swell::perf
