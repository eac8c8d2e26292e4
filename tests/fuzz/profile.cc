// SPDX-License-Identifier: GPL-2.0-or-later
// Any bytes as a rank's report, and any text as a profile: a report is written as it was read, and
// is bounded; what is read is checked, and reads back with its nodes.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/perf/check_profile.h"
#include "core/perf/profile_json.h"
#include "profiler/assemble.h"
#include "support/plans.h"

namespace {

using namespace swell;

void check_that(bool holds) {
  if (!holds) std::abort();
}

void read_back(const perf::Profile& profile, const cluster::Cluster& cluster) {
  (void)perf::check(profile, cluster);
  const auto again = perf::profile_from_json(perf::to_json(profile), cluster);
  if (!again) return;  // a plan of a rank's words may have more than is read
  check_that(again->groups.size() == profile.groups.size());
  for (std::size_t i = 0; i < profile.groups.size(); ++i)
    check_that(again->groups[i].nodes == profile.groups[i].nodes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto cluster = support::h100_nodes(2);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto rank = profiler::read_rank_profile(input)) {
    check_that(profiler::write(*rank) == input && input.size() <= profiler::kMaxProfileBytes);
    const auto brief = profiler::read_rank_profile(profiler::write_for_older(*rank));
    check_that(brief.ok() && brief->nodes.empty() && brief->times.weights_s == 0);
    if (const auto plan = profiler::plan_of({{"n1", "h100", {0}, *rank}}))
      if (const auto profile = profiler::assemble(*plan, {*rank})) read_back(*profile, cluster);
  }
  if (const auto json = Json::parse(input))
    if (const auto profile = perf::profile_from_json(*json, cluster)) {
      check_that(profile->groups.empty() ||
                 profile->groups.front().nodes.size() <= perf::kMaxNodes);
      read_back(*profile, cluster);
    }
  return 0;
}
