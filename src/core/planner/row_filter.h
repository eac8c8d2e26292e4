// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace swell::planner {

struct ScaleTable;

/// Rules that remove rows from a scale table: FlexTrain's, section 4.4.4, and the limits of CP and
/// EP.
enum class RowRule : std::uint8_t {
  none,             ///< the row stays
  opposite_trends,  ///< 1: one prediction is higher than in the row before, the other one is lower
  too_far_apart,    ///< 2: the two speed-ups differ too much
  no_gain,          ///< 3: no significant gain over the last row that stays
  indivisible,      ///< CP or EP, which do not change, rule out this number of GPUs (combination.h)
};

/// The rules that remove rows.
inline constexpr std::array kRowRules = {RowRule::opposite_trends, RowRule::too_far_apart,
                                         RowRule::no_gain, RowRule::indivisible};

/// Returns the rule's name in JSON: "opposite-trends", "too-far-apart", "no-gain", "indivisible";
/// "" for none.
const char* name_of(RowRule rule) noexcept;
/// Returns the rule in words, for people: "no significant gain".
const char* words_for(RowRule rule) noexcept;

/// Thresholds of the rules; 0 turns a rule off, which is the default.
struct RowFilter {
  /// Rule 1: a prediction that changes by at least this share has a trend.
  double level = 0;
  /// Rule 2: maximum ratio between the two speed-ups, in either direction; above 1.
  double apart = 0;
  /// Rule 3: a row must be better than the last kept row by more than this share.
  double significant = 0;
  bool has_rules() const noexcept { return level > 0 || apart > 0 || significant > 0; }
  /// Returns thresholds that turn all rules on, for tables that people read; docs/planner.md says
  /// how the figures were chosen.
  static RowFilter all() noexcept { return {0.02, 1.3, 0.05}; }
  friend bool operator==(const RowFilter&, const RowFilter&) = default;
};

/// The two predictions of one row, in samples a second: from the profile (PerformanceModel), and
/// from the layers alone (perf::ModelledPredictor).
struct RowPredictions {
  double profiled = 0, modelled = 0;
};

/// Returns for each row, by rising GPUs, the first rule that removes it. The first row is the
/// running plan: it always stays, and speed-ups are relative to it. Trends are relative to the row
/// before, even if that row is removed. Rules 1 and 2 need predictions above 0.
std::vector<RowRule> filtered(const std::vector<RowPredictions>& rows, const RowFilter& filter);

/// Sets ScaleRow::omitted of all rows, except rows that are already indivisible.
void filter_rows(ScaleTable& table, const RowFilter& filter);

}  // namespace swell::planner
