// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <compare>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.h"

namespace swell::launcher {

using control::JobId;

/// Where workers can run: a node of one allocation; another allocation's share of the same node is
/// another WorkerNode. Its id is the agent's own and never reused.
struct WorkerNode {
  int id = 0;
  JobId job = 0;
  std::string name;
  int cpus = 0;  ///< 0: not known
  int gpus = 0;
  std::string gpu_list;   ///< their indices there: "0-3"
  int workers = 0;        ///< number of workers that fit
  std::string gpu_types;  ///< if they are of several types: "a100:1,v100:1"
};

/// A worker's shim, for as long as it lives: over all generations.
struct WorkerId {
  int node = 0;   ///< WorkerNode::id
  int local = 0;  ///< SLURM_LOCALID
  friend auto operator<=>(const WorkerId&, const WorkerId&) = default;
};

/// A worker's part in one generation, in torchrun's words.
struct Seat {
  WorkerId worker;
  int rank = 0;         ///< RANK
  int group = 0;        ///< GROUP_RANK, NODE_RANK
  int local_world = 0;  ///< LOCAL_WORLD_SIZE; LOCAL_RANK is worker.local
};

/// Seats of a generation's workers. Ranks rise without a gap over the nodes, in their order, or in
/// that of a plan.
struct RankAssignment {
  std::vector<Seat> seats;
  int groups = 0;
  std::string plan;  ///< SWELL_PLAN: what was decided for these seats; empty: the program plans
  int idle = 0;      ///< workers that are there and that the plan does not use
};

/// Returns seats for as many workers as `max_gpus` allows, or for all if it allows all GPUs. Fills
/// the nodes in order: the last nodes, and the last workers of a node, may get none.
RankAssignment seat_workers(const std::vector<WorkerNode>& nodes, int gpus_per_worker,
                            int max_gpus);

/// Returns the largest of `sizes` that is not above `there`, but at least `basic`; `there` if
/// `sizes` is empty.
int allowed_gpus(int there, int basic, const std::vector<int>& sizes);

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Returns torchrun's environment of one seat.
Environment torch_environment(const RankAssignment& assignment, const Seat& seat,
                              const std::string& master_address, int master_port);

/// Returns how many GPUs each node has, for people: "4 GPUs on node1, 8 on node2".
std::string describe(const std::vector<WorkerNode>& nodes);

}  // namespace swell::launcher
