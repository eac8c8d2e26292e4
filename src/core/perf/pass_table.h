// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/perf/performance_model.h"

namespace swell::perf {

/// Caches PerformanceModel::layer_passes() of one model: planners repeatedly ask for few different
/// values. For one thread; the model must outlive it.
class PassTable {
 public:
  /// `micro_batch`: maximum local batch that is cached.
  PassTable(const PerformanceModel& model, int micro_batch)
      : model_(model),
        batches_(static_cast<std::size_t>(micro_batch) + 1),
        known_(model.cluster().types().size() * kTpClasses * batches_) {}

  PerformanceModel::Passes of(int type, int tp, int local_batch) {
    const auto tp_class = static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(tp)));
    if (tp_class >= kTpClasses || tp != 1 << tp_class ||
        static_cast<std::size_t>(local_batch) >= batches_)
      return model_.layer_passes(type, tp, local_batch);
    PerformanceModel::Passes& known =
        known_[(static_cast<std::size_t>(type) * kTpClasses + tp_class) * batches_ +
               static_cast<std::size_t>(local_batch)];
    if (known.fwd == 0) known = model_.layer_passes(type, tp, local_batch);
    return known;
  }
  /// Returns dp_commu_extra(). Stages of one plan, and plans that differ in one stage, mostly pass
  /// the same arguments.
  double commu_extra(double bwd, double commu, double overlap) {
    const std::uint64_t mixed =
        (std::bit_cast<std::uint64_t>(bwd) * 3 + std::bit_cast<std::uint64_t>(commu)) *
        0x9e3779b97f4a7c15u;
    Extra& known = extras_[mixed >> 56];
    if (known.bwd != bwd || known.commu != commu || known.overlap != overlap)
      known = {bwd, commu, overlap, dp_commu_extra(bwd, commu, overlap)};
    return known.extra;
  }

 private:
  struct Extra {
    double bwd = -1, commu = 0, overlap = 0, extra = 0;
  };
  static constexpr std::size_t kTpClasses = 7;  ///< TP degrees from 1 to 64, powers of two
  const PerformanceModel& model_;
  std::size_t batches_;
  std::vector<PerformanceModel::Passes> known_;  ///< by type, log2 of TP and local batch
  std::array<Extra, 256> extras_;                ///< by a hash of the arguments
};

}  // namespace swell::perf
