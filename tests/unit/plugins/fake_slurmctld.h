// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "plugins/select/narrowing.h"

/// Slurm's bitmaps and cons_tres, as far as select's logic sees them: nodes n0, n1, ...
namespace swell::select {
struct Bitmap {
  std::vector<bool> bits;
};
}  // namespace swell::select

namespace fake {

using swell::select::Bitmap;
using swell::select::JobTest;

inline int live_bitmaps = 0;
inline int node_count = 0;
inline Bitmap idle_nodes;
inline Bitmap* idle_pointer = &idle_nodes;
/// Nodes that cons_tres finds room on, and what it does besides.
inline std::vector<bool> fits;
inline std::function<bool(const JobTest&)> accepts;
inline std::vector<JobTest> calls;
inline std::vector<std::string> asked;  ///< the candidates of each call

inline std::string text(const Bitmap& map) {
  std::string result;
  for (std::size_t i = 0; i < map.bits.size(); ++i)
    if (map.bits[i]) result += (result.empty() ? "" : " ") + std::to_string(i);
  return result;
}

inline Bitmap* made(std::vector<bool> bits) {
  ++live_bitmaps;
  return new Bitmap{std::move(bits)};
}

inline swell::select::Bitmaps bitmaps() {
  swell::select::Bitmaps api;
  api.copy = [](const Bitmap* map) { return made(map->bits); };
  api.free = [](Bitmap** map) {
    delete *map;
    *map = nullptr;
    --live_bitmaps;
  };
  api.assign = [](Bitmap* to, const Bitmap* from) { to->bits = from->bits; };
  api.keep_common = [](Bitmap* in, const Bitmap* with) {
    for (std::size_t i = 0; i < in->bits.size(); ++i) in->bits[i] = in->bits[i] && with->bits.at(i);
  };
  api.add = [](Bitmap* to, const Bitmap* more) {
    for (std::size_t i = 0; i < to->bits.size(); ++i) to->bits[i] = to->bits[i] || more->bits.at(i);
  };
  api.invert = [](Bitmap* map) { map->bits.flip(); };
  api.first_of = [](const Bitmap* map, std::int64_t how_many) -> Bitmap* {
    std::vector<bool> first(map->bits.size());
    for (std::size_t i = 0; i < first.size() && how_many > 0; ++i)
      if (map->bits[i]) {
        first[i] = true;
        --how_many;
      }
    return how_many > 0 ? nullptr : made(std::move(first));
  };
  api.count = [](const Bitmap* map) {
    return static_cast<std::int32_t>(std::count(map->bits.begin(), map->bits.end(), true));
  };
  api.count_common = [](const Bitmap* a, const Bitmap* b) {
    std::int32_t common = 0;
    for (std::size_t i = 0; i < a->bits.size(); ++i) common += a->bits[i] && b->bits.at(i) ? 1 : 0;
    return common;
  };
  api.size = [](const Bitmap* map) { return static_cast<std::int64_t>(map->bits.size()); };
  api.from_names = [](const char* names, bool, Bitmap** map, void*) {
    *map = made(std::vector<bool>(static_cast<std::size_t>(node_count)));
    std::istringstream in{std::string(names)};
    for (std::string name; std::getline(in, name, ',');)
      if (const auto index = std::stoul(name.substr(1)); index < (*map)->bits.size())
        (*map)->bits[index] = true;
    return 0;
  };
  api.idle = &idle_pointer;
  return api;
}

/// Takes the first nodes that fit, as cons_tres does with nodes that are all alike.
inline int cons_tres(const JobTest& call) {
  calls.push_back(call);
  asked.push_back(text(*call.nodes));
  if (accepts && !accepts(call)) return -1;
  std::vector<bool> taken(call.nodes->bits.size());
  std::uint32_t count = 0;
  const std::uint32_t wanted = std::max(call.min_nodes, call.wanted_nodes);
  for (std::size_t i = 0; i < taken.size() && count < wanted; ++i)
    if (call.nodes->bits[i] && fits[i]) {
      taken[i] = true;
      ++count;
    }
  call.nodes->bits = taken;
  return count >= call.min_nodes ? 0 : -1;
}

/// `count` nodes, all of them idle.
inline void reset(int count) {
  live_bitmaps = 0;
  node_count = count;
  idle_nodes.bits.assign(static_cast<std::size_t>(count), true);
  idle_pointer = &idle_nodes;
  fits.assign(static_cast<std::size_t>(count), true);
  accepts = nullptr;
  calls.clear();
  asked.clear();
}

inline void use(std::initializer_list<int> nodes) {
  for (int node : nodes)
    fits[static_cast<std::size_t>(node)] = idle_nodes.bits[static_cast<std::size_t>(node)] = false;
}

}  // namespace fake
