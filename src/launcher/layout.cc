// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/layout.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::launcher {

Layout lay_out(const std::vector<Place>& places, int gpus_per_worker, int max_gpus) {
  Layout layout;
  int left = max_gpus / std::max(1, gpus_per_worker);
  for (const Place& place : places) {
    const int here = std::min(place.workers, left);
    if (here <= 0) continue;
    left -= here;
    for (int local = 0; local < here; ++local)
      layout.seats.push_back(
          {{place.id, local}, static_cast<int>(layout.seats.size()), layout.groups, here});
    ++layout.groups;
  }
  return layout;
}

int allowed_gpus(int there, int basic, const std::vector<int>& sizes) {
  if (sizes.empty()) return there;
  int best = basic;
  for (const int size : sizes)
    if (size <= there) best = std::max(best, size);
  return best;
}

Environment torch_environment(const Layout& layout, const Seat& seat,
                              const std::string& master_address, int master_port) {
  return {{"RANK", std::to_string(seat.rank)},
          {"LOCAL_RANK", std::to_string(seat.worker.local)},
          {"WORLD_SIZE", std::to_string(layout.seats.size())},
          {"LOCAL_WORLD_SIZE", std::to_string(seat.local_world)},
          {"NODE_RANK", std::to_string(seat.group)},
          {"GROUP_RANK", std::to_string(seat.group)},
          {"GROUP_WORLD_SIZE", std::to_string(layout.groups)},
          {"ROLE_RANK", std::to_string(seat.rank)},
          {"ROLE_WORLD_SIZE", std::to_string(layout.seats.size())},
          {"MASTER_ADDR", master_address},
          {"MASTER_PORT", std::to_string(master_port)}};
}

std::string describe(const std::vector<Place>& places) {
  std::string text;
  for (const Place& place : places)
    text += text.empty()
                ? fmt::format("{} GPU{} on {}", place.gpus, place.gpus == 1 ? "" : "s", place.node)
                : fmt::format(", {} on {}", place.gpus, place.node);
  return text;
}

}  // namespace swell::launcher
