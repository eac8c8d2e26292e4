// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/rank_assignment.h"

#include <criterion/criterion.h>

#include "launcher/basic_workers.h"

using namespace swell;
using namespace swell::launcher;

namespace {

WorkerNode worker_node(int id, int workers, int gpus) {
  WorkerNode made;
  made.id = id;
  made.workers = workers;
  made.gpus = gpus;
  return made;
}

NodeShare share(const char* node, int gpus, int cpus = 32) {
  NodeShare made;
  made.node = node;
  made.gpus = gpus;
  made.cpus = cpus;
  made.memory_mib = 1000 * cpus;
  return made;
}

std::string value(const Environment& environment, const std::string& name) {
  for (const auto& [key, text] : environment)
    if (key == name) return text;
  return "";
}

}  // namespace

Test(rank_assignment, ranks_have_no_gaps_over_nodes_with_different_counts) {
  const RankAssignment assignment =
      seat_workers({worker_node(3, 4, 4), worker_node(5, 2, 2), worker_node(9, 8, 8)}, 1, 14);
  cr_assert_eq(assignment.seats.size(), 14u);
  cr_assert_eq(assignment.groups, 3);
  for (int rank = 0; rank < 14; ++rank)
    cr_assert_eq(assignment.seats[static_cast<std::size_t>(rank)].rank, rank);
  cr_assert_eq(assignment.seats[4].group, 1);
  cr_assert_eq(assignment.seats[4].worker.node, 5);
  cr_assert_eq(assignment.seats[4].worker.local, 0);
  cr_assert_eq(assignment.seats[5].local_world, 2);
  const Environment environment =
      torch_environment(assignment, assignment.seats[5], "10.0.0.1", 29500);
  cr_assert_eq(value(environment, "RANK"), std::string("5"));
  cr_assert_eq(value(environment, "LOCAL_RANK"), std::string("1"));
  cr_assert_eq(value(environment, "WORLD_SIZE"), std::string("14"));
  cr_assert_eq(value(environment, "LOCAL_WORLD_SIZE"), std::string("2"));
  cr_assert_eq(value(environment, "NODE_RANK"), std::string("1"));
  cr_assert_eq(value(environment, "GROUP_WORLD_SIZE"), std::string("3"));
  cr_assert_eq(value(environment, "MASTER_ADDR"), std::string("10.0.0.1"));
  cr_assert_eq(value(environment, "MASTER_PORT"), std::string("29500"));
}

Test(rank_assignment, the_last_nodes_go_without_when_fewer_are_allowed) {
  const RankAssignment assignment =
      seat_workers({worker_node(0, 4, 4), worker_node(1, 8, 8), worker_node(2, 4, 4)}, 1, 8);
  cr_assert_eq(assignment.seats.size(), 8u);
  cr_assert_eq(assignment.groups, 2);
  cr_assert_eq(assignment.seats[7].local_world, 4);
  // Workers of two GPUs each.
  cr_assert_eq(seat_workers({worker_node(0, 2, 4), worker_node(1, 4, 8)}, 2, 8).seats.size(), 4u);
}

Test(rank_assignment, sizes_allow_the_largest_that_is_there_and_never_less_than_basic) {
  cr_assert_eq(allowed_gpus(13, 4, {}), 13);
  cr_assert_eq(allowed_gpus(13, 4, {4, 8, 16}), 8);
  cr_assert_eq(allowed_gpus(16, 4, {4, 8, 16}), 16);
  cr_assert_eq(allowed_gpus(6, 4, {8, 16}), 4);
}

Test(basic, one_worker_a_gpu_by_default) {
  const auto basic = basic_workers(7, {}, {share("n1", 4), share("n2", 2, 8)});
  cr_assert(basic.ok());
  cr_assert_eq(basic->workers, 6);
  cr_assert_eq(basic->gpus_per_worker, 1);
  cr_assert_eq(basic->cpus_per_worker, 4);
  cr_assert_eq(basic->memory_mib_per_worker, 4000);
  cr_assert_eq(basic->nodes[1].workers, 2);
}

Test(basic, fewer_workers_share_the_gpus_evenly_or_not_at_all) {
  Options options;
  options.ntasks = 2;
  const auto basic = basic_workers(7, options, {share("n1", 4), share("n2", 4)});
  cr_assert(basic.ok());
  cr_assert_eq(basic->gpus_per_worker, 4);
  cr_assert_eq(basic->nodes[0].workers, 1);
}

namespace {

/// Workers of each node, as "2,1: REASON", or why there are none.
std::string cut(const Options& options, const std::vector<NodeShare>& shares) {
  const auto basic = basic_workers(7, options, shares);
  if (!basic) return basic.error().message();
  std::string text;
  for (const WorkerNode& node : basic->nodes)
    text += (text.empty() ? "" : ",") + std::to_string(node.workers);
  return text + ": " + basic->no_growth;
}

}  // namespace

Test(basic, workers_that_use_a_part_of_the_job_run_and_do_not_grow) {
  const std::vector<NodeShare> one = {share("n1", 4)}, two = {share("n1", 4), share("n2", 4)};
  Options options;
  options.ntasks = 3;
  cr_assert_eq(cut(options, one), "3: 3 workers do not share 4 GPUs evenly");
  options.ntasks = 6;
  cr_assert_eq(cut(options, one), "6: 6 workers do not share 4 GPUs evenly");
  options.ntasks = 5;
  cr_assert_eq(cut(options, {share("n1", 2), share("n2", 2)}),
               "3,2: 5 workers do not share 4 GPUs evenly");
  options.ntasks = 2;
  cr_assert_eq(cut(options, {share("n1", 3), share("n2", 1)}),
               "1,1: 2 workers do not share 4 GPUs evenly");
  options.ntasks = 1000;
  cr_assert_neq(cut(options, one).find("1000 workers are more than the job's"), std::string::npos);
  options = {};
  options.nodes = {1, 1};
  cr_assert_eq(cut(options, two), "4: swellrun uses 1 of the job's 2 nodes");
  options.node_list = {"n2"};
  cr_assert_eq(basic_workers(7, options, two)->nodes.front().name, std::string("n2"));
  options = {};
  options.excluded = {"n1"};
  cr_assert_eq(cut(options, two), "4: swellrun uses 1 of the job's 2 nodes");
  options = {};
  options.gpus = 3;
  cr_assert_eq(cut(options, two), "3: swellrun uses 3 of the job's 8 GPUs");
  options = {};
  options.gpus_per_node = 1;
  cr_assert_eq(cut(options, two), "1,1: swellrun uses 2 of the job's 8 GPUs");
  // Seats for all of them, whatever a GPU each would allow.
  options = {};
  options.ntasks = 6;
  cr_assert_eq(seat_workers(basic_workers(7, options, one)->nodes, 1, 4).seats.size(), 6u);
}

Test(basic, options_that_name_what_the_job_has_leave_it_elastic) {
  const std::vector<NodeShare> two = {share("n1", 4), share("n2", 4)};
  Options options;
  options.nodes = {1, 2};
  options.node_list = {"n2", "n1"};
  options.excluded = {"n9"};
  options.gpus = 8;
  options.gpus_per_node = 4;
  options.cpus_per_gpu = 2;
  cr_assert_eq(cut(options, two), "4,4: ");
  cr_assert_eq(basic_workers(7, options, two)->cpus_per_worker, 2);
}

Test(basic, resources_that_the_job_lacks_are_left_to_srun_to_refuse) {
  const std::vector<NodeShare> one = {share("n1", 4)};
  Options options;
  options.nodes = {2, 2};
  cr_assert_neq(cut(options, one).find("asked for 2 nodes"), std::string::npos);
  options = {};
  options.node_list = {"n9"};
  cr_assert_neq(cut(options, one).find("n9 is not a node of the job"), std::string::npos);
  options = {};
  options.gpus = 5;
  cr_assert_neq(cut(options, one).find("--gpus=5: the job has 4"), std::string::npos);
  options = {};
  options.cpus_per_gpu = 2000000000;
  options.gpus_per_task = 2;
  cr_assert_neq(cut(options, one).find("CPUs a worker: the job has"), std::string::npos);
}

Test(basic, a_job_without_gpus_has_no_elastic_shape) {
  cr_assert_not(basic_workers(7, {}, {share("n1", 0)}).ok());
}

Test(basic, workers_share_what_cpus_there_are) {
  const auto basic = basic_workers(7, {}, {share("n1", 4, 16), share("n2", 4, 1)});
  cr_assert(basic.ok());
  cr_assert(basic->shares_cpus);
  cr_assert_eq(basic->cpus_per_worker, 1);
  cr_assert_not(basic_workers(7, {}, {share("n1", 4, 16)})->shares_cpus);
  Options options;
  options.cpus_per_task = 2;
  cr_assert_neq(basic_workers(7, options, {share("n1", 4, 1)})
                    .error()
                    .message()
                    .find("asked for 2 CPUs a worker: the job has 1 CPU"),
                std::string::npos);
}
