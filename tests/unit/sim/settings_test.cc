// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/settings.h"

#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "sim/experiment.h"

using namespace swell;
using namespace swell::sim;

namespace {

Experiment small(std::vector<std::string> policies, const std::vector<std::string>& words) {
  Experiment experiment;
  experiment.cluster = std::make_shared<cluster::Cluster>(cluster::preset("2x8-h100").value());
  experiment.generator.hours = 2;
  experiment.generator.jobs_per_hour = 6;
  experiment.policies = std::move(policies);
  experiment.fixed_decision_time = true;
  experiment.settings = read_settings(words).value();
  return experiment;
}

std::vector<double> mean_times(const Experiment& experiment) {
  const auto results = sim::run(experiment);
  cr_assert(results.ok());
  std::vector<double> times;
  for (const Metrics& one : results->metrics) times.push_back(one.avg_jct_s.mean);
  return times;
}

}  // namespace

Test(settings, words_are_read_by_policy_and_the_last_holds) {
  const Settings read = read_settings({"rubick.queueing=100", "swell.margin=2",
                                       "rubick.queueing=1e2", "sia.round=30"})
                            .value();
  cr_assert_eq(read.size(), 3u);
  cr_assert_eq(read.at("rubick").at("queueing"), 100);
  cr_assert_eq(read.at("swell").at("margin"), 2);
}

Test(settings, objectives_are_given_by_name) {
  cr_assert_eq(read_settings({"swell.objective=fairness"}).value().at("swell").at("objective"), 3);
  const auto other = read_settings({"swell.objective=speed"});
  cr_assert_not(other.ok());
  cr_assert_eq(other.error().message(),
               "there is no objective \"speed\"; there are: completion, throughput, deadlines, "
               "fairness");
  cr_assert_not(read_settings({"swell.objective=1"}).ok());
}

Test(settings, unknown_settings_are_named) {
  for (const char* word : {"", "x", "rubick=1", "rubick.=1", ".queueing=1", "rubick.queueing",
                           "rubick.queueing=", "rubick.queueing=x", "rubick.queueing=inf"}) {
    const auto read = read_settings({"sia.round=30", word});
    cr_assert_not(read.ok(), "%s", word);
    cr_assert(read.error().message().starts_with("\"" + std::string(word) + "\" is not "));
  }
}

Test(settings, clocks_are_the_simulations_and_the_rest_the_policys) {
  Setup setup;
  setup.clocks = Clocks{};
  const auto left = set_up(setup, {{"growth-interval", 5}, {"max-shortfall", 0.5}, {"margin", 2}});
  cr_assert(left.ok());
  const policy::Parameters margin = {{"margin", 2}};
  cr_assert(*left == margin);
  cr_assert_eq(setup.clocks->growth_interval_s, 5);
  cr_assert_eq(setup.clocks->grant_expiry_s, Clocks{}.grant_expiry_s);
  cr_assert_eq(setup.max_shortfall, 0.5);
  cr_assert_not(set_up(setup, {{"max-shortfall", 1.5}}).ok());
  cr_assert_not(set_up(setup, {{"growth-interval", -1}}).ok());
}

Test(settings, how_a_rival_comes_to_its_profiles_is_the_simulations) {
  Setup setup;
  setup.profiles = Profiles::alone;
  cr_assert(set_up(setup, {{"profiler", 1}, {"profile-time", 60}}).value().empty());
  cr_assert(setup.profiles == Profiles::alone);
  cr_assert_eq(setup.profile_s, 60);
  cr_assert(set_up(setup, {{"profiler", 0}}).value().empty());
  cr_assert(setup.profiles == Profiles::full);
  cr_assert_eq(set_up(setup, {{"profiler", 2}}).error().message(),
               "profiler of 2 is out of range; give 0 to 1");
  cr_assert_eq(set_up(setup, {{"profile-time", -5}}).error().message(),
               "profile-time of -5 is out of range; give 0 to 86400");
}

Test(settings, one_policy_changes_and_the_others_do_not) {
  const std::vector<std::string> both = {"fewest-first", "marginal-benefit"};
  const auto usual = mean_times(small(both, {}));
  const auto clock = mean_times(small(both, {"fewest-first.growth-interval=600"}));
  cr_assert_neq(clock[0], usual[0]);
  cr_assert_eq(clock[1], usual[1]);
  const auto own = mean_times(small(both, {"marginal-benefit.aggressiveness=0"}));
  cr_assert_eq(own[0], usual[0]);
  cr_assert_neq(own[1], usual[1]);
}

Test(settings, settings_of_a_policy_that_does_not_run_or_has_none_are_errors) {
  const auto missing = sim::run(small({"fifo", "fewest-first"}, {"swell.margin=2"}));
  cr_assert_not(missing.ok());
  cr_assert_str_eq(missing.error().message().c_str(),
                   "policy \"swell\" has settings, and is not among those to simulate");
  const auto none = sim::run(small({"fifo"}, {"fifo.margin=2"}));
  cr_assert_not(none.ok());
  const auto unknown = sim::run(small({"elasticflow"}, {"elasticflow.margin=2"}));
  cr_assert_not(unknown.ok());
  cr_assert_str_eq(unknown.error().message().c_str(),
                   "policy elasticflow: there is no parameter \"margin\"; there are: round");
}
