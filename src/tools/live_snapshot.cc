// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/live_snapshot.h"

#include <optional>
#include <pwd.h>
#include <string>
#include <utility>

#include "slurm/live_slurm.h"
#include "slurm/site_config.h"

namespace swell::tools {

std::string name_of_user(uid_t uid) {
  const passwd* entry = getpwuid(uid);
  return entry != nullptr ? entry->pw_name : std::to_string(uid);
}

Result<slurm::Snapshot> load_snapshot() {
  slurm::init_libslurm();
  Result<std::optional<slurm::Snapshot>> loaded = slurm::make_live_slurm()->load();
  if (!loaded) return loaded.error().while_doing("asking slurmctld");
  if (!loaded->has_value()) return Error("slurmctld gave no answer");
  for (slurm::JobRecord& record : (*loaded)->jobs)
    if (record.user.empty()) record.user = name_of_user(record.uid);
  return std::move(**loaded);
}

}  // namespace swell::tools
