// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/models/chain.h"
#include "core/models/model.h"
#include "core/result.h"

namespace swell::models {

/// Kinds of operators, each with its own share of peak speed (perf/roofline.h).
enum class OperatorKind : std::uint8_t {
  matmul,
  convolution,
  attention,
  embedding,
  norm,
  loss,
  elementwise
};
inline constexpr int kOperatorKinds = 7;

/// Dimensions along which an operator can be divided among GPUs.
enum class SplitDimension : std::uint8_t { samples, columns, heads, experts };
inline constexpr int kSplitDimensions = 4;

/// An operator of a model's forward pass. Operations and bytes are those of one sample.
struct Operator {
  std::string name;
  OperatorKind kind = OperatorKind::elementwise;
  std::vector<int> inputs;  ///< earlier operators whose outputs it reads
  double flop = 0;          ///< of matrix products; 0 for other kinds
  double read_bytes = 0;    ///< activations; the weights count once a micro-batch
  double write_bytes = 0;
  double weight_bytes = 0;
  double parameters = 0;         ///< without parameters of earlier operators
  double shared_parameters = 0;  ///< parameters shared with earlier operators
  double kept_split_bytes = 0;   ///< kept for the backward pass, divided by TP
  double kept_whole_bytes = 0;   ///< kept for the backward pass, whole on every GPU
  /// Extent of each dimension; 0: cannot be split along it.
  std::array<int, kSplitDimensions> split{};
  int extent(SplitDimension along) const noexcept { return split[static_cast<std::size_t>(along)]; }
  bool is_split_in_model() const noexcept {
    return extent(SplitDimension::columns) > 0 || extent(SplitDimension::heads) > 0 ||
           extent(SplitDimension::experts) > 0;
  }
};

/// Consecutive operators that occur several times in the model.
struct Repeat {
  int first = 0;      ///< index of the first operator
  int operators = 0;  ///< number of operators in one instance
  int times = 0;
};

/// A model as `python -m swell.graph` exports it (docs/planner.md, "Graphs").
struct Graph {
  std::string name;
  int sequence = 1;  ///< tokens of one sample; 1 if samples are not sequences
  int global_batch = 0;
  double parameter_bytes = 2;  ///< bytes of one parameter
  std::vector<Operator> operators;
  std::vector<Repeat> repeats;  ///< disjoint, in rising order of operators

  /// Returns the number of all parameters.
  double parameters() const noexcept;
  double forward_flop() const noexcept;
};

inline constexpr int kGraphVersion = 1;
inline constexpr int kMostOperators = 1 << 16;
inline constexpr int kMostExpanded = 1 << 20;  ///< maximum number of operators with all repeats

/// Returns whether `json` has the form of a graph, in any version.
bool is_graph(const Json& json) noexcept;
/// Reads a graph; the error names the operator, the member and its value.
Result<Graph> graph_from_json(const Json& json);

/// Costs of consecutive operators, each counted as often as it occurs in the model.
struct OperatorCluster {
  Unit unit;                ///< costs of one sample; boundary_bytes: written by its last operator
  double weight_bytes = 0;  ///< read once a micro-batch
  double shared_parameters = 0;
  double load = 0;             ///< the load by which clusters were balanced
  std::vector<double> counts;  ///< how often it has each of the graph's operators
};

/// Load of one operator, such as its seconds on a device.
using OperatorLoad = std::function<double(const Operator&)>;
inline constexpr int kClusters = 16;  ///< O of Arena's section 3.3

/// Groups the model's operators into at most `most` clusters of consecutive operators, with the
/// smallest possible load of the fullest one. REQUIRES: most >= 1.
std::vector<OperatorCluster> cluster_operators(const Graph& graph, int most,
                                               const OperatorLoad& load);

/// A graph in the form in which the planner reads models: equal layers, and the additional parts of
/// the first and the last stage.
struct GraphChain {
  Model model;            ///< layers, heads, sequence, global batch; its widths are placeholders
  OperatorCluster first;  ///< in front of the layers
  OperatorCluster layer;  ///< the mean of all layers
  OperatorCluster last;   ///< behind the layers
};

/// Returns the chain of `graph`. Layers are the repeats of its largest repeated block if that has
/// at least a quarter of the load, and the part before it has at most a layer's load; else
/// kClusters clusters. `heads` is the greatest common divisor of all extents of columns, heads and
/// experts; its divisors are the possible TP degrees.
GraphChain chain_of(const Graph& graph, const OperatorLoad& load);

}  // namespace swell::models
