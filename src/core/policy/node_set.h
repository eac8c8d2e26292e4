// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

namespace swell::policy {

/// An index into ClusterView::nodes.
using NodeIndex = int;

/// A set of nodes, with one bit for each node. Copies share their bits until one of them changes:
/// the tasks of an array, and demands with equal node lists, cost the memory of one set.
class NodeSet {
 public:
  NodeSet() = default;
  NodeSet(std::initializer_list<NodeIndex> nodes) {
    for (const NodeIndex node : nodes) insert(node);
  }
  /// Returns the set of the first `count` nodes.
  static NodeSet first(std::size_t count);

  bool empty() const noexcept { return bits_ == nullptr; }
  bool contains(NodeIndex node) const noexcept {
    const std::size_t word = static_cast<std::size_t>(node) / kBits;
    return bits_ != nullptr && word < bits_->size() && ((*bits_)[word] >> (node % kBits) & 1) != 0;
  }
  /// REQUIRES: `node` is not negative.
  void insert(NodeIndex node);
  NodeSet& operator|=(const NodeSet& other);
  NodeSet& operator&=(const NodeSet& other);
  NodeSet& operator-=(const NodeSet& other);
  /// Returns the nodes, rising.
  std::vector<NodeIndex> nodes() const;
  /// Returns whether both are the same set in memory, or both empty: a quick test for equality that
  /// may miss some equal sets.
  bool shares_with(const NodeSet& other) const noexcept { return bits_ == other.bits_; }
  friend bool operator==(const NodeSet& a, const NodeSet& b) {
    return a.shares_with(b) || a.nodes() == b.nodes();
  }

 private:
  static constexpr int kBits = 64;
  using Bits = std::vector<std::uint64_t>;
  Bits& own();    ///< the bits, shared with no other set
  void settle();  ///< drops bits that are all 0

  std::shared_ptr<Bits> bits_;  ///< null: empty
};

}  // namespace swell::policy
