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

/// Times of a unit measured on one device: seconds of one micro-batch, and of the optimizer's step.
/// They include no communication.
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

/// Parts of a model that are measured. `pass`: the overhead of a chunk's pass besides its units.
enum class NodeUnit : unsigned char { layer, embedding, head, module, pass };
inline constexpr int kNodeUnits = 5;

/// Times of a model's units by GPU type, TP degree and samples of a micro-batch, as python -m
/// swell.profile measures them on one device of each type (Arena, section 3.4). Made by
/// from_json(); read by PerformanceModel, which uses its coefficients for values that the table
/// lacks. Immutable, hence safe between threads.
class NodeCosts {
 public:
  /// Reads a table of `model`. Ignores types that `cluster` does not have.
  static Result<NodeCosts> from_json(const Json& json, const models::Model& model,
                                     const cluster::Cluster& cluster);

  /// Returns the cost of a unit on one of `tp` GPUs: interpolated between two measured numbers of
  /// samples; beyond the measured range, in proportion to the samples. Returns nothing if the unit
  /// was not measured at this TP degree.
  std::optional<NodeCost> of(NodeUnit unit, int type, int tp, int samples) const noexcept;
  /// Returns the cost of a chunk with `load`, including its pass; nothing if one of its units was
  /// not measured.
  std::optional<NodeCost> chunk(const models::Load& load, int type, int tp,
                                int samples) const noexcept;
  /// Returns whether a layer was measured on a type.
  bool knows(int type) const noexcept;

  /// Sets the coefficients of measured types to agree with the measured layer times, so that
  /// missing shards are extrapolated from measured ones: from the lowest TP degree at the largest
  /// number of samples.
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
