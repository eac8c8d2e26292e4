// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "unit/controller/reports.h"
#include "unit/controller/world.h"

namespace swell::test {

inline const std::vector<int> kEight = {0, 1, 2, 3, 4, 5, 6, 7};

/// A live job on the 8 GPUs of each of its first `own` nodes, and other idle nodes.
struct Live : World {
  control::ConnectionId asker = 50;
  int workers = 8;

  explicit Live(int nodes = 4, int max = 16, int own = 1) : workers(8 * own) {
    slurm = FakeSlurm(nodes);
    slurm::JobRecord& its =
        slurm.run(10, "node1", 8,
                  "swell[elastic=max=" + std::to_string(max) +
                      ",mode=live,grace=20 basic=" + std::to_string(workers) + "]");
    for (int node = 2; node <= own; ++node) {
      its.nodes.push_back("node" + std::to_string(node));
      its.gpus.push_back({its.nodes.back(), its.gpus.front().gpus});
    }
    hello(1);
  }

  void hello(control::ConnectionId connection, std::vector<JobId> companions = {}) {
    World::hello(connection, 10, workers, std::move(companions));
  }
  void report(const Reported& reported) {
    server.says(1, reported.message());
    step();
  }
  /// Plans are made on another thread: rounds go on until one is taken up.
  template <typename Done>
  bool until(Done done) {
    for (int round = 0; round < 3000 && !done(); ++round) {
      step(0.0016);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return done();
  }
  bool grown() {
    return until([this] { return server.last<control::Grow>() != nullptr; });
  }
  void take_offers(JobId first) { World::take_offers(1, first); }
  const controller::ElasticJob& job() const { return controller->jobs().at(10); }
  control::Answer ask(const std::string& what, int number = 0, uid_t uid = 1000, JobId job = 10) {
    control::Ask ask;
    ask.job = job;
    ask.what = what;
    ask.number = number;
    server.says(++asker, ask, uid);
    step();
    const auto* answer = server.last<control::Answer>();
    return answer != nullptr ? *answer : control::Answer{};
  }
};

}  // namespace swell::test
