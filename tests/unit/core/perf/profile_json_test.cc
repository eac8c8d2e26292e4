// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/profile_json.h"

#include <criterion/criterion.h>
#include <utility>
#include <vector>

#include "core/perf/check_profile.h"

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

Test(profile_json, each_member_is_read_under_its_own_name) {
  using perf::GroupObservation;
  const std::pair<const char*, double GroupObservation::*> members[] = {
      {"fwd_s", &GroupObservation::fwd_s},
      {"fwd_commu_s", &GroupObservation::fwd_commu_s},
      {"bwd_s", &GroupObservation::bwd_s},
      {"optim_s", &GroupObservation::optim_s},
      {"commu_extra_s", &GroupObservation::commu_extra_s},
      {"head_fwd_s", &GroupObservation::head_fwd_s},
      {"head_bwd_s", &GroupObservation::head_bwd_s},
      {"layer_param_bytes", &GroupObservation::layer_param_bytes},
      {"layer_state_bytes", &GroupObservation::layer_state_bytes},
      {"extra_param_bytes", &GroupObservation::extra_param_bytes},
      {"extra_state_bytes", &GroupObservation::extra_state_bytes},
      {"peak_bytes", &GroupObservation::peak_bytes},
      {"weights_s", &GroupObservation::weights_s}};
  Json json = example();
  Json group = json.at("groups").at(std::size_t{1});
  double value = 0;
  for (const auto& member : members) group.set(member.first, ++value);
  for (const char* key : {"layer_launch_s", "activ_bytes", "last_activ_p_bytes"})
    json.set(key, ++value);
  json.set("whole_activations", ++value);
  json.set("sharded_state", 0.75);
  json.set("sharded_gradients", 0.5);
  json.set("max_shards", 4);
  const auto read = perf::profile_from_json(json, support::h100_nodes(1, 8));
  cr_assert(read.ok(), "%s", why(json).c_str());
  value = 0;
  for (const auto& member : members)
    cr_assert_eq(read->groups[1].*member.second, ++value, "%s", member.first);
  cr_assert_eq(read->layer_launch_s, ++value);
  cr_assert_eq(read->activ_bytes, ++value);
  cr_assert_eq(read->last_activ_p_bytes, ++value);
  cr_assert_eq(read->whole_activations.value(), ++value);
  cr_assert(read->sharded_state == 0.75 && read->sharded_gradients == 0.5 && read->max_shards == 4);
  cr_assert_eq(perf::to_json(*read).dump(), json.dump(), "written under the same names");
}

Test(profile_json, wrong_nodes_are_named) {
  const auto node = [](const char* pass, int first_layer, int layers, double median_s,
                       double spread_s) {
    return Json::object({{"pass", pass},
                         {"first_layer", first_layer},
                         {"layers", layers},
                         {"median_s", median_s},
                         {"spread_s", spread_s}});
  };
  const auto with = [](const std::vector<Json>& nodes) {
    Json json = example();
    json.at("groups").at(std::size_t{1}).set("nodes", array_of(nodes));
    return json;
  };
  const Json good = node("forward", 0, 8, 0.01, 0.001);
  cr_assert_eq(why(with({good})), "read");
  const auto refused = [&](const Json& json, const char* words) {
    cr_assert(why(json).find(words) != std::string::npos, "wanted \"%s\" in \"%s\"", words,
              why(json).c_str());
  };
  refused(with({good, node("sideways", 0, 8, 1, 0)}),
          "observation 1: node 1: \"pass\" is \"sideways\"; it must be one of forward, backward, "
          "weights, head-forward, head-backward");
  refused(with({node("forward", 0, 8, -1, 0)}), "median_s");
  refused(with({node("forward", 0, 8, 1, -1)}), "spread_s");
  refused(with({node("forward", -1, 8, 1, 0)}), "first_layer");
  refused(with({node("forward", 0, 0, 1, 0)}), "layers");
  refused(with(std::vector<Json>(perf::kMaxNodes + 1, good)),
          "\"nodes\" must be a list of at most 32");
  // Nodes are still checked against the plan before anything is solved from them.
  const auto checked = [&](const std::vector<Json>& nodes) {
    const auto cluster = support::h100_nodes(1, 8);
    const auto good_profile = perf::check(*perf::profile_from_json(with(nodes), cluster), cluster);
    return good_profile ? std::string() : good_profile.error().message();
  };
  cr_assert_eq(checked({good, node("backward", 0, 8, 0.01, 0)}), "");
  cr_assert_eq(checked({node("forward", 4, 5, 0.01, 0)}),
               "stage 0, group 1: node forward of 5 layers from layer 4 on: the plan has 8 layers");
  cr_assert_eq(checked({good, good}),
               "stage 0, group 1: node forward of 8 layers from layer 0 on: it is listed twice");
}

Test(profile_json, errors_name_the_fault) {
  cr_assert_eq(why(example()), "read");
  Json json = example();
  json.at("groups").at(std::size_t{1}).set("bwd_s", -1.0);
  cr_assert(why(json).find("observation 1") != std::string::npos &&
                why(json).find("bwd_s") != std::string::npos,
            "%s", why(json).c_str());
  json = example();
  json.set("sharded_state", 1.5);
  cr_assert(why(json).find("sharded_state") != std::string::npos, "%s", why(json).c_str());
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
