// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/world.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <xxhash.h>

#include "runtime/state/region.h"

namespace swell::runtime {

namespace {

std::string text_of(const Box& box) {
  std::string text;
  for (std::size_t d = 0; d < static_cast<std::size_t>(box.dims); ++d)
    text += fmt::format("{}{}:{}", d == 0 ? "[" : ", ", box.begin[d], box.end[d]);
  return text + "]";
}

/// Checks that the parts of a distribution give each element to some rank, and none twice to the
/// same rank.
Result<void> check_cover(const World::Distribution& distribution, const std::vector<Part>& parts,
                         const Shape& shape) {
  std::set<std::uint32_t> distinct;
  for (const Holding& holding : distribution) distinct.insert(holding.part);
  std::map<std::uint32_t, std::vector<Box>> boxes;
  for (std::uint32_t part : distinct) {
    if (auto good = check(parts[part], shape); !good) return good.error();
    boxes[part] = boxes_of(parts[part]);
  }
  std::vector<Box> missing{box_of(Shape(shape.size(), 0), shape)}, rest;
  for (const auto& [part, its] : boxes)
    for (const Box& box : its) {
      rest.clear();
      for (const Box& one : missing) subtract(one, box, rest);
      missing.swap(rest);
    }
  if (!missing.empty())
    return Error(fmt::format("no rank holds elements {}", text_of(missing.front())));
  for (std::size_t i = 0; i < distribution.size(); ++i)
    for (std::size_t j = i + 1;
         j < distribution.size() && distribution[j].rank == distribution[i].rank; ++j)
      for (const Box& a : boxes[distribution[i].part])
        for (const Box& b : boxes[distribution[j].part])
          if (const auto both = common(a, b))
            return Error(fmt::format("rank {} holds elements {} twice", distribution[i].rank,
                                     text_of(*both)));
  return {};
}

}  // namespace

const World::Tensor* World::find(std::string_view name) const {
  if (const auto alias = aliases_.find(name); alias != aliases_.end()) name = alias->second;
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Tensor& tensor, std::string_view key) { return tensor.info.name < key; });
  return at != tensors_.end() && at->info.name == name ? &*at : nullptr;
}

std::uint32_t WorldBuilder::add_rank(cluster::GpuRef gpu) {
  world_.ranks_.push_back(gpu);
  world_.entries_.emplace_back();
  return static_cast<std::uint32_t>(world_.ranks_.size() - 1);
}

Result<std::uint32_t> WorldBuilder::add_tensor(const TensorInfo& info) {
  const auto next = static_cast<std::uint32_t>(world_.tensors_.size());
  if (last_tensor_ < next) {
    const std::uint32_t likely = followers_[last_tensor_];
    if (likely < next && world_.tensors_[likely].info == info) return last_tensor_ = likely;
  }
  const auto [at, added] = numbers_.try_emplace(info.name, next);
  if (added) {
    if (info.name.empty() || info.name.size() > kMaxName)
      return Error(fmt::format("a tensor's name has {} bytes; 1 to {} are possible",
                               info.name.size(), kMaxName));
    if (auto good = element_count(info.shape); !good)
      return good.error().while_doing("tensor " + info.name);
    world_.tensors_.push_back({info, 0});
    holdings_.emplace_back();
    followers_.push_back(next + 1);
  } else if (world_.tensors_[at->second].info != info) {
    return Error(
        fmt::format("tensor {}: two ranks disagree on its shape, dtype, kind or layer", info.name));
  }
  if (last_tensor_ < next) followers_[last_tensor_] = at->second;
  return last_tensor_ = at->second;
}

std::uint32_t WorldBuilder::add_part(const Part& part) {
  const auto [at, added] =
      part_numbers_.try_emplace(part, static_cast<std::uint32_t>(world_.parts_.size()));
  if (added) world_.parts_.push_back(part);
  return at->second;
}

void WorldBuilder::hold(std::uint32_t rank, std::uint32_t tensor, std::uint32_t part) {
  holdings_[tensor].push_back({rank, part});
}

void WorldBuilder::add(std::uint32_t rank, Numbered entry) {
  hold(rank, entry.tensor, entry.part);
  world_.entries_[rank].push_back(entry);
}

Result<void> WorldBuilder::add(std::uint32_t rank, const Entry& entry) {
  Result<void> good;
  const auto tensor = add_tensor(entry.tensor);
  if (tensor) {
    add(rank, Numbered{*tensor, add_part(entry.part)});
    if (!entry.alias_of.empty()) good = add_alias(entry.tensor.name, entry.alias_of);
  } else {
    good = tensor.error();
  }
  if (!good) return good.error().while_doing(fmt::format("rank {}", rank));
  return good;
}

Result<void> WorldBuilder::add_alias(const std::string& alias, const std::string& name) {
  if (alias == name) return Error(fmt::format("tensor {} is an alias of itself", name));
  const auto [at, added] = world_.aliases_.try_emplace(alias, name);
  if (!added && at->second != name)
    return Error(fmt::format("tensor {} is an alias of both {} and {}; it can be of one", alias,
                             at->second, name));
  return {};
}

Result<World> WorldBuilder::finish() && {
  for (const auto& [alias, name] : world_.aliases_) {
    const auto from = numbers_.find(alias), to = numbers_.find(name);
    if (world_.aliases_.contains(name))
      return Error(
          fmt::format("tensor {} is an alias of {}, which is an alias itself", alias, name));
    if (from == numbers_.end()) continue;
    if (to == numbers_.end())
      return Error(fmt::format("tensor {} is an alias of {}, which no rank holds", alias, name));
    const TensorInfo &a = world_.tensors_[from->second].info, &b = world_.tensors_[to->second].info;
    if (a.shape != b.shape || a.dtype != b.dtype)
      return Error(fmt::format("tensor {} is an alias of {}, which has another shape or dtype",
                               alias, name));
    auto& held = holdings_[to->second];
    held.insert(held.end(), holdings_[from->second].begin(), holdings_[from->second].end());
    holdings_[from->second].clear();
  }
  std::vector<std::uint32_t> order(world_.tensors_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return world_.tensors_[a].info.name < world_.tensors_[b].info.name;
  });

  std::vector<World::Tensor> sorted;
  std::vector<std::uint32_t> sorted_number(order.size());  // the sorted number, by number so far
  std::unordered_multimap<std::uint64_t, std::uint32_t> known;  // distributions by hash
  std::set<std::pair<std::uint32_t, Shape>> checked;
  for (const std::uint32_t index : order) {
    World::Tensor& tensor = world_.tensors_[index];
    if (world_.aliases_.contains(tensor.info.name)) continue;
    World::Distribution& held = holdings_[index];
    if (!std::is_sorted(held.begin(), held.end())) std::sort(held.begin(), held.end());
    // A rank that holds a tied tensor under both names holds it once: aliases on one rank share
    // memory.
    held.erase(std::unique(held.begin(), held.end()), held.end());
    const std::uint64_t hash = XXH3_64bits(held.data(), held.size() * sizeof(Holding));
    tensor.distribution = static_cast<std::uint32_t>(world_.distributions_.size());
    const auto [first, last] = known.equal_range(hash);
    for (auto at = first; at != last; ++at)
      if (world_.distributions_[at->second] == held) tensor.distribution = at->second;
    if (tensor.distribution == world_.distributions_.size()) {
      known.emplace(hash, tensor.distribution);
      world_.distributions_.push_back(std::move(held));
    }
    if (checked.emplace(tensor.distribution, tensor.info.shape).second)
      if (auto good = check_cover(world_.distributions_[tensor.distribution], world_.parts_,
                                  tensor.info.shape);
          !good)
        return good.error().while_doing("tensor " + tensor.info.name);
    sorted_number[index] = static_cast<std::uint32_t>(sorted.size());
    sorted.push_back(std::move(tensor));
  }
  for (const auto& [alias, name] : world_.aliases_)
    if (const auto at = numbers_.find(alias); at != numbers_.end())
      sorted_number[at->second] = sorted_number[numbers_.at(name)];
  for (auto& entries : world_.entries_)
    for (Numbered& entry : entries) entry.tensor = sorted_number[entry.tensor];
  world_.tensors_ = std::move(sorted);
  return std::move(world_);
}

Result<World> merge(const std::vector<RankState>& ranks) {
  WorldBuilder builder;
  for (const RankState& state : ranks) {
    const std::uint32_t rank = builder.add_rank(state.gpu);
    for (const Entry& entry : state.entries)
      if (auto good = builder.add(rank, entry); !good) return good.error();
  }
  return std::move(builder).finish();
}

}  // namespace swell::runtime
