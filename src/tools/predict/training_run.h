// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::predict {

/// One measured training configuration: a row of the input of `swell predict`.
struct TrainingRun {
  int hidden = 0, heads = 0, layers = 0, seq = 0;
  int gpus = 0, global_batch = 0, micro_batch = 0;
  int tp = 1, dp = 1, pp = 1;
  std::string gpu;        ///< as in the file: "A100"
  std::string recompute;  ///< "full", "selective" or "none"
  double iteration_s = 0;

  double micro_batches() const noexcept {
    return static_cast<double>(global_batch) / dp / micro_batch;
  }
  /// Returns whether both rows are of one model.
  bool same_model(const TrainingRun& other) const noexcept {
    return hidden == other.hidden && heads == other.heads && layers == other.layers &&
           seq == other.seq;
  }
  std::string model_name() const;  ///< "h1024-l12-s1024"
};

/// Reads CSV text with a header line. Required columns: num_gpus, global_batch, micro_batch,
/// hidden, heads, layers, seq, tp, dp, pp, and iter_time_s or iter_time_ms. Optional columns: gpu
/// and recompute (defaults "a100" and "full"). Other columns are ignored. Errors name line and
/// column.
Result<std::vector<TrainingRun>> training_runs_from_csv(std::string_view text);

}  // namespace swell::predict
