// SPDX-License-Identifier: GPL-2.0-or-later
// The requests of tests/bench/select, over Slurm's public API, the same whatever select plugin runs:
//
//   select_probe SEED REQUESTS NODES
//
// Each request is an immediate allocation of 1 to 32 whole nodes, or one too large, or the question when such a
// job could start. Nothing is given back: up to 85 % of the nodes are taken, and from then on only the other two
// kinds of requests come.
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

namespace {

struct Request {
  std::string gpus = "gres:gpu:8", name = "select", folder = "/", host;
  job_desc_msg_t description;

  explicit Request(int nodes) {
    char own_name[256] = "";
    gethostname(own_name, sizeof own_name - 1);
    host = own_name;
    slurm_init_job_desc_msg(&description);
    description.name = name.data();
    description.user_id = getuid();
    description.group_id = getgid();
    description.min_nodes = description.max_nodes = static_cast<std::uint32_t>(nodes);
    description.tres_per_node = gpus.data();
    description.time_limit = 60;
    description.work_dir = folder.data();
    description.alloc_node = host.data();
  }
};

/// @return the job's id; 0 where it cannot start now.
std::uint32_t allocate(int nodes) {
  Request request(nodes);
  request.description.immediate = 1;
  resource_allocation_response_msg_t* response = nullptr;
  if (slurm_allocate_resources(&request.description, &response) != SLURM_SUCCESS) return 0;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  const std::uint32_t id = response->step_id.job_id;
#else
  const std::uint32_t id = response->job_id;
#endif
  slurm_free_resource_allocation_response_msg(response);
  return id;
}

void ask_when(int nodes) {
  Request request(nodes);
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
      case 1: allocate(nodes - used + 1), ++refused; break;  // too many: every node is looked at, and it cannot start
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
