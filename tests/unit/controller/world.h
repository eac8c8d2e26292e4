// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "controller/controller.h"
#include "unit/controller/fakes.h"

namespace swell::test {

/// Returns an agent's first message about a job with so many workers of one GPU each.
inline control::Hello hello_of(JobId job, int workers) {
  control::Hello hello;
  hello.job = job;
  hello.workers = workers;
  return hello;
}

/// A controller over a fake cluster of 4 nodes with 8 GPUs each.
struct World {
  FakeSlurm slurm{4};
  FakeServer server;
  controller::GrantBook book;
  std::string state_path;
  int nonces = 0;
  double now = 100;
  controller::Config config;
  std::vector<std::string> said;
  controller::History* history = nullptr;  ///< of the next restart(); outlives the world
  std::unique_ptr<controller::Controller> controller;

  World() {
    char folder[] = "/tmp/swell-controller-test-XXXXXX";
    state_path = std::string(mkdtemp(folder)) + "/state";
    config.expansion_qos = "expansion";
    config.growth_interval_s = 10;
    restart();
  }
  ~World() { std::filesystem::remove_all(std::filesystem::path(state_path).parent_path()); }

  /// As after kill -9 of slurmctld: all that is kept is Slurm's records and the state file.
  void restart() {
    controller.reset();
    std::destroy_at(&book);
    std::construct_at(&book);
    controller::Controller::Parts parts;
    parts.config = config;
    parts.slurm = &slurm;
    parts.server = &server;
    parts.book = &book;
    parts.state_path = state_path;
    parts.history = history;
    parts.log = [this](const std::string& line) { said.push_back(line); };
    parts.nonce = [this] { return "nonce" + std::to_string(++nonces); };
    controller = std::make_unique<controller::Controller>(std::move(parts));
  }
  void step(double seconds = 1) {
    now += seconds;
    controller->cycle(now);
  }
  void hello(control::ConnectionId connection, JobId job, int workers,
             std::vector<JobId> companions = {}) {
    control::Hello hello = hello_of(job, workers);
    hello.companions = std::move(companions);
    server.says(connection, hello);
    step();
  }
  /// Plays the agent: takes every offer of the last Grow up; companions get ids from `first` on.
  void take_offers(control::ConnectionId connection, JobId first) {
    const control::Grow grow = *server.last<control::Grow>();
    control::GrowDone done;
    for (const control::Offer& offer : grow.offers) {
      const auto grant = book.use(offer.nonce, 1000, now);
      cr_assert(grant.ok());
      const control::Tag tag{{"parent", std::to_string(grant->parent)}, {"grant", offer.nonce}};
      slurm.run(first, offer.node, offer.gpus, tag.text());
      done.results.push_back({offer.nonce, first++, ""});
    }
    server.says(connection, done);
    step();
  }
  std::string comment(JobId job) { return slurm.find(job)->admin_comment; }
  /// Returns what swell doctor is told.
  Json troubles() {
    control::Ask ask;
    ask.what = "metrics";
    static control::ConnectionId asker = 900;
    server.says(++asker, ask);
    step();
    return server.last<control::Answer>()->details.at("troubles");
  }
  bool shows(JobId job, const char* words) { return comment(job).find(words) != std::string::npos; }
};

}  // namespace swell::test
