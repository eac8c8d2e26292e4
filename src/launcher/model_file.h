// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "core/result.h"

namespace swell::launcher {

/// The model of swellrun --model: a JSON file (core/models/model.h), or a name of the catalogue;
/// `global_batch` replaces its samples of a step. The error says which word is wrong.
Result<Json> read_model(const std::string& name, std::optional<int> global_batch);

}  // namespace swell::launcher
