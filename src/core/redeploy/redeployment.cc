// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/redeploy/redeployment.h"

#include <algorithm>

#include "core/redeploy/measured.h"

namespace swell::redeploy {

namespace {

// Pause in seconds that cannot be overlapped: stopping at a step's end, connecting the changed
// groups, the first slow step. Set so that the average ratio of checkpoint to local reuse over
// Suika's Table 1 with 3:1:1 matches Suika's measurements: 4.89 (Sia) and 4.44 (Rubick) (section
// 5.3, Fig. 14a).
constexpr double kSwitch_s = 9;

// Rate at which one GPU's state goes to CPU memory and back, with serialization. Fits Tenplex's
// measured reconfigurations of GPT-3 1.3B to 6.7B: 1.45 s more for each GB that a GPU needs
// (tests/bench/redeployment).
constexpr double kThroughCpu_bytes_per_s = 0.75e9;

// Rate at which state that stays on its GPU is handed over by CUDA IPC in chunks: ten times faster
// than through CPU memory, "only seconds with 20 GB" (Suika, section 3.3).
constexpr double kLocal_bytes_per_s = 7.5e9;

// Share of a link's speed that transfers in chunks of 2 GB reach.
constexpr double kLinkShare = 0.7;

// Rate at which one GPU's part is written to shared storage and read again, in addition to the time
// through CPU memory. Suika gives a node one network card of nine for storage, but no figure for
// the storage itself; this value was fitted together with kSwitch_s.
constexpr double kThroughStorage_bytes_per_s = 1.5e9;

double through_storage_s(const StateMoves& moves) {
  // The rates are for both directions; each of these two figures moves in one direction.
  const double bytes = (moves.max_had_bytes + moves.max_needed_bytes) / 2;
  return bytes / kThroughCpu_bytes_per_s + bytes / kThroughStorage_bytes_per_s;
}

}  // namespace

Cost cost_of(Method method, const perf::Coefficients& coefficients, const plan::Layout& from,
             const plan::Layout& to, const cluster::Cluster& cluster, const Ranks& ranks) {
  if (to.stages.empty() || from == to) return {};
  if (from.stages.empty()) return {0, kInitialize_s};
  const StateMoves moves = state_moves(coefficients, from, to, cluster, ranks);
  const double remote_s = moves.link_s / kLinkShare;
  switch (method) {
    case Method::checkpoint: return {0, kInitialize_s + through_storage_s(moves)};
    case Method::checkpoint_overlap: return {kInitialize_s, kSwitch_s + through_storage_s(moves)};
    case Method::device_to_device:
      return {kInitialize_s,
              kSwitch_s + std::max(moves.max_needed_bytes / kThroughCpu_bytes_per_s, remote_s)};
    case Method::local_reuse:
      return {kInitialize_s, kSwitch_s + moves.max_local_bytes / kLocal_bytes_per_s + remote_s};
  }
  return {};
}

Cost measured_cost_of(Measured measured, const perf::Coefficients& coefficients,
                      const plan::Layout& from, const plan::Layout& to,
                      const cluster::Cluster& cluster, const Ranks& ranks) {
  if (to.stages.empty() || from.stages.empty() || from == to)
    return cost_of(Method::local_reuse, coefficients, from, to, cluster, ranks);
  const bool grows = to.gpu_count() > from.gpu_count();
  if (measured == Measured::restart) {
    Cost cost = cost_of(Method::checkpoint, coefficients, from, to, cluster, ranks);
    cost.pause_s += measured_pause(measured, grows).pause_s - kInitialize_s;
    return cost;
  }
  Cost cost = cost_of(Method::local_reuse, coefficients, from, to, cluster, ranks);
  cost.pause_s += measured_pause(measured, grows).pause_s - kSwitch_s;
  if (!grows) cost.delay_s = 0;
  return cost;
}

Cost within_model(const Cost& measured, const Cost& model) {
  const auto within = [](double value, double by_model) {
    return std::clamp(value, by_model / kMostUnder, by_model * kMostOver);
  };
  return {within(measured.delay_s, model.delay_s), within(measured.pause_s, model.pause_s)};
}

}  // namespace swell::redeploy
