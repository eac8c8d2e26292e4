// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/action_list.h"

#include <algorithm>

namespace swell::launcher {

void ActionList::note(const std::string& event, Json details) {
  details.set("generation", std::max(0, run_.generation));
  details.set("workers", static_cast<int>(run_.assignment.seats.size()));
  Json gpus = Json::array();
  for (const WorkerNode& node : run_.companions.nodes())
    gpus.append(Json::object({{"job", node.job}, {"node", node.name}, {"gpus", node.gpu_list}}));
  details.set("gpus", gpus);
  add(action::Note{event, std::move(details)});
}

}  // namespace swell::launcher
