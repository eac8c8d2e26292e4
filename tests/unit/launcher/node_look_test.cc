// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/node_look.h"

#include <algorithm>
#include <criterion/criterion.h>

using namespace swell;
using namespace swell::launcher;

Test(node_look, one_task_looks_at_each_node) {
  const Command command = node_look_command(7, 3);
  for (const char* word : {"--jobid=7", "--nodes=3", "--ntasks=3", "--overlap"})
    cr_assert(std::find(command.begin(), command.end(), word) != command.end(), "%s", word);
}

Test(node_look, nodes_come_in_slurm_s_order_with_their_own_cpus_and_gpus) {
  const auto shares = read_node_look(
      "a line of the TaskProlog\n"
      "swell-node 2 node7 none 8(x2),16\n"
      "swell-node 0 node1 2,3 8(x2),16\n"
      "swell-node 1 node2 0-3,6 8(x2),16\n",
      3, "TresPerJob=gres:gpu:7");
  cr_assert(shares.ok());
  cr_assert_eq(shares->size(), 3u);
  cr_assert_eq((*shares)[0].node, std::string("node1"));
  cr_assert_eq((*shares)[0].gpus, 2);
  cr_assert_eq((*shares)[0].gpu_list, std::string("2,3"));
  cr_assert_eq((*shares)[0].cpus, 8);
  cr_assert_eq((*shares)[1].gpus, 5);
  cr_assert_eq((*shares)[2].node, std::string("node7"));
  cr_assert_eq((*shares)[2].cpus, 16);
  cr_assert_eq((*shares)[2].gpus, 0);
  cr_assert_eq((*shares)[2].gpu_list, std::string());
}

Test(node_look, a_node_that_is_missing_or_a_line_that_is_cut_is_an_error) {
  for (const char* text :
       {"", "swell-node 0 node1 0,1 8(x2)\n", "swell-node 0 node1 0 8(x2)\nswell-node 1 node2 0\n",
        "swell-node 0 node1 0 8\nswell-node 1 node2 0 8\n",
        "swell-node 0 node1 0 8(x\nswell-node 1 node2 0 8(x\n",
        "swell-node 0 node1 0 8(x99999999999)\nswell-node 1 node2 0 8(x-1)\n",
        "srun: error: Unable to create step for job 7: Access/permission denied\n"})
    cr_assert_not(read_node_look(text, 2, "").ok(), "%s", text);
}

Test(node_look, types_are_known_where_each_node_was_asked_for_several) {
  const char* text = "swell-node 0 node1 0,1,2 8\n";
  const auto types = [&](const char* wanted) {
    return read_node_look(text, 1, wanted)->front().gpu_types;
  };
  cr_assert_eq(types("TresPerNode=gres:gpu:a100:1,gres:gpu:v100:2"), std::string("a100:1,v100:2"));
  cr_assert_eq(types("TresPerNode=gres:gpu:a100:1,gres:gpu:v100:1"), std::string());
  cr_assert_eq(types("TresPerNode=gres:gpu:a100:3"), std::string());
  cr_assert_eq(types("TresPerJob=gres:gpu:a100:1,gres:gpu:v100:2"), std::string());
}
