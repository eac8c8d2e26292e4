// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bit>
#include <cstddef>
#include <vector>

#include "core/perf/performance_model.h"

namespace swell::perf {

/// Remembers PerformanceModel::layer_passes() of one model: planners ask for few different ones,
/// again and again. For one thread; the model must outlive it.
class PassTable {
 public:
  /// `micro_batch`: the largest local batch that is remembered.
  PassTable(const PerformanceModel& model, int micro_batch)
      : model_(model),
        batches_(static_cast<std::size_t>(micro_batch) + 1),
        known_(model.cluster().types().size() * kTpClasses * batches_) {}

  PerformanceModel::Passes of(int type, int tp, int local_batch) {
    const auto tp_class = static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(tp)));
    if (!std::has_single_bit(static_cast<unsigned>(tp)) || tp_class >= kTpClasses ||
        static_cast<std::size_t>(local_batch) >= batches_)
      return model_.layer_passes(type, tp, local_batch);
    PerformanceModel::Passes& known =
        known_[(static_cast<std::size_t>(type) * kTpClasses + tp_class) * batches_ +
               static_cast<std::size_t>(local_batch)];
    if (known.fwd == 0) known = model_.layer_passes(type, tp, local_batch);
    return known;
  }

 private:
  static constexpr std::size_t kTpClasses = 7;  ///< TP degrees from 1 to 64, powers of two
  const PerformanceModel& model_;
  std::size_t batches_;
  std::vector<PerformanceModel::Passes> known_;  ///< by type, log2 of TP and local batch
};

}  // namespace swell::perf
