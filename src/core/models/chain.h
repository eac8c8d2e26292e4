// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <cstdint>

#include "core/models/model.h"

namespace swell::models {

/// Kinds of units of a model. `head`: last norm, output projection and cross-entropy; `mtp_module`,
/// `mtp_head`: the module of a multi-token prediction head, and its projection and cross-entropy.
enum class UnitKind : std::uint8_t { embedding, layer, head, mtp_module, mtp_head };
inline constexpr int kUnitKinds = 5;

/// A part of a model that is never split over stages. Bytes and operations are those of one sample,
/// before division by the TP degree.
struct Unit {
  UnitKind kind = UnitKind::layer;
  double forward_flop = 0;
  double traffic_bytes = 0;  ///< activations that a forward pass reads and writes
  double parameters = 0;     ///< without matrices that units share, see Load
  double split_bytes = 0;    ///< kept for the backward pass, divided by TP
  double whole_bytes = 0;    ///< kept for the backward pass, whole on every GPU
  /// Bytes sent between this unit and the next one if a stage ends here: the input of a later unit,
  /// which is the output of this unit or of an earlier one; 0 for the last unit.
  double boundary_bytes = 0;
  int reads = -1;  ///< index of the earlier unit whose output it reads; -1: none
};

/// Number of units of each kind in a run of units, or on a stage. The embedding and MTP modules
/// read the embedding matrix; heads read the output matrix, which is the same if embeddings are
/// tied. A stage has each matrix once.
struct Load {
  int embeddings = 0;
  int layers = 0;
  int heads = 0;    ///< heads of both kinds
  int modules = 0;  ///< modules of MTP heads
  int units() const noexcept { return embeddings + layers + heads + modules; }
  bool has_embedding() const noexcept { return embeddings + modules > 0; }
  bool has_output() const noexcept { return heads > 0; }
  /// Returns the number of matrices of the size of the embedding.
  int matrices(bool tied) const noexcept {
    return tied ? (has_embedding() || has_output() ? 1 : 0)
                : (has_embedding() ? 1 : 0) + (has_output() ? 1 : 0);
  }
  Load& operator+=(const Load& other) noexcept {
    embeddings += other.embeddings;
    layers += other.layers;
    heads += other.heads;
    modules += other.modules;
    return *this;
  }
  friend bool operator==(const Load&, const Load&) = default;
};

/// A model as the chain of its units, in model order: the embedding, each layer, the head, and for
/// each MTP head its module and its head. Each unit reads the one before it, except that no unit
/// reads a head: the first MTP module reads the last layer, and the others read the module before.
/// Keeps one unit of each kind, so that its size does not grow with the model.
class Chain {
 public:
  explicit Chain(const Model& model) noexcept;
  int units() const noexcept { return units(layers_, mtp_heads_); }
  int layers() const noexcept { return layers_; }
  int mtp_heads() const noexcept { return mtp_heads_; }
  /// Returns unit `index` of the model.
  Unit at(int index) const noexcept;
  UnitKind kind_at(int index) const noexcept;
  const Unit& of(UnitKind kind) const noexcept { return kinds_[static_cast<std::size_t>(kind)]; }
  /// Returns the load of units [first, end).
  Load load(int first, int end) const noexcept;
  /// Returns the load of a stage of `layers` layers in a pipeline with one chunk a stage: the
  /// embedding is on the first stage, all heads are on the last.
  Load stage(int layers, bool first, bool last) const noexcept {
    return {first ? 1 : 0, layers, last ? 1 + mtp_heads_ : 0, last ? mtp_heads_ : 0};
  }
  /// Returns the number of parameters of `load`, counting shared matrices once.
  double parameters(const Load& load) const noexcept;
  /// Return the work and the parameters of an MTP module, in layers.
  double module_work() const noexcept { return module_work_; }
  double module_parameters() const noexcept { return module_parameters_; }

  static int units(int layers, int mtp_heads) noexcept { return layers + 2 + 2 * mtp_heads; }

 private:
  int layers_, mtp_heads_;
  bool tied_;
  double matrix_;
  double module_work_ = 0, module_parameters_ = 0;
  std::array<Unit, kUnitKinds> kinds_;
};

inline Chain chain_of(const Model& model) { return Chain(model); }

}  // namespace swell::models
