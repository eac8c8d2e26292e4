// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>

#include "control/messages.h"
#include "core/json.h"
#include "core/result.h"

namespace swell::tools {

/// Asks the controller: ask_controller(), or a test's replacement.
using Asks = std::function<Result<control::Answer>(const control::Ask&)>;

/// Joins the pages of a history: the result is as of HistoryStore::of_job(), without "more". `page`
/// returns the events after an event's id.
Result<Json> all_pages(const std::function<Result<Json>(std::int64_t after)>& page);

/// Returns all of the controller's history of a job of the requester; `with_profiles`: with each
/// profile as it was reported.
Result<Json> whole_history(control::JobId job, bool with_profiles, const Asks& asks);

/// Returns the part of the history with at least the last `count` changes of the job's GPUs. An
/// older controller, which cannot select them, is asked for all.
Result<Json> recent_history(control::JobId job, int count, const Asks& asks);

}  // namespace swell::tools
