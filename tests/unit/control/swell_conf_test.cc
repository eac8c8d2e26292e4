// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/swell_conf.h"

#include <criterion/criterion.h>

using swell::control::swell_conf_path;
using swell::control::SwellConf;
using swell::control::with_elasticity;

namespace {
std::string reason(const char* text) {
  const auto config = SwellConf::parse(text);
  cr_assert_not(config.ok(), "accepted: %s", text);
  return config.error().message();
}
bool says(const std::string& sentence, const char* words) {
  return sentence.find(words) != std::string::npos;
}
}  // namespace

Test(swell_conf, reads_keys_in_any_case_with_comments) {
  const auto config = SwellConf::parse(
      "# Swell\nexpansionqos = expansion  # lent GPUs\n\nGrowthInterval=2.5\nControlPort=7000\n");
  cr_assert(config.ok(), "%s", config.error().message().c_str());
  cr_assert_eq(config->expansion_qos, std::string("expansion"));
  cr_assert_float_eq(config->growth_interval_s, 2.5, 1e-9);
  cr_assert_eq(config->control_port, 7000);
  cr_assert_eq(config->policy, std::string("swell"));
}

Test(swell_conf, names_line_key_value_and_what_is_allowed) {
  cr_assert(says(reason("ExpansionQOS=e\nColour=red\n"),
                 "line 2: unknown key \"Colour\"; the keys are Elasticity"));
  cr_assert(says(reason("ControlPort=99999\n"),
                 "ControlPort=99999 is not valid; it must be a whole number from 1 to 65535"));
  cr_assert(says(reason("PollInterval=fast\n"), "PollInterval=fast"));
  cr_assert(says(reason("Elasticity=maybe\n"),
                 "Elasticity=maybe is not valid; it must be yes, no or drain"));
  cr_assert(says(reason("Aggressiveness=-1\n"), "a number from 0 to 100"));
  cr_assert(says(reason("Objective=fair\n"),
                 "Objective=fair is not valid; it must be completion, throughput, deadlines "
                 "or fairness"));
  for (const char* bad :
       {"MaxShortfall=0\n", "MaxShortfall=1.1\n", "MaxShortfall=nan\n", "MaxShortfall=50%\n"})
    cr_assert(says(reason(bad), "a number from 0.1 to 1"), "%s", bad);
  for (const char* bad : {"ScaleUpChance=-0.1\n", "ScaleUpChance=1.01\n", "ScaleUpChance=nan\n",
                          "ScaleUpChance=60%\n"})
    cr_assert(says(reason(bad), "a number from 0 to 1"), "%s", bad);
  cr_assert(says(reason("ArrivalWindow=59\n"), "ArrivalWindow=59 is not valid"));
  cr_assert(says(reason("ArrivalGPUs=0\n"),
                 "ArrivalGPUs=0 is not valid; it must be a whole number from 1 to 1000000"));
  for (const char* bad : {"LendWithoutProfile=1\n", "LowerRequests=true\n"})
    cr_assert(says(reason(bad), "it must be yes or no"), "%s", bad);
  cr_assert(says(reason("Fairness=11\n"), "a number from 0 to 10"));
  cr_assert(says(reason("BaseScheduler=sched/swell\n"), "sched/backfill"));
  cr_assert(says(reason("EventLog=here.log\n"), "path from the root"));
  cr_assert(says(reason("GrowthInterval=\n"), "GrowthInterval has no value"));
  cr_assert(says(reason("MaxLentByQOS=normal\n"),
                 "MaxLentByQOS=normal is not valid; it must be NAME:GPUS"));
  cr_assert(says(reason("just words\n"), "is not Key=Value"));
  cr_assert(says(reason("ExpansionQOS=a\nExpansionQOS=b\n"), "twice"));
}

Test(swell_conf, objectives_are_read_in_any_case) {
  const auto config = SwellConf::parse("ExpansionQOS=e\nObjective=Fairness\n");
  cr_assert(config.ok() && config->objective == swell::policy::Objective::fairness);
  cr_assert(SwellConf{}.objective == swell::policy::Objective::completion);
}

Test(swell_conf, yes_and_no_are_read_in_any_case) {
  const auto config = SwellConf::parse("ExpansionQOS=e\nLendWithoutProfile=No\nLowerRequests=NO\n");
  cr_assert(config.ok(), "%s", config.ok() ? "" : config.error().message().c_str());
  cr_assert_not(config->lends_without_profile);
  cr_assert_not(config->lowers_requests);
  cr_assert(SwellConf{}.lends_without_profile);
}

Test(swell_conf, elasticity_is_on_off_or_being_drained) {
  const auto on = SwellConf::parse("ExpansionQOS=e\nElasticity=yes\n"),
             drained = SwellConf::parse("ExpansionQOS=e\nElasticity=Drain\n"),
             off = SwellConf::parse("Elasticity=no\n");
  cr_assert(on->enabled && !on->draining);
  cr_assert(drained->enabled && drained->draining);
  cr_assert(!off->enabled && !off->draining);
}

Test(swell_conf, one_line_is_changed_and_all_others_stay) {
  cr_assert_eq(with_elasticity("# ours\nexpansionqos=e # here\n", "drain"),
               std::string("# ours\nexpansionqos=e # here\nElasticity=drain\n"));
  cr_assert_eq(with_elasticity("ELASTICITY = yes # on\nExpansionQOS=e\n", "drain"),
               std::string("Elasticity=drain\nExpansionQOS=e\n"));
  cr_assert_eq(with_elasticity("#Elasticity=no\nExpansionQOS=e", "yes"),
               std::string("#Elasticity=no\nExpansionQOS=e\nElasticity=yes\n"));
}

Test(swell_conf, stands_beside_slurm_conf) {
  cr_assert_eq(swell_conf_path("/etc/slurm/slurm.conf"), std::string("/etc/slurm/swell.conf"));
}

Test(swell_conf, wants_exactly_one_place_for_expansions) {
  cr_assert(says(reason(""), "exactly one of ExpansionQOS"));
  cr_assert(says(reason("ExpansionQOS=a\nExpansionPartition=b\n"), "exactly one of"));
  cr_assert(SwellConf::parse("Elasticity=no\n").ok());
}

Test(swell_conf, a_missing_file_is_named) {
  const auto config = SwellConf::load("/nowhere/swell.conf");
  cr_assert_not(config.ok());
  cr_assert(says(config.error().message(), "/nowhere/swell.conf"));
}
