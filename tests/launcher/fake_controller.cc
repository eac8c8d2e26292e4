// SPDX-License-Identifier: GPL-2.0-or-later
// A controller that does what standard input says, for tests of swellrun on a stock cluster.
//
//   fake_controller PORT MUNGE_SOCKET ELASTIC CPUS_PER_WORKER
//
// Input:  grow NODE:GPUS[:WORKERS]...    shrink JOB DEADLINE REASON...    refuse REASON...    drop
// quit Output: every message of the agent, one JSON line each; "closed" where it goes.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <poll.h>
#include <sstream>
#include <unistd.h>

#include "control/server.h"
#include "control/wake_fd.h"

using namespace swell;
using namespace swell::control;

namespace {

Grow grow_from(std::istringstream& words, JobId job, int cpus_per_worker, int gpus_per_worker,
               int& number) {
  Grow grow;
  grow.expires_s = 10;
  for (std::string word; words >> word;) {
    Offer offer;
    std::istringstream parts(word);
    std::string gpus, workers;
    std::getline(parts, offer.node, ':');
    std::getline(parts, gpus, ':');
    std::getline(parts, workers, ':');
    offer.nonce = "test" + std::to_string(++number);
    offer.name = "swell-" + std::to_string(job);
    offer.gpus = std::atoi(gpus.c_str());
    offer.workers = workers.empty() ? offer.gpus / gpus_per_worker : std::atoi(workers.c_str());
    offer.cpus = offer.workers * cpus_per_worker;
    offer.time_limit_min = 60;
    grow.offers.push_back(offer);
  }
  return grow;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  WakeFd wake;
  Server::Options options;
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  options.ports = {port, port};
  options.munge_socket = argv[2];
  options.log = [](const std::string& line) {
    std::fprintf(stderr, "fake_controller: %s\n", line.c_str());
  };
  auto server = Server::start(options, [&wake] { wake.signal(); });
  if (!server) {
    std::fprintf(stderr, "fake_controller: %s\n", server.error().message().c_str());
    return 1;
  }
  ConnectionId agent = 0;
  JobId parent = 0;
  std::string refusal, input;
  const int cpus_per_worker = std::atoi(argv[4]);
  int number = 0, gpus_per_worker = 1;
  std::puts("ready");
  std::fflush(stdout);
  for (;;) {
    pollfd polled[] = {{STDIN_FILENO, POLLIN, 0}, {wake.fd(), POLLIN, 0}};
    poll(polled, 2, -1);
    wake.clear();
    for (const Server::Event& event : (*server)->take()) {
      if (event.kind == Server::Event::Kind::closed) {
        std::puts("closed");
        continue;
      }
      std::puts(to_json(event.message).dump().c_str());
      if (const auto* hello = std::get_if<Hello>(&event.message)) {
        agent = event.connection;
        parent = hello->job;
        gpus_per_worker = hello->gpus_per_worker;
        if (refusal.empty()) {
          Welcome welcome;
          welcome.elastic = argv[3];
          (*server)->send(agent, welcome);
        } else {
          (*server)->send(agent, Refused{refusal});
          (*server)->close(agent);
        }
      }
    }
    std::fflush(stdout);
    if (polled[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count <= 0) return 0;
    input.append(bytes, static_cast<std::size_t>(count));
    for (auto end = input.find('\n'); end != std::string::npos; end = input.find('\n')) {
      std::istringstream words(input.substr(0, end));
      input.erase(0, end + 1);
      std::string verb;
      words >> verb;
      if (verb == "grow") {
        (*server)->send(agent, grow_from(words, parent, cpus_per_worker, gpus_per_worker, number));
      } else if (verb == "shrink") {
        Shrink shrink;
        JobId job = 0;
        words >> job >> shrink.deadline_s >> std::ws;
        shrink.companions = {job};
        std::getline(words, shrink.reason);
        (*server)->send(agent, shrink);
      } else if (verb == "refuse") {
        words >> std::ws;
        std::getline(words, refusal);
      } else if (verb == "drop") {
        (*server)->close(agent);
      } else if (verb == "quit") {
        return 0;
      }
    }
  }
}
