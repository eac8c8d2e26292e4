// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace swell::tools {

/// Returns a table for people of a job's history, as HistoryStore::of_job() gives it.
std::string history_table(const Json& history);

/// Returns lines for people: the last `max` times that the job was lent or lost GPUs, and why.
std::vector<std::string> last_changes(const Json& history, std::size_t max);

}  // namespace swell::tools
