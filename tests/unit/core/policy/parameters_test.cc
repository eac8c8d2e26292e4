// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/parameters.h"

#include <criterion/criterion.h>

#include "core/policy/lending/fewest_first.h"
#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/lending/swell.h"
#include "core/policy/registry.h"

using namespace swell;
using namespace swell::policy;

namespace {

template <typename P>
void each_is_taken() {
  for (const auto& one : P::kParameters) {
    const typename P::Options as_it_is;
    const double other = one.in(as_it_is) == one.min ? one.max : one.min;
    const auto changed = with(as_it_is, P::kParameters, {{one.name, other}});
    cr_assert(changed.ok(), "%s", one.name);
    cr_assert_eq(one.in(*changed), other);
    for (const auto& another : P::kParameters)
      if (another.name != one.name)
        cr_assert_eq(another.in(*changed), another.in(as_it_is), "%s", another.name);
  }
}

std::string why(std::string_view policy, const Parameters& given) {
  const auto made = make_policy(policy, {.parameters = given});
  return made ? "" : made.error().message();
}

}  // namespace

Test(parameters, each_changes_one_number_of_its_policy) {
  each_is_taken<Swell>();
  each_is_taken<MarginalBenefit>();
  each_is_taken<FewestFirst>();
}

Test(parameters, an_unknown_one_is_named_with_those_there_are) {
  cr_assert_eq(why("fewest-first", {{"margin", 2}}),
               "there is no parameter \"margin\"; there are: min-growth");
  cr_assert_eq(why("swell", {{"margin", 2}}), "");
}

Test(parameters, one_out_of_range_is_named_with_the_range) {
  cr_assert_eq(why("swell", {{"aversion", -1}}), "aversion of -1 is out of range; give 0 to 10");
  cr_assert_eq(why("swell", {{"aversion", 10.5}}),
               "aversion of 10.5 is out of range; give 0 to 10");
}

Test(parameters, a_named_aggressiveness_stands_above_the_general_one) {
  PolicyOptions options{.aggressiveness = 3, .fairness = 2};
  options.parameters["aggressiveness"] = 0.5;
  const Parameters all = with_benefits(options);
  cr_assert_eq(all.at("aggressiveness"), 0.5);
  cr_assert_eq(all.at("fairness"), 2);
}
