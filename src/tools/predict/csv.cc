// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/csv.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/number.h"

namespace swell::predict {

namespace {

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
      else quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

}  // namespace

Result<Csv> Csv::parse(std::string_view text) {
  Csv csv;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    auto fields = split(line);
    if (csv.header_.empty()) {
      csv.header_ = std::move(fields);
      continue;
    }
    if (fields.size() != csv.header_.size())
      return Error(fmt::format("line {} has {} fields; the header has {}", line_number,
                               fields.size(), csv.header_.size()));
    csv.rows_.push_back(std::move(fields));
  }
  if (csv.header_.empty()) return Error("there is no header line");
  return csv;
}

std::optional<std::size_t> Csv::column(std::string_view name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  if (found == header_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header_.begin());
}

Result<double> Csv::number(std::size_t row, std::string_view name, double min, double max) const {
  const auto index = column(name);
  if (!index) return Error(fmt::format("there is no column \"{}\"", name));
  const std::string& text = rows_[row][*index];
  const auto value = read_number<double>(text);
  if (!value || !std::isfinite(*value) || *value < min || *value > max)
    return Error(fmt::format("row {}, column \"{}\": \"{}\" is not a number from {:g} to {:g}",
                             row + 1, name, text.substr(0, 40), min, max));
  return *value;
}

Result<int> Csv::whole(std::size_t row, std::string_view name, int min, int max) const {
  auto value = number(row, name, min, max);
  if (!value) return value.error();
  if (*value != std::floor(*value))
    return Error(
        fmt::format("row {}, column \"{}\": {:g} is not a whole number", row + 1, name, *value));
  return static_cast<int>(*value);
}

}  // namespace swell::predict
