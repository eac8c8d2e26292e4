// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace swell::plan {

/// Maximum size in bytes of a plan's JSON in a message: the same as of any document.
inline constexpr std::size_t kMaxPlan = 32768;

/// A tensor parallel group, Suika's T_{i,j}: `tp` GPUs of one type on one node that together hold
/// one replica of a stage. With context parallelism the group has TP x CP GPUs, hence CP replicas,
/// which share the tokens of a sample.
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
  /// Number of units (models/chain.h) of each chunk, in model order. Empty: one chunk with the
  /// layers, plus the embedding on the first stage and all heads on the last. Chunk c of a stage
  /// comes before chunk c of the next stage; chunk c + 1 of the first stage comes after chunk c of
  /// the last. A chunk of 0 units only passes activations along.
  std::vector<int> chunks{};
  int dp() const noexcept { return static_cast<int>(groups.size()); }
  /// Returns the units of all its chunks.
  long units() const noexcept;
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// A PP-DP-TP plan over concrete GPUs, possibly asymmetric (Suika, appendix A.1). Made by the
/// planner or read from JSON; read by the runtime, the launcher and the judge. It has names of
/// nodes and types, so that it means the same to every program.
struct Plan {
  int micro_batches = 0;  ///< N_b: micro-batches of one iteration
  std::vector<Stage> stages;
  /// A name or text for schedule::schedule_for(); empty: the program's default, 1F1B or
  /// interleaved.
  std::string schedule{};
  /// Degrees of context and expert parallelism, which stay the same when the plan changes. EP 1
  /// also stands for a plan without "ep".
  int cp = 1, ep = 1;

  int pp() const noexcept { return static_cast<int>(stages.size()); }
  int gpu_count() const noexcept;
  /// Returns the samples of one micro-batch, summed over the first stage.
  int micro_batch_samples() const noexcept;
  /// Returns "20L dp4 tp2 | 20L dp4 tp2", for tables and logs; with chunks "20L in 11+10 dp4 tp2";
  /// CP and EP follow as ", cp2 ep8", a schedule as ", zero-bubble".
  std::string summary() const;

  bool has_chunks() const noexcept { return !stages.empty() && !stages.front().chunks.empty(); }
  /// Returns an error unless the chunks are valid for one model: each stage lists the same number
  /// of chunks and has a unit; the units are those of all layers, embedding and head, and two for
  /// each MTP head; and `layers` of each stage is the number of layers among its units.
  Result<void> check_chunks() const;
  /// Returns an error unless `schedule` can be read and has the plan's stages, chunks and
  /// micro-batches.
  Result<void> check_schedule() const;
  /// Removes the lists of chunks if each stage lists a single chunk with the units that it would
  /// have without a list.
  void drop_plain_chunks();

  /// Reads {"micro_batches", "stages": [{"layers", "tp", "groups": [{"node", "gpu_type", "gpus",
  /// "local_batch"}], "chunks": [units, ...]}], "schedule", "cp", "ep"}. If the chunks sum to the
  /// layers alone, adds the embedding to the first chunk with a layer, and the head to the last. An
  /// item of "groups" with "nodes", a list, instead of "node" stands for equal groups in order: on
  /// each node, one for every `tp` x `cp` of "gpus". An item with "names" is a table
  /// (docs/planner.md).
  /// Checks only the form (validate() checks the rest). Errors name the stage and the group.
  static Result<Plan> from_json(const Json& json);
  static Result<Plan> parse(std::string_view text);
  /// Writes a plan of more than 64 groups by "nodes". If that exceeds kMaxPlan bytes, the maximum
  /// of a message, writes it by "nodes" or as tables, whichever is shorter. The first versions of
  /// Swell cannot read tables.
  Json to_json() const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace swell::plan
