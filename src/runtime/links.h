// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/world.h"

namespace swell::runtime {

/// How long the links between devices are busy, in whole picoseconds, so that every rank computes
/// the same. A transfer within a node loads the sender's and the receiver's device link; one
/// between nodes their shares of the network cards and both nodes' network.
class Links {
 public:
  /// At most this many bytes a transfer.
  static constexpr std::int64_t kMaxBytes = std::int64_t{1} << 27;

  /// `places`: every device that sends or receives, all inside `cluster`.
  Links(const cluster::Cluster& cluster, const std::vector<Place>& places);

  /// Number of a place; REQUIRES: it was given.
  std::uint32_t number_of(Place place) const { return numbers_.at(place); }

  struct Path {
    int count = 0;
    std::array<std::uint32_t, 4> link{};
    std::array<std::uint64_t, 4> cost{};
  };
  /// What a transfer of `bytes` between two different devices adds, by their numbers.
  Path path(std::uint32_t from, std::uint32_t to, std::int64_t bytes) const noexcept;
  void add(const Path& path) noexcept;
  void remove(const Path& path) noexcept;
  /// The busiest of the path's links once it is added.
  std::uint64_t after(const Path& path) const noexcept;

  std::uint64_t load(std::uint32_t link) const noexcept { return loads_[link]; }
  std::uint32_t busiest() const noexcept;
  /// Whether the link is one that devices send over; its devices, by number.
  bool is_outgoing(std::uint32_t link) const noexcept;
  const std::vector<std::uint32_t>& devices_of(std::uint32_t link) const noexcept;

 private:
  std::uint64_t cost_between(std::uint32_t a, std::uint32_t b) const noexcept {
    return between_[a * nodes_ + b];
  }
  struct Device {
    std::uint32_t node;
    std::uint64_t link_cost, share_cost;  ///< picoseconds a KiB
  };
  std::map<Place, std::uint32_t> numbers_;
  std::vector<Device> devices_;
  std::vector<std::uint64_t> between_;  ///< picoseconds a KiB from node to node
  std::size_t nodes_ = 0;
  /// By device: link out, in, share out, in; then by node: out, in.
  std::vector<std::uint64_t> loads_;
  std::vector<std::vector<std::uint32_t>> members_;  ///< devices by node
  std::vector<std::vector<std::uint32_t>> alone_;    ///< a list of one a device
};

}  // namespace swell::runtime
