// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/model_file.h"

#include <filesystem>

#include "control/input_file.h"
#include "core/models/catalogue.h"
#include "core/models/model.h"

namespace swell::launcher {

namespace {

/// Maximum size of a model's description.
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

Result<models::Model> from_file(const std::string& path) {
  const auto text = control::read_regular(control::model_file_at(path), kMaxBytes);
  if (!text) return text.error();
  const auto json = Json::parse(*text);
  if (!json) return json.error();
  return models::model_from_json(*json);
}

Result<models::Model> from_catalogue(const std::string& name) {
  auto found = models::find_model(name);
  if (!found) return Error("it is not a file, and " + found.error().message());
  return found->model;
}

}  // namespace

Result<Json> read_model(const std::string& name, std::optional<int> global_batch) {
  std::error_code ignored;
  auto model = std::filesystem::exists(name, ignored) ? from_file(name) : from_catalogue(name);
  if (!model) return model.error().while_doing("--model=" + name);
  if (global_batch) model->global_batch = *global_batch;
  if (auto good = models::check_planned_for(*model); !good)
    return good.error().while_doing("--model=" + name);
  if (auto good = models::check_runs(*model); !good)
    return good.error().while_doing("--model=" + name);
  return models::to_json(*model);
}

}  // namespace swell::launcher
