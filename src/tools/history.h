// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "control/messages.h"
#include "core/json.h"
#include "core/result.h"

namespace swell::tools {

/// All that the controller's history has of a job that belongs to who asks: as
/// HistoryStore::of_job(), without "more".
Result<Json> whole_history(control::JobId job);

}  // namespace swell::tools
