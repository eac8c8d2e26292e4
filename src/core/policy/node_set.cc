// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/node_set.h"

#include <algorithm>
#include <bit>

namespace swell::policy {

NodeSet NodeSet::first(std::size_t count) {
  NodeSet set;
  if (count == 0) return set;
  Bits& bits = set.own();
  bits.assign((count + kBits - 1) / kBits, ~std::uint64_t{0});
  if (count % kBits != 0) bits.back() = (std::uint64_t{1} << (count % kBits)) - 1;
  return set;
}

NodeSet::Bits& NodeSet::own() {
  if (bits_ == nullptr) bits_ = std::make_shared<Bits>();
  else if (bits_.use_count() > 1) bits_ = std::make_shared<Bits>(*bits_);
  return *bits_;
}

void NodeSet::settle() {
  if (bits_ != nullptr &&
      std::all_of(bits_->begin(), bits_->end(), [](std::uint64_t word) { return word == 0; }))
    bits_.reset();
}

void NodeSet::insert(NodeIndex node) {
  if (contains(node)) return;
  Bits& bits = own();
  const std::size_t word = static_cast<std::size_t>(node) / kBits;
  if (word >= bits.size()) bits.resize(word + 1);
  bits[word] |= std::uint64_t{1} << (node % kBits);
}

NodeSet& NodeSet::operator|=(const NodeSet& other) {
  if (other.empty() || shares_with(other)) return *this;
  if (empty()) return *this = other;
  Bits& bits = own();
  bits.resize(std::max(bits.size(), other.bits_->size()));
  for (std::size_t i = 0; i < other.bits_->size(); ++i) bits[i] |= (*other.bits_)[i];
  return *this;
}

NodeSet& NodeSet::operator&=(const NodeSet& other) {
  if (empty() || shares_with(other)) return *this;
  if (other.empty()) return *this = other;
  Bits& bits = own();
  bits.resize(std::min(bits.size(), other.bits_->size()));
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] &= (*other.bits_)[i];
  settle();
  return *this;
}

NodeSet& NodeSet::operator-=(const NodeSet& other) {
  if (empty() || other.empty()) return *this;
  if (shares_with(other)) return *this = NodeSet();
  Bits& bits = own();
  for (std::size_t i = 0; i < std::min(bits.size(), other.bits_->size()); ++i)
    bits[i] &= ~(*other.bits_)[i];
  settle();
  return *this;
}

std::vector<NodeIndex> NodeSet::nodes() const {
  std::vector<NodeIndex> result;
  if (bits_ == nullptr) return result;
  for (std::size_t i = 0; i < bits_->size(); ++i)
    for (std::uint64_t word = (*bits_)[i]; word != 0; word &= word - 1)
      result.push_back(static_cast<NodeIndex>(i * kBits) + std::countr_zero(word));
  return result;
}

}  // namespace swell::policy
