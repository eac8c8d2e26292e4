// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a cluster: refused with a reason, or a cluster that survives a round trip.
#include <cstdint>
#include <string_view>

#include <cstdlib>

#include "core/cluster/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = swell::Json::parse(text);
  if (!json) return 0;
  const auto cluster = swell::cluster::Cluster::from_json(*json);
  if (!cluster) return 0;
  const auto again = swell::cluster::Cluster::from_json(cluster->to_json());
  if (!again || again->gpu_count() != cluster->gpu_count()) std::abort();
  const int last = static_cast<int>(cluster->nodes().size()) - 1;
  if (!(cluster->effective_bandwidth({0, 0}, {last, 0}) > 0)) std::abort();
  return 0;
}
