// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/policy/lending/fewest_first.h"
#include "core/policy/lending/flextrain.h"
#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/lending/swell.h"

namespace swell::policy {

namespace {

struct Entry {
  const char* name;
  /// Policy whose decisions it makes while no profiles are known; "": its own decisions.
  const char* without_profiles;
  bool reads_data_sheets, takes_objectives;
  Result<std::unique_ptr<Policy>> (*make)(const PolicyOptions&);
};

template <typename P>
Result<std::unique_ptr<Policy>> with_parameters(typename P::Options options,
                                                const Parameters& given) {
  auto its_own = with(std::move(options), P::kParameters, given);
  if (!its_own) return its_own.error();
  return std::unique_ptr<Policy>(std::make_unique<P>(std::move(*its_own)));
}

constexpr Entry kEntries[] = {
    {"swell", "fewest-first", true, true,
     [](const PolicyOptions& options) {
       Swell::Options its_own;
       its_own.executor = options.executor;
       its_own.budget = options.budget;
       its_own.objective = options.objective;
       return with_parameters<Swell>(std::move(its_own), options.parameters);
     }},
    {"fewest-first", "", false, false,
     [](const PolicyOptions& options) {
       return with_parameters<FewestFirst>({}, options.parameters);
     }},
    {"marginal-benefit", "fewest-first", false, false,
     [](const PolicyOptions& options) {
       MarginalBenefit::Options its_own;
       its_own.budget = options.budget;
       return with_parameters<MarginalBenefit>(std::move(its_own), with_benefits(options));
     }},
    {"flextrain", "fewest-first", false, false,
     [](const PolicyOptions& options) {
       FlexTrain::Options its_own;
       its_own.chance = options.arrivals.chance;
       its_own.window_s = options.arrivals.window_s;
       its_own.arrival_gpus = options.arrivals.gpus;
       its_own.budget = options.budget;
       return with_parameters<FlexTrain>(std::move(its_own), options.parameters);
     }},
};

}  // namespace

Parameters with_benefits(const PolicyOptions& options) {
  Parameters all = options.parameters;
  all.try_emplace("aggressiveness", options.aggressiveness);
  all.try_emplace("fairness", options.fairness);
  return all;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicyOptions& options) {
  for (const Entry& entry : kEntries)
    if (name == entry.name) return entry.make(options);
  return Error(fmt::format("there is no policy \"{}\"; there are: {}", name,
                           fmt::join(policy_names(), ", ")));
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

bool policy_plans(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (name == entry.name) return *entry.without_profiles != 0;
  return false;
}

bool policy_reads_data_sheets(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (name == entry.name) return entry.reads_data_sheets;
  return false;
}

bool policy_takes_objectives(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (name == entry.name) return entry.takes_objectives;
  return false;
}

std::string policy_without_profiles(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (name == entry.name && *entry.without_profiles != 0)
      return fmt::format(
          "{}, which plans for jobs with a profile{} and lends to others as {} does", name,
          entry.reads_data_sheets ? ", by data sheets where their model is known," : "",
          entry.without_profiles);
  return std::string(name);
}

}  // namespace swell::policy
