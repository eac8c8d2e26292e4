// SPDX-License-Identifier: GPL-2.0-or-later
// FlexTrain, section 4.4: what excludes a combination of degrees.
#include "core/planner/combination.h"

#include <criterion/criterion.h>
#include <string>

#include "core/models/catalogue.h"

using namespace swell;
using namespace swell::planner;

namespace {

/// Returns the error for degrees of Table 2's Small: 15 layers, 2 MTP heads, 1,024 samples, 64
/// experts.
std::string said(const perf::Combination& degrees, KeptDegrees kept = {}) {
  static const models::Model model = models::find_model("flextrain-small").value().model;
  const auto good = check_combination(degrees, model, kept);
  return good ? "" : good.error().message();
}

}  // namespace

Test(combination, degrees_of_the_paper_are_possible) {
  cr_assert_eq(said({4, 1, 1, 16}, {8, 8}), "");
  cr_assert_eq(said({15, 4, 1, 16}, {8, 8}), "");
}

Test(combination, an_impossible_one_is_named_with_its_number_and_the_reason) {
  cr_assert_eq(said({4, 3, 1, 16}),
               "DP 3 in 16 micro-batches does not divide the global batch of 1024 samples evenly");
  cr_assert_eq(said({16, 1, 1, 16}),
               "PP 16 leaves stages empty: model flextrain-small has 15 layers");
  cr_assert_eq(said({4, 1, 3, 16}), "TP 3 does not divide the 16 heads of model flextrain-small");
  cr_assert_eq(said({4, 1, 1, 16}, {3, 1}), "CP 3 does not divide the 8192 tokens of a sample");
  cr_assert_eq(said({4, 1, 1, 16}, {8, 3}), "EP 3 does not divide the 64 experts of a layer");
  cr_assert_eq(said({4, 1, 1, 16}, {8, 16}), "EP 16 does not divide the 8 ranks of DP 1 and CP 8");
  cr_assert_eq(said({4, 0, 1, 16}), "DP is 0; it is at least 1");
}

Test(combination, chunks_take_a_stage_for_each_unit) {
  // The embedding, 15 layers, the head, and two units for each of two MTP heads.
  cr_assert_eq(said({21, 1, 1, 16, 1}), "");
  cr_assert_eq(said({22, 1, 1, 16, 1}),
               "PP 22 leaves stages empty: model flextrain-small has 21 units");
}
