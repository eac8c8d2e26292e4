// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

namespace swell::tools {

/// A table of text with headings and columns, aligned by the width that text takes on a terminal.
/// The last column has any width.
class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string heading;
    Align align = Align::left;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Adds a row of cells, which control::printable() keeps on one line; missing cells are empty.
  /// REQUIRES: no more cells than columns.
  void add(std::vector<std::string> cells);
  bool empty() const noexcept { return rows_.empty(); }
  /// Returns the table as lines that end in a newline, without trailing blanks.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace swell::tools
