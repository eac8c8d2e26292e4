// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/policy/fewest_first.h"
#include "core/policy/marginal_benefit.h"

namespace swell::policy {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Policy> (*make)();
};

template <typename P>
std::unique_ptr<Policy> make() {
  return std::make_unique<P>();
}

constexpr Entry entries[] = {
    {"fewest-first", make<FewestFirst>},
    {"marginal-benefit", make<MarginalBenefit>},
};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  for (const Entry& entry : entries)
    if (name == entry.name) return entry.make();
  return Error(fmt::format("there is no policy \"{}\"; there are: {}", name, fmt::join(policy_names(), ", ")));
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  return names;
}

}  // namespace swell::policy
