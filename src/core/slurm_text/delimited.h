// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::slurm_text {

/// A table of text as sites have it: CSV of any program, `sacct -P`. A heading, and rows of cells.
/// The separator is the one of , ; | and TAB that the heading has most of. A byte order mark,
/// blanks around cells and empty lines are dropped; lines end in LF, CR LF or CR. But in `sacct
/// -P`, which quotes nothing, a cell may stand in double quotes.
class Delimited {
 public:
  struct Row {
    std::size_t line = 0;  ///< of the file, from 1 on
    std::vector<std::string> cells;
    /// The cell at `column`; empty where the row is shorter.
    std::string_view at(std::size_t column) const noexcept {
      return column < cells.size() ? std::string_view(cells[column]) : std::string_view();
    }
  };

  /// The error names a line whose quotes are not closed, or says that there is no heading.
  static Result<Delimited> parse(std::string_view text);

  const std::vector<std::string>& heading() const noexcept { return heading_.cells; }
  /// Index of the column `name`, in any case.
  std::optional<std::size_t> column(std::string_view name) const;
  const std::vector<Row>& rows() const noexcept { return rows_; }

 private:
  Row heading_;
  std::vector<Row> rows_;
};

}  // namespace swell::slurm_text
