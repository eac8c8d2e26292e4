// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/scale_keeper.h"

#include <fmt/format.h>
#include <utility>

namespace swell::controller {

void ScaleKeeper::take(const std::map<JobId, planner::NamedTable>& scales) {
  for (const auto& [id, table] : scales) {
    const auto job = loop_.jobs.find(id);
    if (job == loop_.jobs.end() || table.rows.empty() || job->second.decision.scale() == table)
      continue;
    job->second.decision.set_scale(table);
    if (loop_.history != nullptr) loop_.history->add(history::Scale{id, table.to_json().dump()});
  }
}

void ScaleKeeper::take_kept() {
  if (loop_.history == nullptr) return;
  for (const history::Scale& kept : loop_.history->take_scales()) {
    const auto job = loop_.jobs.find(kept.job);
    if (job == loop_.jobs.end() || !job->second.decision.scale().rows.empty()) continue;
    if (auto table = planner::NamedTable::parse(kept.table))
      job->second.decision.set_scale(*std::move(table));
    else
      loop_.events.say(
          fmt::format("job {}: its kept table is not used: {}", kept.job, table.error().message()));
  }
}

}  // namespace swell::controller
