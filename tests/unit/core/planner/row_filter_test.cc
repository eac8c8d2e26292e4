// SPDX-License-Identifier: GPL-2.0-or-later
// FlexTrain, section 4.4.4: each rule alone, and all together.
#include "core/planner/row_filter.h"

#include <criterion/criterion.h>
#include <string>

#include "core/perf/modelled.h"
#include "core/planner/incremental.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::planner;

namespace {

/// One letter a row: '.' stays, 't' opposite trends, 'a' too far apart, 'g' no gain.
std::string verdicts(const std::vector<RowPredictions>& rows, const RowFilter& filter) {
  std::string text;
  for (const RowRule rule : filtered(rows, filter)) text += ".tag"[static_cast<int>(rule)];
  return text;
}

constexpr RowFilter kTrends{0.02, 0, 0}, kApart{0, 1.3, 0}, kSignificant{0, 0, 0.05};

}  // namespace

Test(row_filter, no_rule_removes_a_row_by_default) {
  cr_assert_not(RowFilter{}.has_rules());
  cr_assert_eq(verdicts({{10, 10}, {5, 90}, {80, 1}, {1, 1}}, {}), "....");
  cr_assert(filtered({}, RowFilter::all()).empty());
}

Test(row_filter, rule_1_opposite_trends_over_the_row_before) {
  // The second row falls while the model rises; the third rises from it, as the model does.
  cr_assert_eq(verdicts({{10, 10}, {9, 12}, {14, 14}}, kTrends), ".t.");
  cr_assert_eq(verdicts({{10, 10}, {12, 9}, {14, 14}}, kTrends), ".t.");
  // An outlier that both predict to rise stays; the row behind it is measured against it.
  cr_assert_eq(verdicts({{10, 10}, {30, 12}, {14, 14}}, kTrends), "..t");
  cr_assert_eq(verdicts({{10, 10}, {9, 12}, {9.5, 12.5}}, kTrends), ".t.");
  cr_assert_eq(verdicts({{10, 10}, {8, 9}}, kTrends), "..", "both fall");
  cr_assert_eq(verdicts({{10, 10}, {12, 9.9}}, kTrends), "..", "a fall of 1 % is not a trend");
  cr_assert_eq(verdicts({{10, 10}, {12, 9.9}}, {0.005, 0, 0}), ".t");
}

Test(row_filter, rule_2_speed_ups_too_far_apart) {
  // Speed-ups of 1.5 by both, though the model is twice as fast; then 2 to 1.5, then 1.5 to 2.
  cr_assert_eq(verdicts({{10, 20}, {15, 30}, {20, 30}, {15, 40}}, kApart), "..aa");
  cr_assert_eq(verdicts({{10, 20}, {15, 30}, {20, 30}, {15, 40}}, {0, 1.34, 0}), "....");
  cr_assert_eq(verdicts({{10, 0}, {40, 10}}, kApart), "..", "there is nothing to compare with");
  cr_assert_eq(verdicts({{10, 10}, {40, 0}}, kApart), "..");
}

Test(row_filter, rule_3_gain_over_the_last_row_that_stays) {
  cr_assert_eq(
      verdicts({{10, 1}, {10.4, 1}, {10.6, 1}, {11, 1}, {11.2, 1}, {11.2, 1}}, kSignificant),
      ".g.g.g");
  cr_assert_eq(verdicts({{10, 1}, {8, 1}, {10.2, 1}}, kSignificant), ".gg",
               "no gain over a row that is left out counts");
}

Test(row_filter, all_rules_together_name_the_first_and_keep_the_last_good_row) {
  const std::vector<RowPredictions> rows = {{10, 10}, {20, 19}, {36, 28},
                                            {30, 29}, {31, 30}, {40, 38}};
  // 36 is 1.29 of 28 and stays; 30 falls where the model rises; 31 is no better than 36.
  cr_assert_eq(verdicts(rows, RowFilter::all()), "...tg.");
  // With 36 removed by rule 2, 30 is still measured against it by rule 1; 31 is better than 20.
  cr_assert_eq(verdicts(rows, {0.02, 1.2, 0.05}), "..at..");
  cr_assert_eq(verdicts(rows, {0, 1.2, 0.05}), "..a.g.");
}

Test(row_filter, every_rule_has_a_name_and_words) {
  for (const RowRule rule : kRowRules) {
    cr_assert_gt(std::string(name_of(rule)).size(), 5u);
    cr_assert_gt(std::string(words_for(rule)).size(), 15u);
  }
  cr_assert(std::string(name_of(RowRule::none)).empty());
}

Test(row_filter, tables_get_the_second_prediction_and_the_rules) {
  const auto model = support::small_model(8, 64);
  const auto cluster = support::h100_nodes(2);
  const auto k = support::round_coefficients();
  const perf::PerformanceModel perf(model, cluster, k);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 1, 2, 4);
  Problem problem{perf, layout, {}};
  for (int gpu = 2; gpu < 8; ++gpu) problem.free.push_back({0, gpu});
  ScaleTable table = Incremental().solve(problem, {});
  cr_assert_gt(table.rows.size(), 2u);
  add_modelled(table, perf);
  for (const ScaleRow& row : table.rows) {
    cr_assert_eq(row.modelled, perf::ModelledPredictor(model, k).throughput(row.layout));
    cr_assert(row.omitted == RowRule::none);
  }
  filter_rows(table, {0, 0, 100});
  cr_assert(table.rows[0].omitted == RowRule::none, "what runs stays");
  for (std::size_t i = 1; i < table.rows.size(); ++i)
    cr_assert(table.rows[i].omitted == RowRule::no_gain);
  filter_rows(table, {});
  for (const ScaleRow& row : table.rows) cr_assert(row.omitted == RowRule::none);
}
