// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/csv.h"

#include <cmath>
#include <fmt/format.h>

#include "core/number.h"

namespace swell::predict {

Result<Csv> Csv::parse(std::string_view text) {
  auto table = slurm_text::Delimited::parse(text);
  if (!table) return table.error();
  const std::size_t columns = table->heading().size();
  for (const auto& row : table->rows())
    if (row.cells.size() != columns)
      return Error(fmt::format("line {} has {} fields; the header has {}", row.line,
                               row.cells.size(), columns));
  return Csv(std::move(*table));
}

std::optional<std::size_t> Csv::column(std::string_view name) const { return table_.column(name); }

Result<double> Csv::number(std::size_t row, std::string_view name, double min, double max) const {
  const auto index = column(name);
  if (!index) return Error(fmt::format("there is no column \"{}\"", name));
  const std::string& text = field(row, *index);
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
