// SPDX-License-Identifier: GPL-2.0-or-later
// Sends the requests of tests/bench/select over Slurm's public API, the same for every select
// plugin:
//
//   select_probe SEED REQUESTS NODES
//
// Each request is an immediate allocation of 1 to 32 whole nodes, one that is too large, or a query
// for the time at which such a job could start. Allocations are never released: up to 85 % of the
// nodes are taken, and from then on only the other two kinds of requests are sent.
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>

#include <slurm/slurm.h>

#include "bench/request.h"

namespace {

using swell::bench::Request;

constexpr int gpus = 8;
constexpr unsigned minutes = 60;

/// Requests an allocation. Returns the job's id; 0 if it cannot start now.
std::uint32_t allocate(int nodes) {
  Request request("select", nodes, gpus, minutes);
  request.description.immediate = 1;
  return request.allocate().id;
}

void ask_when(int nodes) {
  Request request("select", nodes, gpus, minutes);
  will_run_response_msg_t* response = nullptr;
  slurm_job_will_run2(&request.description, &response);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: select_probe SEED REQUESTS NODES\n");
    return 2;
  }
  slurm_init(nullptr);
  std::mt19937 random(static_cast<unsigned>(std::atoi(argv[1])));
  const int requests = std::atoi(argv[2]), nodes = std::atoi(argv[3]);
  constexpr int sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32};
  int used = 0, started = 0, refused = 0;
  for (int i = 0; i < requests; ++i) {
    const int size = sizes[random() % std::size(sizes)];
    const bool is_full = used + size > nodes * 85 / 100;
    switch (random() % 4) {
      case 0: ask_when(size); break;
      case 1:
        allocate(nodes - used + 1), ++refused;
        break;  // too many: every node is considered, and the job cannot start
      default:
        if (is_full) {
          ask_when(size);
        } else if (allocate(size) != 0) {
          used += size;
          ++started;
        } else {
          ++refused;
        }
    }
  }
  std::printf("%d started, %d refused\n", started, refused);
  return 0;
}
