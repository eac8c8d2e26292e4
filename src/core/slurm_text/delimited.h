// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::slurm_text {

/// A table of text as sites have it, such as CSV or `sacct -P`: a heading, and rows of cells. The
/// separator is the one of , ; | and TAB that occurs most in the heading. Drops a byte order mark,
/// blanks around cells and empty lines; lines end in LF, CR LF or CR. A cell may be in double
/// quotes unless the separator is |: `sacct -P` quotes nothing.
class Delimited {
 public:
  struct Row {
    std::size_t line = 0;  ///< line number in the file, from 1
    std::vector<std::string> cells;
    /// Returns the cell at `column`; empty if the row is shorter.
    std::string_view at(std::size_t column) const noexcept {
      return column < cells.size() ? std::string_view(cells[column]) : std::string_view();
    }
  };

  /// Returns an error for a line whose quotes are not closed, and if there is no heading.
  static Result<Delimited> parse(std::string_view text);

  const std::vector<std::string>& heading() const noexcept { return heading_.cells; }
  /// Returns the index of the column `name`, ignoring case.
  std::optional<std::size_t> column(std::string_view name) const;
  const std::vector<Row>& rows() const noexcept { return rows_; }

 private:
  Row heading_;
  std::vector<Row> rows_;
};

}  // namespace swell::slurm_text
