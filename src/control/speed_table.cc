// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/speed_table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <tuple>

#include "control/input_file.h"
#include "control/split.h"
#include "control/tag.h"
#include "core/count_of.h"
#include "core/json.h"
#include "core/number.h"

namespace swell::control {

namespace {

constexpr int kMaxGpus = 1'000'000;
constexpr std::size_t kMaxRows = 4096;
constexpr double kMaxSpeed = 1e12;    // samples a second
constexpr double kMaxSamples = 1e12;  // samples of a step

constexpr planner::ScaleSource kSources[] = {planner::ScaleSource::running_job,
                                             planner::ScaleSource::one_device,
                                             planner::ScaleSource::data_sheets};

bool is_type_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

std::optional<planner::ScaleSource> source_named(std::string_view name) {
  for (const planner::ScaleSource source : kSources)
    if (name == planner::name_of(source)) return source;
  return std::nullopt;
}

/// Sorts the rows. The error names a type and number that has two rows.
Result<void> sort_rows(std::vector<SpeedTable::Row>& rows) {
  const auto key = [](const SpeedTable::Row& row) { return std::tie(row.type, row.gpus); };
  std::sort(rows.begin(), rows.end(),
            [&](const auto& one, const auto& other) { return key(one) < key(other); });
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (key(rows[i - 1]) == key(rows[i]))
      return Error(fmt::format("it has {} of {} twice; list each once",
                               count_of(rows[i].gpus, "GPU"), rows[i].type));
  return {};
}

Result<SpeedTable::Row> read_row(const Json& json, planner::ScaleSource otherwise) {
  SpeedTable::Row row;
  const auto type = json.string_at("type");
  if (!type) return type.error();
  if (!is_type_name(*type))
    return Error(fmt::format(
        "\"type\" is \"{}\"; a GPU type as Slurm names it is wanted, such as h100", *type));
  row.type = *type;
  const auto gpus = json.integer_at("gpus", 1, kMaxGpus);
  if (!gpus) return gpus.error();
  row.gpus = static_cast<int>(*gpus);
  row.source = otherwise;
  if (!json.has("samples_per_s")) return row;  // no plan fits
  const auto speed = json.number_at("samples_per_s", 1e-9, kMaxSpeed);
  if (!speed) return speed.error();
  row.samples_per_s = *speed;
  if (json.has("source")) {
    const auto name = json.string_at("source");
    if (!name) return name.error();
    const auto source = source_named(*name);
    if (!source)
      return Error(fmt::format(
          "\"source\" is \"{}\"; running-job, one-device or data-sheets is wanted", *name));
    row.source = *source;
  }
  return row;
}

}  // namespace

Result<SpeedTable> SpeedTable::from_json(std::string_view text) {
  const auto json = Json::parse(text, kMaxFile);
  if (!json)
    return Error(fmt::format(
        "it is not JSON ({}); write it with swell plan --model MODEL --cluster CLUSTER --grid --json",
        json.error().message()));
  if (json->has("swell_table"))
    return Error(
        "it has times of units, as swell profile writes them; make speeds of them with swell plan "
        "--model MODEL --cluster CLUSTER --table FILE --grid --json");
  const Json all = json->at("rows");
  if (!is_array(all) || all.size() == 0 || all.size() > kMaxRows)
    return Error(fmt::format("it has {}; 1 to {} are read: write it with swell plan --grid --json",
                             is_array(all) ? count_of(all.size(), "row") : "no list \"rows\"",
                             kMaxRows));
  SpeedTable table;
  const auto model = json->string_at("model");
  if (!model) return model.error();
  table.model = word_of(*model);
  const auto samples = json->number_at("samples_per_step", 1e-9, kMaxSamples);
  if (!samples)
    return samples.error().while_doing("write it with swell plan --grid --json of this Swell");
  table.samples_per_step = *samples;
  auto otherwise = planner::ScaleSource::unknown;
  if (json->has("source"))
    if (const auto name = json->string_at("source"))
      otherwise = source_named(*name).value_or(planner::ScaleSource::unknown);
  std::size_t index = 0;
  for (const Json& each : all.items()) {
    ++index;
    auto row = read_row(each, otherwise);
    if (!row) return row.error().while_doing(fmt::format("row {}", index));
    if (row->samples_per_s > 0) table.rows.push_back(*std::move(row));
  }
  if (table.rows.empty())
    return Error("it has no plan that fits; give swell plan --grid other --sizes or types");
  if (auto sorted = sort_rows(table.rows); !sorted) return sorted.error();
  if (const std::size_t bytes = table.text().size(); bytes > kMaxText)
    return Error(fmt::format(
        "its speeds have {} bytes, and at most {} are sent: write fewer numbers of GPUs "
        "(swell plan --grid --sizes=...) or types",
        bytes, kMaxText));
  return table;
}

std::string SpeedTable::word_of(std::string_view model) {
  std::string word = as_word(model);
  for (char& each : word)
    if (std::string_view(";@^~").find(each) != std::string_view::npos) each = '_';
  return word.empty() ? "-" : word;
}

Result<SpeedTable> SpeedTable::from_file(const std::string& path) {
  const auto text = read_regular(path, kMaxFile);
  if (!text)
    return Error(fmt::format(
        "--elastic: table={} cannot be read: {}; name a file that swell plan --grid --json has written",
        path, text.error().message()));
  auto table = from_json(*text);
  if (!table) return Error(fmt::format("--elastic: table={}: {}", path, table.error().message()));
  return table;
}

std::string SpeedTable::text() const {
  std::string result = fmt::format("{};{:.6g}", model, samples_per_step);
  const Row* last = nullptr;
  for (const Row& row : rows) {
    if (last == nullptr || last->type != row.type || last->source != row.source)
      result += fmt::format(";{}:{}:", row.type, planner::name_of(row.source));
    else result += ',';
    result += fmt::format("{}={:.6g}", row.gpus, row.samples_per_s);
    last = &row;
  }
  return result;
}

Result<SpeedTable> SpeedTable::parse(std::string_view text) {
  const auto bad = [](std::string_view what) {
    return Error(fmt::format("the table of speeds has \"{}\"; submit again with table=FILE", what));
  };
  if (text.size() > kMaxText)
    return Error(fmt::format("the table of speeds has {} bytes; at most {} are read", text.size(),
                             kMaxText));
  const std::vector<std::string_view> parts = split(text, ';');
  if (parts.size() < 3 || parts[0].empty() || word_of(parts[0]) != parts[0]) return bad(parts[0]);
  SpeedTable table;
  table.model = parts[0];
  const auto samples = read_number<double>(parts[1]);
  if (!samples || !std::isfinite(*samples) || *samples <= 0 || *samples > kMaxSamples)
    return bad(parts[1]);
  table.samples_per_step = *samples;
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const std::vector<std::string_view> group = split(parts[i], ':');
    if (group.size() != 3 || !is_type_name(group[0])) return bad(parts[i]);
    const auto source = group[1].empty() ? planner::ScaleSource::unknown : source_named(group[1]);
    if (!source) return bad(group[1]);
    for (const std::string_view entry : split(group[2], ',')) {
      const std::size_t equals = entry.find('=');
      const auto gpus = read_number<int>(entry.substr(0, equals));
      const auto speed = equals == std::string_view::npos
                             ? std::optional<double>()
                             : read_number<double>(entry.substr(equals + 1));
      if (!gpus || *gpus < 1 || *gpus > kMaxGpus || !speed || !std::isfinite(*speed) ||
          *speed <= 0 || *speed > kMaxSpeed)
        return bad(entry);
      table.rows.push_back({std::string(group[0]), *gpus, *speed, *source});
    }
  }
  if (auto sorted = sort_rows(table.rows); !sorted)
    return sorted.error().while_doing("the table of speeds");
  return table;
}

std::optional<double> SpeedTable::speed(std::string_view type, int gpus) const noexcept {
  const Row* below = nullptr;
  for (const Row& row : rows) {
    if (row.type != type) continue;
    if (row.gpus == gpus) return row.samples_per_s;
    if (row.gpus > gpus) {
      if (below == nullptr) return std::nullopt;
      const double share = static_cast<double>(gpus - below->gpus) / (row.gpus - below->gpus);
      return below->samples_per_s + share * (row.samples_per_s - below->samples_per_s);
    }
    below = &row;
  }
  return below != nullptr ? std::optional<double>(below->samples_per_s) : std::nullopt;
}

planner::ScaleSource SpeedTable::source_of(std::string_view type) const noexcept {
  for (const Row& row : rows)
    if (row.type == type) return row.source;
  return planner::ScaleSource::unknown;
}

const SpeedTable::Row* SpeedTable::fastest(const std::vector<std::string>& types,
                                           int max_gpus) const noexcept {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.gpus > max_gpus) continue;
    if (!types.empty() && std::find(types.begin(), types.end(), row.type) == types.end()) continue;
    if (best == nullptr || row.samples_per_s > best->samples_per_s) best = &row;
  }
  return best;
}

}  // namespace swell::control
