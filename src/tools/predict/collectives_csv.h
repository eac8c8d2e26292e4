// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/collectives.h"
#include "core/result.h"

namespace swell::predict {

/// A series of a file, and the network over which it was measured ("" if the file has no such
/// column).
struct MeasuredSeries {
  cluster::CollectiveSeries series;
  std::string net;
  /// As in the file: "send_p2p_ray" is a send measured with software other than NCCL.
  std::string primitive;
};

/// Reads CSV text in either of two forms, recognized by its columns. Arena's form: gpu_type, nodes,
/// gpus_per_node, primitive, group_size, num_groups, nodes_spanned, bytes, latency_s (net is
/// optional). vTrain's form, all-reduces within one node: gpu (optional: a100), num_gpus, bytes,
/// time_ns_outofplace. GPU types are renamed as in the catalogue; other columns are ignored. The
/// error names the row and the fault: an unknown type or primitive, sizes that do not rise, a time
/// of 0.
Result<std::vector<MeasuredSeries>> series_from_csv(std::string_view text);

/// Returns the table of `measured`. If a GPU type has several networks, only the series of `net`
/// count; without `net`, the error names the networks. A send measured with other software is used
/// if there is none with NCCL.
Result<cluster::CollectiveTable> collective_table(std::vector<MeasuredSeries> measured,
                                                  const std::string& net);

/// Reads a table from CSV, or from the JSON that `swell topo import` writes.
Result<cluster::CollectiveTable> collective_table(std::string_view text, const std::string& net);

}  // namespace swell::predict
