// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/policy/rivals/elasticflow.h"
#include "core/policy/rivals/metis.h"
#include "core/policy/rivals/rubick.h"
#if SWELL_HAVE_GLPK
#include "core/policy/rivals/sia.h"
#endif
#include "core/policy/rivals/suika_dp.h"

namespace swell::policy {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Policy> (*make)(
      const PolicyOptions&);  ///< null: this build lacks a library for it
};

template <typename P>
std::unique_ptr<Policy> make(const PolicyOptions&) {
  return std::make_unique<P>();
}

#if SWELL_HAVE_GLPK
constexpr auto make_sia = make<Sia>;
std::unique_ptr<Policy> make_sia_any_size(const PolicyOptions&) {
  Sia::Options options;
  options.growth = 0;
  return std::make_unique<Sia>(options);
}
#else
constexpr std::unique_ptr<Policy> (*make_sia)(const PolicyOptions&) = nullptr,
                                                    (*make_sia_any_size)(const PolicyOptions&) =
                                                        nullptr;
#endif

constexpr Entry kEntries[] = {
    {"suika-dp",
     [](const PolicyOptions& options) {
       return make_suika_dp(options.aggressiveness, options.fairness);
     }},
    {"metis",
     [](const PolicyOptions& options) {
       return make_metis(options.aggressiveness, options.fairness, TimedMetis::kPublished_per_s);
     }},
    {"metis-measured",
     [](const PolicyOptions& options) {
       return make_metis(options.aggressiveness, options.fairness, TimedMetis::kMeasured_per_s);
     }},
    {"sia", make_sia},
    {"sia-any-size", make_sia_any_size},
    {"rubick", make<Rubick>},
    {"elasticflow", make<ElasticFlow>},
};

}  // namespace

Result<std::unique_ptr<Policy>> make_simulated_policy(std::string_view name,
                                                      const PolicyOptions& options) {
  for (const Entry& entry : kEntries) {
    if (name != entry.name) continue;
    if (entry.make) return entry.make(options);
    return Error(fmt::format(
        "policy \"{}\" is not in this build, which lacks GLPK: install libglpk-dev and configure again",
        name));
  }
  if (auto lending = make_policy(name, options)) return lending;
  return Error(fmt::format("there is no policy \"{}\"; there are: {}", name,
                           fmt::join(simulated_policy_names(), ", ")));
}

std::vector<std::string> simulated_policy_names() {
  std::vector<std::string> names = policy_names();
  for (const Entry& entry : kEntries)
    if (entry.make) names.emplace_back(entry.name);
  return names;
}

}  // namespace swell::policy
