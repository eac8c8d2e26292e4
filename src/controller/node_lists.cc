// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/node_lists.h"

#include <algorithm>
#include <limits>

#include "core/slurm_text/hostlist.h"

namespace swell::controller {

using policy::NodeIndex;
using policy::NodeSet;

namespace {

/// A list costs at least as much as this number of names.
constexpr long kCostOfList = 300;

}  // namespace

NodeLists::NodeLists(const std::vector<const slurm::NodeRecord*>& nodes,
                     const std::vector<slurm::NodeRecord>& all)
    : nodes_in_all_(all.size()), all_(NodeSet::first(nodes.size())) {
  const auto add = [&](const slurm::NodeRecord& node, NodeIndex index) {
    for (const std::string& feature : node.features) by_feature_[feature].insert(index);
  };
  index_.reserve(nodes.size());
  for (const slurm::NodeRecord* node : nodes) {
    const auto index = static_cast<NodeIndex>(index_.size());
    index_[node->name] = index;
    add(*node, index);
  }
  for (const slurm::NodeRecord& node : all)
    if (!index_.contains(node.name)) {
      const auto index = static_cast<NodeIndex>(index_.size() + outside_.size());
      outside_[node.name] = index;
      add(node, index);
    }
}

NodeIndex NodeLists::index_of(std::string_view name) const {
  const auto found = index_.find(name);
  return found != index_.end() ? found->second : -1;
}

const NodeSet& NodeLists::with_feature(const std::string& feature) const {
  static const NodeSet none;
  const auto found = by_feature_.find(feature);
  return found != by_feature_.end() ? found->second : none;
}

const NodeLists::Named* NodeLists::of_running(const slurm::SharedText& list) {
  long no_limit = std::numeric_limits<long>::max();
  return read(list, no_limit);
}

const NodeLists::Named* NodeLists::of_pending(const slurm::SharedText& list) {
  return read(list, names_left_);
}

const NodeLists::Named* NodeLists::read(const slurm::SharedText& list, long& names_left) {
  static const Named none;
  if (list.empty()) return &none;
  if (const auto found = named_.find(list.get()); found != named_.end()) return &found->second;
  const long max = std::min<long>(names_left, 2 * static_cast<long>(nodes_in_all_));
  long names = 0;
  Named named;
  const Result<void> done = slurm_text::visit_hostlist(list.get(), [&](std::string_view name) {
    if (const NodeIndex node = index_of(name); node >= 0) named.nodes.insert(node);
    else named.all_known = false;
    return ++names <= max;
  });
  names_left -= std::min(std::max(names, kCostOfList), max);
  if (names > max) return nullptr;
  if (!done) named.all_known = false;
  return &named_.emplace(list.get(), std::move(named)).first->second;
}

std::optional<NodeSet> NodeLists::ruled_out_for(const slurm::JobRecord& pending) {
  const std::string key = pending.features.get() + '\n' + pending.excluded_nodes.get();
  if (const auto found = ruled_out_.find(key); found != ruled_out_.end()) return found->second;
  const Named* excluded = of_pending(pending.excluded_nodes);
  if (excluded == nullptr) return std::nullopt;
  NodeSet ruled_out = excluded->nodes;
  if (!pending.features.empty()) {
    const auto [possible, is_new] = possible_.try_emplace(pending.features.get());
    if (is_new) {
      const Result<Constraint> constraint = Constraint::parse(pending.features.get());
      possible->second = constraint ? constraint->possible(
                                          [this](const std::string& feature) -> const NodeSet& {
                                            return with_feature(feature);
                                          },
                                          all_)
                                    : all_;
    }
    NodeSet without = all_;
    ruled_out |= (without -= possible->second);
  }
  return ruled_out_.emplace(key, std::move(ruled_out)).first->second;
}

NodeSet NodeLists::not_lent_to(const slurm::JobRecord& running) {
  const Named* excluded = of_running(running.excluded_nodes);
  if (excluded == nullptr) return all_;
  if (running.features.empty()) return excluded->nodes;
  const Result<Constraint> constraint = Constraint::parse(running.features.get());
  if (!constraint) return all_;
  NodeSet own;
  for (const std::string& name : running.nodes)
    if (const NodeIndex node = index_of(name); node >= 0) own.insert(node);
    else if (const auto outside = outside_.find(name); outside != outside_.end())
      own.insert(outside->second);
  NodeSet result = all_;
  result -= constraint->lendable(
      [this](const std::string& feature) -> const NodeSet& { return with_feature(feature); }, own);
  return result |= excluded->nodes;
}

}  // namespace swell::controller
