// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace swell::tools {

/// Table for people of what the history has of a job, as HistoryStore::of_job() gives it.
std::string history_table(const Json& history);

/// Lines for people: the last `max` times that the job was lent GPUs, or lost some, and why.
std::vector<std::string> last_changes(const Json& history, std::size_t max);

}  // namespace swell::tools
