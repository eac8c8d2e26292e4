// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/text_table.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::tools {

std::string TextTable::text() const {
  auto cell = [](const std::vector<std::string>& row, std::size_t i) {
    return i < row.size() ? row[i] : std::string();
  };
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].heading.size();
    for (const auto& row : rows_) width = std::max(width, cell(row, i).size());
    widths.push_back(width);
  }
  auto line = [&](const std::vector<std::string>& row) {
    std::string result;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) result += "  ";
      result += columns_[i].align == Align::left ? fmt::format("{:<{}}", cell(row, i), widths[i])
                                                 : fmt::format("{:>{}}", cell(row, i), widths[i]);
    }
    result.erase(result.find_last_not_of(' ') + 1);
    return result + '\n';
  };
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  std::string result = line(headings);
  for (const auto& row : rows_) result += line(row);
  return result;
}

}  // namespace swell::tools
