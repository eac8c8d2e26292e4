// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/model_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include "core/models/catalogue.h"
#include "core/models/model.h"

namespace swell::launcher {

namespace {

/// No model's description is larger.
constexpr std::uintmax_t kMaxBytes = std::uintmax_t{1} << 20;

Result<models::Model> from_file(const std::string& path) {
  std::error_code unknown;
  if (const auto bytes = std::filesystem::file_size(path, unknown); unknown || bytes > kMaxBytes)
    return Error(
        unknown ? unknown.message()
                : fmt::format("it has {} bytes; a model's JSON has at most {}", bytes, kMaxBytes));
  std::ifstream file(path);
  if (!file) return Error(std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto json = Json::parse(text);
  if (!json) return json.error();
  return models::model_from_json(*json);
}

Result<models::Model> from_catalogue(const std::string& name) {
  auto found = models::find_model(name);
  if (!found) return Error("it is no file, and " + found.error().message());
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
  return models::to_json(*model);
}

}  // namespace swell::launcher
