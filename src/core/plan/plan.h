// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace swell::plan {

/// Bytes of the JSON of a plan that a message takes: those of any document.
inline constexpr std::size_t kMaxPlan = 32768;

/// A tensor parallel group, Suika's T_{i,j}: `tp` GPUs of one type on one node that hold one
/// replica of a stage together. With context parallelism it has TP x CP GPUs, so CP replicas, which
/// share the tokens of a sample.
struct TpGroup {
  std::string node;
  std::string gpu_type;
  std::vector<int> gpus;  ///< indexes on the node, rising
  int local_batch = 0;    ///< b_{i,j}: samples of each micro-batch that this group computes
  friend bool operator==(const TpGroup&, const TpGroup&) = default;
};

/// A pipeline stage, Suika's D_i: data parallel TP groups of one degree.
struct Stage {
  int layers = 0;  ///< l_i
  int tp = 1;      ///< TP_i
  std::vector<TpGroup> groups;
  /// Number of units (models/chain.h) of each chunk, in model order; empty: one chunk, with the
  /// layers, on the first stage the embedding, and on the last all heads. Chunk c of a stage stands
  /// before chunk c of the next; chunk c + 1 of the first stage stands behind chunk c of the last.
  /// A chunk of 0 units only passes activations along.
  std::vector<int> chunks{};
  int dp() const noexcept { return static_cast<int>(groups.size()); }
  /// Units of all its chunks.
  long units() const noexcept;
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// A PP-DP-TP plan over concrete GPUs, possibly asymmetric (Suika, appendix A.1). Made by the
/// planner or read from JSON; read by the runtime, the launcher and the judge. It names nodes
/// and types, so that it means the same to every program.
struct Plan {
  int micro_batches = 0;  ///< N_b: micro-batches of one iteration
  std::vector<Stage> stages;
  /// A name or text that schedule::schedule_for() reads; empty: the program's own, 1F1B or
  /// interleaved.
  std::string schedule{};
  /// Degrees of context and of expert parallelism, which a change keeps. EP 1 also stands for a
  /// plan that does not say it.
  int cp = 1, ep = 1;

  int pp() const noexcept { return static_cast<int>(stages.size()); }
  int gpu_count() const noexcept;
  /// Samples of one micro-batch, summed over the first stage.
  int micro_batch_samples() const noexcept;
  /// "20L dp4 tp2 | 20L dp4 tp2", for tables and logs; with chunks "20L in 11+10 dp4 tp2"; with CP
  /// and EP ", cp2 ep8" behind it; with a schedule ", zero-bubble".
  std::string summary() const;

  bool has_chunks() const noexcept { return !stages.empty() && !stages.front().chunks.empty(); }
  /// Whether the chunks are those of one model: each stage lists as many, and has a unit; the units
  /// are those of all layers with embedding and head, and two for each MTP head; and `layers` of
  /// each stage is the number of layers among its units.
  Result<void> check_chunks() const;
  /// Whether `schedule` can be read, and is for these stages, chunks and micro-batches.
  Result<void> check_schedule() const;
  /// Removes the lists of chunks where each stage lists one, of the units that it has without a
  /// list.
  void drop_plain_chunks();

  /// Reads {"micro_batches", "stages": [{"layers", "tp", "groups": [{"node", "gpu_type", "gpus",
  /// "local_batch"}], "chunks": [units, ...]}], "schedule", "cp", "ep"}. Chunks that sum to the
  /// layers alone are read as if the first with a layer also had the embedding, and the last the
  /// head. An item of "groups" with "nodes", a list, in place of "node" stands for equal groups in
  /// their order: on each node, one for each `tp` x `cp` of "gpus"; one with "names" is a table
  /// (docs/planner.md).
  /// Checks the form only (validate() checks the rest); errors name the stage and the group.
  static Result<Plan> from_json(const Json& json);
  static Result<Plan> parse(std::string_view text);
  /// Writes a plan of more than 64 groups by "nodes"; where that has more than kMaxPlan bytes,
  /// which no message takes, by "nodes" or as tables, whatever is shorter. Swell read no tables at
  /// first.
  Json to_json() const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace swell::plan
