// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/config.h"

#include <criterion/criterion.h>

#include "core/policy/registry.h"

using namespace swell::controller;

namespace {
std::string said_of(const char* policy) {
  Config config;
  config.policy = policy;
  const auto good = check_policy(config);
  return good ? std::string() : good.error().message();
}
}  // namespace

Test(config, policies_of_slurmctld_are_loaded_and_no_others) {
  for (const char* name : {"metis", "suika-dp", "magic"}) {
    cr_assert_eq(
        said_of(name),
        std::string("Policy=") + name +
            " is not valid; it must be one of swell, fewest-first, marginal-benefit, flextrain "
            "(the others that swell sim knows are for it alone)");
    cr_assert_not(swell::policy::make_policy(name).ok());
  }
  for (const char* name : {"swell", "fewest-first", "marginal-benefit", "flextrain"})
    cr_assert_eq(said_of(name), std::string());
}

Test(config, objectives_are_for_policies_that_lend_for_any) {
  for (const char* name : {"swell", "fewest-first", "marginal-benefit", "flextrain"})
    for (const auto objective :
         {swell::policy::Objective::completion, swell::policy::Objective::fairness}) {
      Config config;
      config.policy = name;
      config.objective = objective;
      const auto good = check_policy(config);
      const bool is_fine =
          objective == swell::policy::Objective::completion || std::string(name) == "swell";
      cr_assert_eq(good.ok(), is_fine, "%s", name);
      if (!is_fine)
        cr_assert_eq(good.error().message(),
                     "Objective=fairness is not for Policy=" + std::string(name) +
                         "; write Policy=swell, or leave Objective out");
    }
}

Test(config, a_missing_file_is_named) {
  const auto config = load_config("/nowhere/swell.conf");
  cr_assert_not(config.ok());
  cr_assert(config.error().message().find("/nowhere/swell.conf") != std::string::npos);
}
