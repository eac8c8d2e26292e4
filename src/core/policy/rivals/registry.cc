// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/policy/rivals/arena.h"
#include "core/policy/rivals/elasticflow.h"
#include "core/policy/rivals/metis.h"
#include "core/policy/rivals/rubick.h"
#if SWELL_HAVE_GLPK
#include "core/policy/rivals/gavel.h"
#include "core/policy/rivals/sia.h"
#endif
#include "core/policy/rivals/suika.h"
#include "core/policy/rivals/suika_dp.h"

namespace swell::policy {

namespace {

using Made = Result<std::unique_ptr<SimulatedPolicy>>;

struct Entry {
  const char* name;
  Made (*make)(const PolicyOptions&);  ///< null: this build lacks a library for it
};

template <typename P>
Made make_from(typename P::Options options, const PolicyOptions& given) {
  auto its_own = with(options, P::kParameters, given.parameters);
  if (!its_own) return its_own.error();
  return std::unique_ptr<SimulatedPolicy>(std::make_unique<P>(*its_own));
}

template <typename P>
Made make(const PolicyOptions& given) {
  return make_from<P>({}, given);
}

/// `make_it`: makes a policy from MarginalBenefit's options.
template <typename Make>
Made by_benefit(const PolicyOptions& given, Make make_it) {
  auto options =
      with(MarginalBenefit::Options{}, MarginalBenefit::kParameters, with_benefits(given));
  if (!options) return options.error();
  return make_it(*options);
}

#if SWELL_HAVE_GLPK
constexpr auto make_sia = make<Sia>, make_gavel = make<Gavel>;
Made make_sia_any_size(const PolicyOptions& given) {
  Sia::Options options;
  options.growth = 0;
  return make_from<Sia>(options, given);
}
#else
constexpr Made (*make_sia)(const PolicyOptions&) = nullptr,
                                 (*make_sia_any_size)(const PolicyOptions&) = nullptr,
                                 (*make_gavel)(const PolicyOptions&) = nullptr;
#endif

template <double plans_per_s>
Made make_timed_metis(const PolicyOptions& given) {
  return by_benefit(given, [](const MarginalBenefit::Options& options) {
    return make_metis(options, plans_per_s);
  });
}

/// Makes one of slurmctld's policies, `name`.
Made lender(std::string_view name, const PolicyOptions& given, const SimulationTraits& traits) {
  auto made = make_policy(name, given);
  if (!made) return made.error();
  return std::unique_ptr<SimulatedPolicy>(std::make_unique<Lender>(std::move(*made), traits));
}

using Slurmctld = SimulationTraits::Slurmctld;

/// The policies of slurmctld, each with the traits that it has in the simulator.
constexpr Entry kLenders[] = {
    {"swell",
     [](const PolicyOptions& given) {
       return lender("swell", given,
                     {.lends_at_start = true,
                      .sends = perf::Sends::counted,
                      .honours_consent = true,
                      .slurmctld = Slurmctld::after_profile_wait});
     }},
    {"fewest-first",
     [](const PolicyOptions& given) {
       return lender("fewest-first", given,
                     {.honours_consent = true, .slurmctld = Slurmctld::as_it_starts});
     }},
    {"marginal-benefit",
     [](const PolicyOptions& given) {
       return by_benefit(given, [&](MarginalBenefit::Options options) {
         options.budget = given.budget;
         return std::unique_ptr<SimulatedPolicy>(std::make_unique<Suika>(options));
       });
     }},
    {"flextrain",
     [](const PolicyOptions& given) {
       return lender("flextrain", given,
                     {.sends = perf::Sends::counted,
                      .honours_consent = true,
                      .slurmctld = Slurmctld::after_profile_wait});
     }},
};

constexpr Entry kEntries[] = {
    {"suika-dp", [](const PolicyOptions& given) { return by_benefit(given, make_suika_dp); }},
    {"metis", make_timed_metis<TimedMetis::kPublished_per_s>},
    {"metis-measured", make_timed_metis<TimedMetis::kMeasured_per_s>},
    {"sia", make_sia},
    {"sia-any-size", make_sia_any_size},
    {"rubick", make<Rubick>},
    {"elasticflow", make<ElasticFlow>},
    {"arena", make<Arena>},
    {"gavel", make_gavel},
};

}  // namespace

Result<std::unique_ptr<SimulatedPolicy>> make_simulated_policy(std::string_view name,
                                                               const PolicyOptions& options) {
  for (const Entry& entry : kEntries) {
    if (name != entry.name) continue;
    if (entry.make) return entry.make(options);
    return Error(fmt::format(
        "policy \"{}\" is not in this build, which lacks GLPK: install libglpk-dev and configure again",
        name));
  }
  for (const Entry& entry : kLenders)
    if (name == entry.name) return entry.make(options);
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
