// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "core/cluster/gpu_type.h"
#include "core/result.h"

namespace swell::predict {

/// Times of all-reduces within one node: measured where there is a table, otherwise a latency and
/// the ring's volume over three quarters of the link.
class AllreduceTable {
 public:
  /// A table without measurements.
  explicit AllreduceTable(const cluster::GpuType& gpu) : link_bytes_per_s_(gpu.link_bytes_per_s) {}
  /// Reads the columns gpu, num_gpus, bytes, time_ns_outofplace, and keeps the rows of `gpu`.
  static Result<AllreduceTable> from_csv(std::string_view text, const cluster::GpuType& gpu);

  /// Seconds to all-reduce `bytes` over `gpus` GPUs of one node; 0 for one GPU.
  double seconds(int gpus, double bytes) const;

 private:
  double link_bytes_per_s_;
  std::map<int, std::map<double, double>> measured_;  ///< seconds, by GPUs and bytes
};

}  // namespace swell::predict
