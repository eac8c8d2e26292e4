// SPDX-License-Identifier: GPL-2.0-or-later
// Simulated worlds whose jobs a test lists.
#pragma once

#include <criterion/criterion.h>

#include "support/small_worlds.h"

namespace support {

/// A world with the given jobs: type (an index into `types`), submission and duration.
struct GivenWorld {
  struct Given {
    int gpus;
    double submit_s, basic_s;
    bool elastic = true;
  };
  explicit GivenWorld(int nodes, std::vector<Given> jobs) {
    cluster = std::make_shared<swell::cluster::Cluster>(
        swell::cluster::preset(std::to_string(nodes) + "x8-h100").value());
    workload.types = types_for(*cluster);
    for (const Given& given : jobs) {
      swell::sim::JobSpec spec;
      spec.id = static_cast<std::uint32_t>(workload.jobs.size() + 1);
      while (workload.types[static_cast<std::size_t>(spec.type)].gpus != given.gpus) ++spec.type;
      spec.submit_s = given.submit_s;
      spec.basic_s = given.basic_s;
      spec.limit_s = 1.5 * given.basic_s;
      spec.elastic = given.elastic;
      workload.jobs.push_back(spec);
    }
    setup.cluster = cluster;
    setup.workload = &workload;
    setup.order = order.get();
    setup.fixed_decision_time = true;
  }
  swell::sim::Outcome run() const {
    auto outcome = swell::sim::simulate(setup);
    cr_assert(outcome.ok(), "%s", outcome.ok() ? "" : outcome.error().message().c_str());
    return std::move(*outcome);
  }
  std::shared_ptr<const swell::cluster::Cluster> cluster;
  swell::sim::Workload workload;
  std::unique_ptr<swell::sim::QueueOrder> order = swell::sim::make_queue_order("fifo").value();
  swell::sim::Setup setup;
};

}  // namespace support
