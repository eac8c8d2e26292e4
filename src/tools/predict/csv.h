// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "core/slurm_text/delimited.h"

namespace swell::predict {

/// A small CSV table (slurm_text::Delimited) of rows with as many fields as the header.
class Csv {
 public:
  /// Reads CSV text. The error names the first line whose number of fields differs from the
  /// header's.
  static Result<Csv> parse(std::string_view text);

  std::size_t rows() const noexcept { return table_.rows().size(); }
  std::optional<std::size_t> column(std::string_view name) const;
  const std::string& field(std::size_t row, std::size_t column) const {
    return table_.rows()[row].cells[column];
  }
  /// Reads a finite number from `min` to `max`. The error names line, column and text.
  Result<double> number(std::size_t row, std::string_view column, double min, double max) const;
  /// Reads a whole number in the same way.
  Result<int> whole(std::size_t row, std::string_view column, int min, int max) const;

 private:
  explicit Csv(slurm_text::Delimited table) : table_(std::move(table)) {}
  slurm_text::Delimited table_;
};

}  // namespace swell::predict
