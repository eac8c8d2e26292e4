// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/profile_json.h"

#include <criterion/criterion.h>

#include "support/profiles.h"

using namespace swell;

namespace {

Json example() {
  const auto cluster = support::h100_nodes(1, 8);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 2, 2, 4, 0);
  return perf::to_json(
      support::observe(layout, support::small_model(), cluster, support::round_coefficients(1)));
}

std::string why(const Json& json) {
  const auto read = perf::profile_from_json(json, support::h100_nodes(1, 8));
  return read.ok() ? "read" : read.error().message();
}

}  // namespace

Test(profile_json, a_type_that_is_left_empty_is_the_clusters) {
  Json json = example();
  for (Json group : json.at("plan").at("stages").at(std::size_t{0}).at("groups").items())
    group.set("gpu_type", "");
  const auto read = perf::profile_from_json(json, support::h100_nodes(1, 8));
  cr_assert(read.ok());
  cr_assert_eq(read->plan.stages[0].groups[1].gpu_type, "h100");
}

Test(profile_json, what_is_wrong_is_named) {
  cr_assert_eq(why(example()), "read");
  Json json = example();
  json.at("groups").at(std::size_t{1}).set("bwd_s", -1.0);
  cr_assert(why(json).find("observation 1") != std::string::npos &&
                why(json).find("bwd_s") != std::string::npos,
            "%s", why(json).c_str());
  json = example();
  json.set("groups", "none");
  cr_assert(why(json).find("\"groups\"") == 0);
  json = example();
  for (Json group : json.at("plan").at("stages").at(std::size_t{0}).at("groups").items()) {
    group.set("gpu_type", "");
    group.set("node", "elsewhere");
  }
  cr_assert_eq(why(json), "\"plan\": node \"elsewhere\" is not in cluster test");
}
