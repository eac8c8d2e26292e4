// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/state/world.h"

namespace swell::runtime {

/// Loads of the links between devices: the time for which each is busy, in whole picoseconds, so
/// that every rank computes the same values. A transfer within a node loads the device links of the
/// sender and the receiver; a transfer between nodes loads both devices' shares of the network
/// cards, and the network of both nodes.
class Links {
 public:
  /// Maximum bytes of one transfer.
  static constexpr std::int64_t kMaxBytes = std::int64_t{1} << 27;

  /// Creates the links between `gpus`, all devices that send or receive. REQUIRES: `cluster` has
  /// these GPUs.
  Links(const cluster::Cluster& cluster, const std::vector<cluster::GpuRef>& gpus);

  /// Returns the number of a GPU. REQUIRES: the constructor was given it.
  std::uint32_t number_of(cluster::GpuRef gpu) const { return numbers_.at(gpu); }

  /// Links that one transfer uses, and the picoseconds that it adds to each.
  struct Path {
    int count = 0;
    std::array<std::uint32_t, 4> link{};
    std::array<std::uint64_t, 4> cost{};
  };
  /// Returns the path of a transfer of `bytes` between two different devices, by their numbers.
  Path path(std::uint32_t from, std::uint32_t to, std::int64_t bytes) const noexcept;
  void add(const Path& path) noexcept;
  void remove(const Path& path) noexcept;
  /// Returns the largest load among the path's links after adding the path.
  std::uint64_t after(const Path& path) const noexcept;

  std::uint64_t load(std::uint32_t link) const noexcept { return loads_[link]; }
  std::uint32_t busiest() const noexcept;
  /// is_outgoing() returns whether devices send over the link; devices_of() returns the numbers of
  /// its devices.
  bool is_outgoing(std::uint32_t link) const noexcept;
  const std::vector<std::uint32_t>& devices_of(std::uint32_t link) const noexcept;

 private:
  std::uint64_t cost_between(std::uint32_t a, std::uint32_t b) const noexcept {
    return between_[a * nodes_ + b];
  }
  struct Device {
    std::uint32_t node;
    std::uint64_t link_cost, share_cost;  ///< picoseconds per KiB
  };
  std::map<cluster::GpuRef, std::uint32_t> numbers_;
  std::vector<Device> devices_;
  std::vector<std::uint64_t> between_;  ///< picoseconds per KiB from node to node
  std::size_t nodes_ = 0;
  /// Load of each link. For each device: link out, link in, share out, share in; then for each
  /// node: out, in.
  std::vector<std::uint64_t> loads_;
  std::vector<std::vector<std::uint32_t>> members_;  ///< devices of each node
  /// Each device in a list of its own, for devices_of().
  std::vector<std::vector<std::uint32_t>> alone_;
};

}  // namespace swell::runtime
