// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>

#include "control/messages.h"
#include "core/json.h"
#include "core/result.h"

namespace swell::tools {

/// Asks the controller; ask_controller() but in tests.
using Asks = std::function<Result<control::Answer>(const control::Ask&)>;

/// Pages of a history, one after the other: as HistoryStore::of_job(), without "more". `page` gives
/// what follows an event's id.
Result<Json> all_pages(const std::function<Result<Json>(std::int64_t after)>& page);

/// Everything in the controller's history of a job of the requester; `with_profiles`: each
/// profile as it was reported, too.
Result<Json> whole_history(control::JobId job, bool with_profiles, const Asks& asks);

/// The part of it that has at least the last `count` times that the job's GPUs changed. An older
/// controller, which cannot tell them from the rest, is asked for all.
Result<Json> recent_history(control::JobId job, int count, const Asks& asks);

}  // namespace swell::tools
