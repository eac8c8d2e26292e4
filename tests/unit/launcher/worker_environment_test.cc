// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/worker_environment.h"
#include "support/worker_nodes.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <fmt/format.h>
#include <map>

using namespace swell;
using namespace swell::launcher;

namespace {

using Map = std::map<std::string, std::string>;

Map as_map(const Environment& environment) {
  Map map;
  for (const auto& [name, value] : environment) map[name] = value;
  return map;
}

/// The environment of the seat with this rank, of 2 basic workers on node1 and 4 lent on node2.
Map grown(int rank) {
  RunFacts facts;
  facts.job = 5;
  facts.nodes = {worker_node(0, 5, "node1", 2), worker_node(3, 9, "node2", 4)};
  facts.master_address = "host1";
  facts.master_port = 4000;
  facts.step = 7;
  facts.restarts = 1;
  facts.max_restarts = 3;
  const RankAssignment assignment = seat_workers(facts.nodes, 1, 6);
  return as_map(
      run_environment(assignment, assignment.seats[static_cast<std::size_t>(rank)], facts));
}

}  // namespace

Test(worker_environment, the_job_is_the_one_that_the_script_sees) {
  const char* environment[] = {"PATH=/bin",
                               "SLURM_JOB_ID=5",
                               "SLURM_JOBID=5",
                               "SLURM_ARRAY_TASK_ID=3",
                               "SLURM_SUBMIT_DIR=/data/x y",
                               "SLURM_JOB_PARTITION=train",
                               "SLURM_RESTART_COUNT=1",
                               nullptr};
  std::vector<std::string> left_out;
  const Environment found = job_environment(environment, 40000, left_out);
  const Map expected = {{"SLURM_JOB_ID", "5"},
                        {"SLURM_JOBID", "5"},
                        {"SLURM_ARRAY_TASK_ID", "3"},
                        {"SLURM_SUBMIT_DIR", "/data/x y"},
                        {"SLURM_JOB_PARTITION", "train"},
                        {"SLURM_RESTART_COUNT", "1"}};
  cr_assert(as_map(found) == expected);
}

Test(worker_environment, nothing_of_the_script_s_own_task_step_or_node_reaches_a_worker) {
  const char* environment[] = {"SLURM_PROCID=0",
                               "SLURM_LOCALID=0",
                               "SLURM_NODEID=0",
                               "SLURM_TASK_PID=17",
                               "SLURM_JOB_GPUS=0,1",
                               "SLURM_GPUS_ON_NODE=2",
                               "SLURM_CPUS_ON_NODE=16",
                               "SLURM_NTASKS=1",
                               "SLURM_NTASKS_PER_NODE=1",
                               "SLURM_STEP_ID=2",
                               "SLURM_TOPOLOGY_ADDR=node1",
                               "SLURM_CONF=/x",
                               "SLURM_GPUS=2",
                               "SLURM_CPUS_PER_TASK=4",
                               "SLURM_TRES_PER_TASK=cpu:4",
                               "SLURM_OVERCOMMIT=1",
                               nullptr};
  std::vector<std::string> left_out;
  cr_assert(job_environment(environment, 40000, left_out).empty());
}

Test(worker_environment, variables_that_are_not_text_are_left_out) {
  const char* environment[] = {"SLURM_JOB_NAME=caf\xe9", "SLURM_JOB_USER=ann", nullptr};
  std::vector<std::string> left_out;
  cr_assert(as_map(job_environment(environment, 40000, left_out)) ==
            (Map{{"SLURM_JOB_USER", "ann"}}));
}

Test(worker_environment, a_worker_keeps_what_describes_its_own_devices_and_node) {
  for (const char* kept :
       {"SLURM_JOB_GPUS=4,5", "SLURM_STEP_GPUS=4,5", "SLURM_LOCALID=1", "SLURM_CPU_BIND=quiet",
        "SLURM_CONF=/x", "SLURM_CPUS_PER_TASK=8", "SLURM_TOPOLOGY_ADDR=s1.node2",
        "SLURM_TOPOLOGY_ADDR_PATTERN=switch.node"})
    cr_assert(is_of_the_task(kept), "%s", kept);
  for (const char* dropped : {"SLURM_JOB_ID=9", "SLURM_JOBID=9", "SLURM_JOB_NAME=swell-5",
                              "SLURM_STEP_ID=0", "SLURM_JOB_PARTITION=expansion",
                              "SLURM_JOB_QOS=expansion", "SLURM_NTASKS=4", "SLURM_NODELIST=node2"})
    cr_assert_not(is_of_the_task(dropped), "%s", dropped);
}

Test(worker_environment, the_run_s_shape_is_told_to_all_workers_alike) {
  for (const int rank : {0, 5}) {
    Map map = grown(rank);
    const Map expected = {{"SLURM_NTASKS", "6"},
                          {"SLURM_NPROCS", "6"},
                          {"SLURM_STEP_NUM_TASKS", "6"},
                          {"SLURM_NNODES", "2"},
                          {"SLURM_JOB_NUM_NODES", "2"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_JOB_NODELIST", "node[1-2]"},
                          {"SLURM_NODELIST", "node[1-2]"},
                          {"SLURM_STEP_NODELIST", "node[1-2]"},
                          {"SLURM_TASKS_PER_NODE", "2,4"},
                          {"SLURM_JOB_CPUS_PER_NODE", "16,32"},
                          {"SLURM_STEP_ID", "7"},
                          {"SLURM_STEPID", "7"}};
    for (const auto& [name, value] : expected)
      cr_assert_eq(map[name], value, "%s=%s", name.c_str(), map[name].c_str());
  }
  cr_assert_eq(grown(5)["SLURM_PROCID"], std::string("5"));
  cr_assert_eq(grown(5)["SLURM_NODEID"], std::string("1"));
  cr_assert_eq(grown(5)["SLURM_GTIDS"], std::string("2,3,4,5"));
  cr_assert_eq(grown(0)["SLURM_GTIDS"], std::string("0,1"));
}

Test(worker_environment, libraries_see_what_torchrun_sets) {
  Map map = grown(3);
  for (const auto& [name, value] : Map{{"TORCHELASTIC_RUN_ID", "5"},
                                       {"TORCHELASTIC_RESTART_COUNT", "1"},
                                       {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                       {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                       {"RANK", "3"},
                                       {"LOCAL_RANK", "1"},
                                       {"WORLD_SIZE", "6"},
                                       {"LOCAL_WORLD_SIZE", "4"},
                                       {"GROUP_RANK", "1"},
                                       {"GROUP_WORLD_SIZE", "2"},
                                       {"ROLE_RANK", "3"},
                                       {"ROLE_NAME", "default"},
                                       {"ROLE_WORLD_SIZE", "6"},
                                       {"MASTER_ADDR", "host1"},
                                       {"MASTER_PORT", "4000"}})
    cr_assert_eq(map[name], value, "%s=%s", name.c_str(), map[name].c_str());
}

Test(worker_environment, torchrun_s_defaults_are_there_where_the_user_has_none) {
  unsetenv("OMP_NUM_THREADS");
  unsetenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  cr_assert_eq(grown(3)["OMP_NUM_THREADS"], std::string("1"));
  cr_assert_eq(grown(3)["TORCH_NCCL_ASYNC_ERROR_HANDLING"], std::string("1"));
}

Test(worker_environment, variables_set_by_the_user_stay) {
  setenv("OMP_NUM_THREADS", "4", 1);
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", 1);
  cr_assert_eq(grown(3).count("OMP_NUM_THREADS"), 0u);
  cr_assert_eq(grown(3).count("TORCH_NCCL_ASYNC_ERROR_HANDLING"), 0u);
}

Test(worker_environment, a_worker_alone_on_its_node_may_use_all_of_its_threads) {
  unsetenv("OMP_NUM_THREADS");
  RunFacts facts;
  facts.nodes = {worker_node(0, 5, "node1", 1)};
  const RankAssignment assignment = seat_workers(facts.nodes, 1, 1);
  cr_assert_eq(
      as_map(run_environment(assignment, assignment.seats[0], facts)).count("OMP_NUM_THREADS"), 0u);
}

Test(worker_environment, lists_are_written_as_slurm_does) {
  cr_assert_eq(host_list({"n1", "n2", "n3", "n7", "login", "gpu008", "gpu009", "gpu010"}),
               std::string("n[1-3,7],login,gpu[008-010]"));
  cr_assert_eq(host_list({"n9", "n10"}), std::string("n9,n10"));
  cr_assert_eq(host_list({"n1", "n1"}), std::string("n[1,1]"));
  cr_assert_eq(host_list({"a", "b"}), std::string("a,b"));
  cr_assert_eq(counts_text({2, 2, 2, 4}), std::string("2(x3),4"));
}

Test(worker_environment, variables_too_large_for_a_message_are_left_out_by_name) {
  const std::string long_one = "SLURM_NOTE=" + std::string(70000, 'x'),
                    quotes = "SLURM_QUOTES=" + std::string(30000, '"'),
                    middle = "SLURM_MIDDLE=" + std::string(20000, 'x');
  const char* environment[] = {"SLURM_JOB_USER=ann", long_one.c_str(), quotes.c_str(),
                               middle.c_str(),       "SLURM_BAD=\xff", nullptr};
  std::vector<std::string> left_out;
  const auto found = as_map(job_environment(environment, 40000, left_out));
  cr_assert_eq(left_out, (std::vector<std::string>{"SLURM_BAD", "SLURM_NOTE", "SLURM_QUOTES"}));
  cr_assert_eq(found.size(), 2u);
  cr_assert_eq(found.at("SLURM_JOB_USER"), std::string("ann"));
  cr_assert_eq(found.at("SLURM_MIDDLE").size(), 20000u);
}

Test(worker_environment, as_many_of_twenty_thousand_variables_reach_a_worker_as_fit) {
  std::vector<std::string> texts;
  for (int i = 0; i < 20000; ++i) texts.push_back(fmt::format("SLURM_X{:05}={}", i, i));
  std::vector<const char*> environment;
  for (const std::string& text : texts) environment.push_back(text.c_str());
  environment.push_back(nullptr);
  std::vector<std::string> left_out;
  const std::size_t kept = job_environment(environment.data(), 40000, left_out).size();
  cr_assert_gt(kept, 1000u);
  cr_assert_leq(kept, 4096u, "a message holds no more");
  cr_assert_eq(kept + left_out.size(), 20000u);
}

Test(worker_environment, nccl_tells_allocations_apart_whose_devices_are_constrained) {
  const auto host_of = [](bool apart, int rank) {
    RunFacts facts;
    facts.job = 5;
    facts.nodes = {worker_node(0, 5, "node1", 2), worker_node(1, 5, "node2", 1),
                   worker_node(3, 9, "node1", 2)};
    facts.devices_apart = apart;
    const RankAssignment assignment = seat_workers(facts.nodes, 1, 5);
    return as_map(run_environment(assignment, assignment.seats[static_cast<std::size_t>(rank)],
                                  facts))["NCCL_HOSTID"];
  };
  const std::string own = host_of(true, 0), lent = host_of(true, 4);
  cr_assert_eq(own, std::string("node1.5"));
  cr_assert_eq(host_of(true, 1), own);
  cr_assert_eq(lent, std::string("node1.9"));
  cr_assert_eq(host_of(true, 2), std::string(), "its node has one allocation");
  cr_assert_eq(host_of(false, 0), std::string(), "they share devices");
  setenv("NCCL_HOSTID", "mine", 1);
  cr_assert_eq(host_of(true, 0), std::string(), "the user's own stays");
  unsetenv("NCCL_HOSTID");
}
