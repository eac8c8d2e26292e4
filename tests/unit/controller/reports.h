// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "control/messages.h"
#include "core/cluster/cluster.h"
#include "core/perf/profile_json.h"

/// Profiles as agents report them, of a program whose passes take what a test says.
namespace swell::test {

/// Four nodes of eight H100, as a controller's planner sees them.
inline std::shared_ptr<const cluster::Cluster> live_machines() {
  static const auto made = [] {
    std::vector<cluster::Node> nodes;
    for (int i = 1; i <= 4; ++i) {
      cluster::Node node;
      node.name = "node" + std::to_string(i);
      node.gpus.assign(8, 0);
      node.network_bytes_per_s = 400e9;
      nodes.push_back(std::move(node));
    }
    return std::make_shared<const cluster::Cluster>(
        cluster::Cluster::make("live", {*cluster::find_gpu_type("h100")}, std::move(nodes))
            .value());
  }();
  return made;
}

/// Data parallel training of one stage, a GPU a group: on GPUs of one node, and
/// on as many of `lent_node` where that is named.
struct Reported {
  std::vector<int> gpus;
  int layers = 8;
  double layer_s = 1e-3;     ///< forward pass of one layer and sample
  double layer_bytes = 4e6;  ///< gradients of one layer
  double step_factor = 1;    ///< steps take so many times what the passes explain
  int generation = 0;
  std::string node = "node1", lent_node;
  int samples = 16;  ///< of a micro-batch
  int micro_batches = 4;
  int more_of_last = 0;  ///< samples that the last group takes from the others, one from each

  int groups() const { return static_cast<int>(gpus.size()) * (lent_node.empty() ? 1 : 2); }
  int local_batch(int group) const {
    const int each = samples / groups();
    if (group == groups() - 1) return each + more_of_last;
    return group < more_of_last ? each - 1 : each;
  }
  double fwd_s(int group) const { return layers * layer_s * local_batch(group); }
  double step_s() const { return step_factor * (micro_batches * 3 * fwd_s(groups() - 1) + 0.01); }

  plan::Plan plan() const {
    plan::Plan plan{micro_batches, {{layers, 1, {}}}};
    for (const std::string& each : {node, lent_node})
      for (const int gpu : gpus)
        if (!each.empty())
          plan.stages[0].groups.push_back({each, "h100", {gpu}, local_batch(plan.stages[0].dp())});
    return plan;
  }
  control::Profile message() const {
    perf::Profile profile;
    profile.plan = plan();
    for (int i = 0; i < groups(); ++i) {
      perf::GroupObservation seen;
      seen.group = i;
      seen.fwd_s = fwd_s(i);
      seen.bwd_s = 2 * fwd_s(i);
      seen.optim_s = 0.01;
      seen.layer_param_bytes = layers * layer_bytes;
      seen.layer_state_bytes = 4 * layers * layer_bytes;
      seen.peak_bytes = 6 * layers * layer_bytes + 1e6;
      profile.groups.push_back(seen);
    }
    profile.activ_bytes = 1e5;
    profile.whole_activations = 1;
    control::Profile message;
    message.generation = generation;
    message.step_s = step_s();
    message.profile = perf::to_json(profile);
    return message;
  }
};

}  // namespace swell::test
