// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/planner/scale_table.h"
#include "core/result.h"

namespace swell::control {

/// Speeds of a job by GPU type and number, known before it runs: `table=FILE` of --elastic. `swell
/// speeds` reads them from what `swell plan --grid --json` prints, for the SPANK plugin, which
/// sends text() along; job_submit/swell keeps that in the job's AdminComment for the controller.
struct SpeedTable {
  struct Row {
    std::string type;  ///< as Slurm names it
    int gpus = 0;
    double samples_per_s = 0;
    planner::ScaleSource source = planner::ScaleSource::unknown;
    friend bool operator==(const Row&, const Row&) = default;
  };
  std::string model;            ///< the model's name, as one word of a tag
  double samples_per_step = 0;  ///< global batch
  std::vector<Row> rows;        ///< by type in the order of their names, then by rising GPUs

  /// Largest text() that is sent, in bytes.
  static constexpr std::size_t kMaxText = 4096;
  /// Largest file that is read, in bytes.
  static constexpr std::size_t kMaxFile = std::size_t{4} << 20;

  /// Reads the JSON that `swell plan --grid --json` prints; rows without a plan are left out. The
  /// error is one sentence for the user.
  static Result<SpeedTable> from_json(std::string_view text);
  /// Does the same with the content of a file.
  static Result<SpeedTable> from_file(const std::string& path);

  /// Returns a model's name in the form of `model`.
  static std::string word_of(std::string_view model);

  /// Returns a text without blanks and brackets that parse() reads back; speeds have six digits:
  /// "gpt-1b;64;a100:data-sheets:1=10.5,2=20;h100:one-device:1=21".
  std::string text() const;
  /// Reads what text() writes. The error names what is wrong.
  static Result<SpeedTable> parse(std::string_view text);

  /// Returns the samples a second on `gpus` of `type`: interpolated between two rows; beyond the
  /// last row, its speed. Returns nothing below the first row and for types without rows.
  std::optional<double> speed(std::string_view type, int gpus) const noexcept;
  /// Returns the source of the type's rows; unknown if there are none.
  planner::ScaleSource source_of(std::string_view type) const noexcept;
  /// Returns the fastest row of these types (empty: of all) with at most `max_gpus`; null if there
  /// is none.
  const Row* fastest(const std::vector<std::string>& types, int max_gpus) const noexcept;

  friend bool operator==(const SpeedTable&, const SpeedTable&) = default;
};

}  // namespace swell::control
