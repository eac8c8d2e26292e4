// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/plan/links.h"

#include <algorithm>

namespace swell::runtime {

namespace {

/// Returns the picoseconds for 1,024 bytes, capped so that those for kMaxBytes fit 64 bits.
std::uint64_t cost_of_kib(double bytes_per_s) {
  constexpr double kLongest = 1e11;
  return static_cast<std::uint64_t>(std::min(1024e12 / bytes_per_s, kLongest));
}

std::uint64_t cost_of(std::int64_t bytes, std::uint64_t per_kib) noexcept {
  return (static_cast<std::uint64_t>(bytes) * per_kib) >> 10;
}

}  // namespace

Links::Links(const cluster::Cluster& cluster, const std::vector<cluster::GpuRef>& gpus) {
  for (const cluster::GpuRef gpu : gpus) numbers_.emplace(gpu, 0);
  std::vector<int> nodes;
  for (auto& [gpu, number] : numbers_) {
    number = static_cast<std::uint32_t>(devices_.size());
    if (nodes.empty() || nodes.back() != gpu.node) {
      nodes.push_back(gpu.node);
      members_.emplace_back();
    }
    const cluster::Node& node = cluster.node(gpu.node);
    const double share = node.network_bytes_per_s / static_cast<double>(node.gpus.size());
    devices_.push_back({static_cast<std::uint32_t>(nodes.size() - 1),
                        cost_of_kib(cluster.type(cluster.type_of(gpu)).link_bytes_per_s),
                        cost_of_kib(share)});
    members_.back().push_back(number);
    alone_.push_back({number});
  }
  nodes_ = nodes.size();
  between_.resize(nodes_ * nodes_);
  for (std::size_t a = 0; a < nodes_; ++a)
    for (std::size_t b = 0; b < nodes_; ++b)
      if (a != b)
        between_[a * nodes_ + b] = cost_of_kib(cluster.node_bandwidth(nodes[a], nodes[b]));
  loads_.resize(4 * devices_.size() + 2 * nodes_);
}

Links::Path Links::path(std::uint32_t from, std::uint32_t to, std::int64_t bytes) const noexcept {
  const Device &a = devices_[from], &b = devices_[to];
  if (a.node == b.node) {
    const std::uint64_t cost = cost_of(bytes, std::max(a.link_cost, b.link_cost));
    return {2, {4 * from, 4 * to + 1}, {cost, cost}};
  }
  const auto first_node = static_cast<std::uint32_t>(4 * devices_.size());
  const std::uint64_t cost = cost_of(bytes, cost_between(a.node, b.node));
  return {4,
          {4 * from + 2, 4 * to + 3, first_node + 2 * a.node, first_node + 2 * b.node + 1},
          {cost_of(bytes, a.share_cost), cost_of(bytes, b.share_cost), cost, cost}};
}

void Links::add(const Path& path) noexcept {
  for (std::size_t i = 0; i < static_cast<std::size_t>(path.count); ++i)
    loads_[path.link[i]] += path.cost[i];
}

void Links::remove(const Path& path) noexcept {
  for (std::size_t i = 0; i < static_cast<std::size_t>(path.count); ++i)
    loads_[path.link[i]] -= path.cost[i];
}

std::uint64_t Links::after(const Path& path) const noexcept {
  std::uint64_t max = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(path.count); ++i)
    max = std::max(max, loads_[path.link[i]] + path.cost[i]);
  return max;
}

std::uint32_t Links::busiest() const noexcept {
  return static_cast<std::uint32_t>(std::max_element(loads_.begin(), loads_.end()) -
                                    loads_.begin());
}

bool Links::is_outgoing(std::uint32_t link) const noexcept { return link % 2 == 0; }

const std::vector<std::uint32_t>& Links::devices_of(std::uint32_t link) const noexcept {
  return link < 4 * devices_.size() ? alone_[link / 4] : members_[(link - 4 * devices_.size()) / 2];
}

}  // namespace swell::runtime
