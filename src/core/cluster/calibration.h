// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace swell::cluster {

/// Bandwidth and latency measured with messages of one size.
struct MeasuredSize {
  double bytes = 0;
  double bytes_per_s = 0;
  double latency_s = 0;  ///< one way
};

/// Measurements over one distance (Fabric::distance), for all pairs of nodes tried.
struct MeasuredClass {
  int distance = 1;
  double bytes_per_s = 0;  ///< median over the pairs, for the largest message
  double latency_s = 0;    ///< median over the pairs, for the smallest message
  double spread = 0;       ///< (max - min) / median of the bandwidth
  int pairs = 0;
  std::vector<MeasuredSize> sizes;
};

/// Measured figures that `swell topo calibrate` wrote and an admin installed. They override
/// published and assumed figures. Within one node (distance 0) only host memory is measured, so GPU
/// links keep their published figures. docs/topology.md describes the file.
struct Calibration {
  std::string date;                    ///< ISO 8601, UTC
  std::string method;                  ///< "nccl", "ucx", "tcp", or several of them
  std::vector<MeasuredClass> classes;  ///< by rising distance
  /// Bytes a second between two nodes, by their names in alphabetical order.
  std::map<std::pair<std::string, std::string>, double> pairs;

  Json to_json() const;
  static Result<Calibration> from_json(const Json& json);
  /// Returns the class of `distance`, or null if it was not measured.
  const MeasuredClass* find(int distance) const noexcept;
};

}  // namespace swell::cluster
