// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/text_table.h"

#include <algorithm>

#include "control/printable.h"
#include "tools/text_width.h"

namespace swell::tools {

void TextTable::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = control::printable(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  auto cell = [](const std::vector<std::string>& row, std::size_t i) {
    return i < row.size() ? row[i] : std::string();
  };
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].heading.size();
    for (const auto& row : rows_) width = std::max(width, columns_of(cell(row, i)));
    widths.push_back(width);
  }
  auto line = [&](const std::vector<std::string>& row) {
    std::string result;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) result += "  ";
      const std::string blanks(widths[i] - columns_of(cell(row, i)), ' ');
      result += columns_[i].align == Align::left ? cell(row, i) + blanks : blanks + cell(row, i);
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
