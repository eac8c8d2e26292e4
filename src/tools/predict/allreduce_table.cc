// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/allreduce_table.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "tools/predict/csv.h"

namespace swell::predict {

namespace {

constexpr double kLinkShare = 0.75;  // share of a link's peak that NCCL's rings reach
constexpr double kLatency_s = 40e-6;

}  // namespace

Result<AllreduceTable> AllreduceTable::from_csv(std::string_view text,
                                                const cluster::GpuType& gpu) {
  auto csv = Csv::parse(text);
  if (!csv) return csv.error();
  AllreduceTable table(gpu);
  const auto gpu_column = csv->column("gpu");
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    if (gpu_column) {
      const auto type = cluster::find_gpu_type(csv->field(row, *gpu_column));
      if (!type || type->name != gpu.name) continue;
    }
    auto gpus = csv->whole(row, "num_gpus", 2, 1 << 16);
    if (!gpus) return gpus.error();
    auto bytes = csv->number(row, "bytes", 1, 1e15);
    if (!bytes) return bytes.error();
    auto time = csv->number(row, "time_ns_outofplace", 1, 1e15);
    if (!time) return time.error();
    table.measured_[*gpus][*bytes] = *time * 1e-9;
  }
  return table;
}

double AllreduceTable::seconds(int gpus, double bytes) const {
  if (gpus <= 1) return 0;
  const auto curve = measured_.find(gpus);
  if (curve == measured_.end()) {
    const double ring = 2.0 * (gpus - 1) / gpus * bytes;
    return kLatency_s + ring / (kLinkShare * link_bytes_per_s_);
  }
  const auto above = curve->second.lower_bound(bytes);
  if (above == curve->second.end()) {
    const auto& [max_bytes, time] = *std::prev(above);
    return time * bytes / max_bytes;
  }
  // Smaller than any measured: latency alone.
  if (above == curve->second.begin()) return above->second;
  const auto below = std::prev(above);
  const double part = (bytes - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

}  // namespace swell::predict
