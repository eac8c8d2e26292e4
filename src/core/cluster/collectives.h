// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace swell::cluster {

/// Collective operations, and a send between two ranks.
enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, send };
inline constexpr int kCollectives = 5;
/// "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "send".
const char* to_string(Collective what) noexcept;
std::optional<Collective> find_collective(std::string_view name) noexcept;

/// How the ranks of one group stand, and what communicates beside it.
struct CollectiveShape {
  int ranks_a_node = 1;   ///< of one group
  int nodes = 1;          ///< of one group
  int groups_a_node = 1;  ///< groups at a time that share each node
  int groups = 1;         ///< groups at a time, on all nodes
  int ranks() const noexcept { return ranks_a_node * nodes; }
  bool is_between_nodes() const noexcept { return nodes > 1; }
  friend auto operator<=>(const CollectiveShape&, const CollectiveShape&) = default;
};
inline constexpr int kMostRanks = 1 << 16;

/// Seconds of one collective by bytes: those of the whole buffer of one rank.
struct CollectiveSeries {
  struct Size {
    double bytes = 0;
    double seconds = 0;
    friend bool operator==(const Size&, const Size&) = default;
  };
  std::string type;  ///< of GPU, as in the catalogue
  Collective what = Collective::all_reduce;
  CollectiveShape shape;
  std::vector<Size> sizes;  ///< by rising bytes, not empty

  /// Linear between measured sizes. Below the smallest its latency, above the largest its
  /// bandwidth.
  double seconds(double bytes) const noexcept;
};

/// Names what is wrong with a series: no sizes, a size that falls, a time of 0, a shape below 1.
Result<void> check(const CollectiveSeries& series);

/// Measured times of collectives (Arena, section 3.4): from `swell topo import`, read by `swell
/// predict`. Immutable once made.
class CollectiveTable {
 public:
  /// A table without measurements.
  CollectiveTable() = default;
  /// Each series must pass check(); the error names one that is there twice, or a collective that a
  /// type lacks: all-reduces and sends may stand alone, the three others need each other.
  static Result<CollectiveTable> make(std::vector<CollectiveSeries> series);

  /// Seconds of `what` among GPUs of `type`, with `bytes` in the whole buffer of a rank; 0 for one
  /// rank. A shape that was not measured: by the nearest one, whose time is divided by its ring
  /// steps (2(p - 1) of an all-reduce, p - 1 of the others), each of bytes / p; groups that share a
  /// node's network divide it. A reduce-scatter or all-gather without any series: half of an
  /// all-reduce. Nothing where no shape was measured that stays within a node, or leaves it, as
  /// this one does.
  std::optional<double> seconds(std::string_view type, Collective what,
                                const CollectiveShape& shape, double bytes) const noexcept;

  const std::vector<CollectiveSeries>& series() const noexcept { return series_; }

  Json to_json() const;
  static Result<CollectiveTable> from_json(const Json& json);

 private:
  const CollectiveSeries* nearest(std::string_view type, Collective what,
                                  const CollectiveShape& shape) const noexcept;
  std::vector<CollectiveSeries> series_;  ///< by type, collective and shape
};

}  // namespace swell::cluster
