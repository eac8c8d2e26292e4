// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/topo_publish.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <poll.h>
#include <random>
#include <syslog.h>

#include "core/json.h"
#include "slurm/node_extra.h"
#include "slurm/site_config.h"
#include "tools/files.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

using Clock = std::chrono::steady_clock;

/// If the watched pipe closes within this time, this is ignored, since a slurmd that becomes a
/// daemon may close its descriptors.
constexpr auto kTooSoon = std::chrono::seconds(3);
constexpr double kLongestPause_s = 30;

/// Result of one attempt.
enum class Outcome { done, hopeless, again };

struct Attempt {
  Outcome outcome;
  std::string why;
};

Attempt try_once(const cluster::NodeDescription& node, const PublishOptions& options) {
  auto now = slurm::load_node_extra(options.node, slurm::short_host_name());
  if (!now) return {Outcome::again, now.error().message()};
  auto wanted = cluster::write_extra(now->extra, node);
  if (!wanted)
    return {Outcome::hopeless, wanted.error().while_doing("node " + now->node).message()};
  if (*wanted == now->extra) return {Outcome::done, {}};
  if (auto set = slurm::set_node_extra(now->node, *wanted); !set)
    return {Outcome::again, set.error().while_doing("node " + now->node).message()};
  return {Outcome::done, {}};
}

/// Waits `seconds`. Returns false if the other end of the watched pipe has closed.
bool pause(double seconds, int& watch, Clock::time_point begun) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return true;
    pollfd pipe{watch, POLLIN, 0};
    if (poll(&pipe, watch >= 0 ? 1 : 0, static_cast<int>(left)) <= 0) continue;
    if (Clock::now() - begun > kTooSoon) return false;
    watch = -1;
  }
}

}  // namespace

Result<cluster::NodeDescription> described(const std::string& text) {
  auto json = Json::parse(text);
  if (!json) return json.error();
  if (json->has("swell")) return cluster::NodeDescription::from_json(json->at("swell"));
  if (json->has("published")) return cluster::NodeDescription::from_json(json->at("published"));
  return cluster::NodeDescription::from_json(*json);
}

int publish(const cluster::NodeDescription& node, const PublishOptions& options) {
  const auto begun = Clock::now(), end = begun + std::chrono::seconds(options.retry_s);
  slurm::init_libslurm();
  // All nodes of a cluster may start at once, so their pauses must differ.
  std::mt19937 random{std::random_device{}()};
  std::uniform_real_distribution<double> part(0.5, 1.0);
  int watch = options.watch;
  for (double longest = 1;; longest = std::min(longest * 2, kLongestPause_s)) {
    const Attempt attempt = try_once(node, options);
    if (attempt.outcome == Outcome::done) return 0;
    if (attempt.outcome == Outcome::hopeless || Clock::now() >= end) {
      // When slurmd starts the program, nobody reads its standard error.
      if (options.watch >= 0)
        syslog(LOG_DAEMON | LOG_WARNING, "swell: topology not published: %s", attempt.why.c_str());
      return fail(Error(attempt.why).while_doing("publishing the topology"));
    }
    if (!pause(longest * part(random), watch, begun)) return 0;
  }
}

}  // namespace swell::tools
