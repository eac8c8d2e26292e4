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

/// Kinds of operators, each with a share of peak speed of its own (perf/roofline.h).
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
  double flop = 0;          ///< of products; 0 elsewhere
  double read_bytes = 0;    ///< activations; the weights count once a micro-batch
  double write_bytes = 0;
  double weight_bytes = 0;
  double parameters = 0;         ///< without those that an earlier operator has
  double shared_parameters = 0;  ///< those that an earlier operator has
  double kept_split_bytes = 0;   ///< kept for the backward pass, divided by TP
  double kept_whole_bytes = 0;   ///< kept likewise, but whole on every GPU
  /// Extent of each dimension; 0: cannot be split along it.
  std::array<int, kSplitDimensions> split{};
  int extent(SplitDimension along) const noexcept { return split[static_cast<std::size_t>(along)]; }
  bool is_split_in_model() const noexcept {
    return extent(SplitDimension::columns) > 0 || extent(SplitDimension::heads) > 0 ||
           extent(SplitDimension::experts) > 0;
  }
};

/// Consecutive operators that the model has several times.
struct Repeat {
  int first = 0;      ///< index of the first operator
  int operators = 0;  ///< of one instance
  int times = 0;
};

/// A model as `python -m swell.graph` exports it (docs/planner.md, "Graphs").
struct Graph {
  std::string name;
  int sequence = 1;  ///< tokens of one sample; 1 where samples are not sequences
  int global_batch = 0;
  double parameter_bytes = 2;  ///< of one parameter
  std::vector<Operator> operators;
  std::vector<Repeat> repeats;  ///< by rising operators, disjoint

  /// How often the model has operator `index`.
  double parameters() const noexcept;
  double forward_flop() const noexcept;
};

inline constexpr int kGraphVersion = 1;
inline constexpr int kMostOperators = 1 << 16;
inline constexpr int kMostExpanded = 1 << 20;  ///< operators with all repeats

/// Whether `json` has the form of a graph, of any version.
bool is_graph(const Json& json) noexcept;
/// Reads a graph; the error names the operator, the member and its value.
Result<Graph> graph_from_json(const Json& json);

/// Costs of consecutive operators, each counted as often as the model has it.
struct OperatorCluster {
  Unit unit;                ///< costs of one sample; boundary_bytes: written by its last operator
  double weight_bytes = 0;  ///< read once a micro-batch
  double shared_parameters = 0;
  double load = 0;             ///< what clusters were balanced by
  std::vector<double> counts;  ///< how many it has of each of the graph's operators
};

/// Load of one operator, such as its seconds on a device.
using OperatorLoad = std::function<double(const Operator&)>;
inline constexpr int kClusters = 16;  ///< O of Arena's section 3.3

/// The model's operators in at most `most` clusters of consecutive operators, with the smallest
/// possible load of the fullest. REQUIRES: most >= 1.
std::vector<OperatorCluster> cluster_operators(const Graph& graph, int most,
                                               const OperatorLoad& load);

/// A graph as the planner reads models: equal layers between what the first and the last stage
/// have on top.
struct GraphChain {
  Model model;            ///< layers, heads, sequence, global batch; its widths are placeholders
  OperatorCluster first;  ///< in front of the layers
  OperatorCluster layer;  ///< the mean of all layers
  OperatorCluster last;   ///< behind the layers
};

/// The chain of `graph`. Layers are the repeats of its largest repeated block where that has at
/// least a quarter of the load and what stands before it at most a layer's; else kClusters
/// clusters. `heads`, whose divisors are the possible TP degrees, is what all extents of columns,
/// heads and experts have in common.
GraphChain chain_of(const Graph& graph, const OperatorLoad& load);

}  // namespace swell::models
