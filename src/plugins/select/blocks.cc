// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/blocks.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

namespace swell::select {

namespace {

void add_name(std::string& list, const std::string& name) {
  if (!list.empty()) list += ',';
  list += name;
}

}  // namespace

std::shared_ptr<const Blocks> blocks_from(const cluster::Fabric& fabric,
                                          const std::vector<NodeKind>& kinds) {
  if (fabric.levels() < 1) return nullptr;
  const std::vector<std::vector<int>> leaves = groups_of(fabric, 1);
  if (leaves.size() < 2) return nullptr;

  auto blocks = std::make_shared<Blocks>();
  std::vector<int> leaf_of(static_cast<std::size_t>(fabric.size()), -1);
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    std::string names;
    for (int node : leaves[leaf]) {
      leaf_of[static_cast<std::size_t>(node)] = static_cast<int>(leaf);
      add_name(names, fabric.node(node).name);
    }
    blocks->leaves.push_back(std::move(names));
    blocks->nodes += static_cast<int>(leaves[leaf].size());
  }

  std::map<NodeKind, std::string> by_kind;
  for (int node = 0; node < fabric.size(); ++node)
    add_name(by_kind[kinds.at(static_cast<std::size_t>(node))], fabric.node(node).name);
  for (auto& [kind, names] : by_kind) blocks->alike.push_back(std::move(names));

  // Each leaf is also a group of the lowest level, so that idle_cover() prefers one leaf to any two
  // leaves under one switch.
  auto& lowest = blocks->groups.emplace_back();
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf)
    lowest.push_back({static_cast<int>(leaf)});
  for (int level = 2; level <= fabric.levels(); ++level) {
    auto& groups = blocks->groups.emplace_back();
    for (const std::vector<int>& nodes : groups_of(fabric, level)) {
      std::vector<int> group;
      for (int node : nodes)
        if (const int leaf = leaf_of[static_cast<std::size_t>(node)]; leaf >= 0)
          group.push_back(leaf);
      std::sort(group.begin(), group.end());
      group.erase(std::unique(group.begin(), group.end()), group.end());
      groups.push_back(std::move(group));
    }
  }
  std::vector<int> all(leaves.size());
  std::iota(all.begin(), all.end(), 0);
  blocks->groups.push_back({std::move(all)});
  return blocks;
}

}  // namespace swell::select
