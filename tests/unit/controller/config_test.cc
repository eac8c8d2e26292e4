// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/config.h"

#include <criterion/criterion.h>

#include "core/policy/registry.h"

using swell::controller::Config;

namespace {
std::string reason(const char* text) {
  const auto config = Config::parse(text);
  cr_assert_not(config.ok(), "accepted: %s", text);
  return config.error().message();
}
bool says(const std::string& sentence, const char* words) { return sentence.find(words) != std::string::npos; }
}  // namespace

Test(config, reads_keys_in_any_case_with_comments) {
  const auto config = Config::parse("# Swell\nexpansionqos = expansion  # lent GPUs\n\nGrowthInterval=2.5\nControlPort=7000\n");
  cr_assert(config.ok(), "%s", config.error().message().c_str());
  cr_assert_eq(config->expansion_qos, std::string("expansion"));
  cr_assert_float_eq(config->growth_interval_s, 2.5, 1e-9);
  cr_assert_eq(config->control_port, 7000);
  cr_assert_eq(config->policy, std::string("swell"));
}

Test(config, names_line_key_value_and_what_is_allowed) {
  cr_assert(says(reason("ExpansionQOS=e\nColour=red\n"), "line 2: unknown key \"Colour\"; the keys are Elasticity"));
  cr_assert(says(reason("ControlPort=99999\n"), "ControlPort=99999 is not valid; it must be a whole number from 1 to 65535"));
  cr_assert(says(reason("PollInterval=fast\n"), "PollInterval=fast"));
  cr_assert(says(reason("Policy=magic\n"), "one of swell, fewest-first, marginal-benefit"));
  cr_assert(says(reason("Policy=rubick\n"), "one of swell, fewest-first, marginal-benefit"), "it would start jobs itself");
  cr_assert(says(reason("Aggressiveness=-1\n"), "a number from 0 to 100"));
  cr_assert(says(reason("BaseScheduler=sched/swell\n"), "sched/backfill"));
  cr_assert(says(reason("EventLog=here.log\n"), "path from the root"));
  cr_assert(says(reason("GrowthInterval=\n"), "GrowthInterval has no value"));
  cr_assert(says(reason("just words\n"), "no Key=Value"));
  cr_assert(says(reason("ExpansionQOS=a\nExpansionQOS=b\n"), "twice"));
}

Test(config, policies_that_are_for_the_simulator_alone_are_not_loaded) {
  for (const char* name : {"metis", "suika-dp"}) {
    const std::string line = std::string("Policy=") + name;
    const std::string why = reason((line + "\n").c_str());
    cr_assert(says(why, (line + " is not valid; it must be one of swell, fewest-first, marginal-benefit (the others that swell sim knows are for it alone)").c_str()), "%s", why.c_str());
    cr_assert_not(swell::policy::make_policy(name).ok());
  }
  for (const char* name : {"swell", "fewest-first", "marginal-benefit"}) {
    const auto config = Config::parse(std::string("ExpansionQOS=e\nPolicy=") + name + "\n");
    cr_assert(config.ok(), "%s", config.error().message().c_str());
    cr_assert_eq(config->policy, std::string(name));
  }
}

Test(config, wants_exactly_one_place_for_expansions) {
  cr_assert(says(reason(""), "exactly one of ExpansionQOS"));
  cr_assert(says(reason("ExpansionQOS=a\nExpansionPartition=b\n"), "exactly one of"));
  cr_assert(Config::parse("Elasticity=no\n").ok());
}

Test(config, a_missing_file_is_named) {
  const auto config = Config::load("/nowhere/swell.conf");
  cr_assert_not(config.ok());
  cr_assert(says(config.error().message(), "/nowhere/swell.conf"));
}
