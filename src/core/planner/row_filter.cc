// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/row_filter.h"

#include <algorithm>

#include "core/planner/scale_table.h"

namespace swell::planner {

namespace {

/// Returns 1 if the value rises from `before` to `now` by at least the share `level`, -1 if it
/// falls by as much, 0 otherwise.
int trend(double before, double now, double level) noexcept {
  if (now >= before * (1 + level)) return 1;
  return now <= before * (1 - level) ? -1 : 0;
}

bool are_known(const RowPredictions& row) noexcept { return row.profiled > 0 && row.modelled > 0; }

}  // namespace

const char* name_of(RowRule rule) noexcept {
  switch (rule) {
    case RowRule::none: break;
    case RowRule::opposite_trends: return "opposite-trends";
    case RowRule::too_far_apart: return "too-far-apart";
    case RowRule::no_gain: return "no-gain";
    case RowRule::indivisible: return "indivisible";
  }
  return "";
}

const char* words_for(RowRule rule) noexcept {
  switch (rule) {
    case RowRule::none: break;
    case RowRule::opposite_trends: return "one prediction rises and the other one falls";
    case RowRule::too_far_apart: return "the two predictions are too far apart";
    case RowRule::no_gain: return "no significant gain";
    case RowRule::indivisible: return "CP or EP excludes this number of GPUs";
  }
  return "";
}

std::vector<RowRule> filtered(const std::vector<RowPredictions>& rows, const RowFilter& filter) {
  std::vector<RowRule> rules(rows.size(), RowRule::none);
  std::size_t last = 0;  // last row that is kept
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const RowPredictions &first = rows[0], &before = rows[i - 1], &row = rows[i];
    if (filter.level > 0 && are_known(before) && are_known(row) &&
        trend(before.profiled, row.profiled, filter.level) *
                trend(before.modelled, row.modelled, filter.level) <
            0)
      rules[i] = RowRule::opposite_trends;
    else if (filter.apart > 0 && are_known(first) && are_known(row)) {
      const double ratio = row.profiled / first.profiled / (row.modelled / first.modelled);
      if (std::max(ratio, 1 / ratio) > filter.apart) rules[i] = RowRule::too_far_apart;
    }
    if (rules[i] == RowRule::none && filter.significant > 0 &&
        !(row.profiled > rows[last].profiled * (1 + filter.significant)))
      rules[i] = RowRule::no_gain;
    if (rules[i] == RowRule::none) last = i;
  }
  return rules;
}

void filter_rows(ScaleTable& table, const RowFilter& filter) {
  std::vector<RowPredictions> rows;
  rows.reserve(table.rows.size());
  for (const ScaleRow& row : table.rows) rows.push_back({row.throughput, row.modelled});
  const std::vector<RowRule> rules = filtered(rows, filter);
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (table.rows[i].omitted != RowRule::indivisible) table.rows[i].omitted = rules[i];
}

}  // namespace swell::planner
