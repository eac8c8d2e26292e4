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
/// Returns "all-reduce", "reduce-scatter", "all-gather", "all-to-all" or "send".
const char* to_string(Collective what) noexcept;
std::optional<Collective> find_collective(std::string_view name) noexcept;

/// Placement of the ranks of one group, and the number of groups that communicate at the same time.
struct CollectiveShape {
  int ranks_a_node = 1;   ///< ranks of one group on each node
  int nodes = 1;          ///< nodes of one group
  int groups_a_node = 1;  ///< concurrent groups that share each node
  int groups = 1;         ///< concurrent groups on all nodes
  int ranks() const noexcept { return ranks_a_node * nodes; }
  bool is_between_nodes() const noexcept { return nodes > 1; }
  friend auto operator<=>(const CollectiveShape&, const CollectiveShape&) = default;
};
inline constexpr int kMostRanks = 1 << 16;

/// Seconds of one collective by the bytes in the whole buffer of one rank.
struct CollectiveSeries {
  struct Size {
    double bytes = 0;
    double seconds = 0;
    friend bool operator==(const Size&, const Size&) = default;
  };
  std::string type;  ///< GPU type, as in the catalogue
  Collective what = Collective::all_reduce;
  CollectiveShape shape;
  std::vector<Size> sizes;  ///< by rising bytes, not empty

  /// Returns the seconds for `bytes`: linear between measured sizes; below the smallest, the
  /// seconds of the smallest; above the largest, by its bandwidth.
  double seconds(double bytes) const noexcept;
};

/// Returns an error for an invalid series: no sizes, sizes that do not rise, a time of 0, a shape
/// below 1.
Result<void> check(const CollectiveSeries& series);

/// Measured times of collectives (Arena, section 3.4): made by `swell topo import`, read by `swell
/// predict`. Immutable.
class CollectiveTable {
 public:
  /// Makes a table without measurements.
  CollectiveTable() = default;
  /// Makes a table. Each series must pass check(). The error names a series that occurs twice, or a
  /// collective that a type lacks: all-reduces and sends may occur alone, but the three others need
  /// each other.
  static Result<CollectiveTable> make(std::vector<CollectiveSeries> series);

  /// Returns the seconds of `what` among GPUs of `type`, with `bytes` in the whole buffer of a
  /// rank; 0 for one rank. If the shape was not measured, scales the time of the nearest shape by
  /// the number of ring steps (2(p - 1) for an all-reduce, p - 1 for the others), each of bytes /
  /// p, and by the number of groups that share a node's network. A reduce-scatter or all-gather
  /// without any series takes half of an all-reduce. Returns nothing if all measured shapes stay
  /// within a node and this one does not, or the reverse.
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
