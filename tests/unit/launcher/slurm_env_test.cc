// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/slurm_env.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::launcher;
using swell::control::JobId;

Test(slurm_env, the_configuration_says_where_the_controller_is_and_whom_to_trust) {
  const auto config = read_config(
      "Configuration data as of 2026-11-20T16:21:18\n"
      "AuthInfo                = ttl=100,socket=/run/x/sock\n"
      "BOOT_TIME               = 2026-11-20T16:02:51\n"
      "SlurmUser               = slurm(64030)\n"
      "SlurmctldHost[0]        = head1(10.0.0.1)\n"
      "SlurmctldHost[1]        = head2\n"
      "SLURM_CONF              = /etc/slurm/slurm.conf\n");
  cr_assert(config.ok());
  cr_assert_eq(config->munge_socket, std::string("/run/x/sock"));
  cr_assert_eq(config->controllers, (std::vector<std::string>{"10.0.0.1", "head2"}));
  cr_assert_eq(config->slurm_user, 64030u);
  cr_assert_eq(config->conf_file, std::string("/etc/slurm/slurm.conf"));
  std::tm since{};
  since.tm_year = 126, since.tm_mon = 10, since.tm_mday = 20;
  since.tm_hour = 16, since.tm_min = 2, since.tm_sec = 51, since.tm_isdst = -1;
  cr_assert_eq(config->slurmctld_since.value_or(0), std::mktime(&since));
  cr_assert_not(read_config("scontrol: error").ok());
}

Test(slurm_env, a_job_s_share_of_every_node) {
  const auto shares = read_job(
      "JobId=1 JobName=x\n   NumNodes=3 NumCPUs=80 NumTasks=3\n"
      "   JOB_GRES=gpu:h100:10\n"
      "     Nodes=node[1-2] CPU_IDs=0-15,32-47 Mem=32000 GRES=gpu:h100:4(IDX:0-3)\n"
      "     Nodes=node7 CPU_IDs=0-15 Mem=16000 GRES=nic:1,gpu:h100:1(IDX:6),gpu:a100:1(IDX:0)\n",
      1);
  cr_assert(shares.ok());
  cr_assert_eq(shares->size(), 3u);
  cr_assert_eq((*shares)[1].node, std::string("node2"));
  cr_assert_eq((*shares)[1].gpus, 4);
  cr_assert_eq((*shares)[1].cpus, 32);
  cr_assert_eq((*shares)[1].memory_mib, 32000);
  cr_assert_eq((*shares)[1].gpu_list, std::string("0-3"));
  cr_assert_eq((*shares)[2].gpus, 2);
  cr_assert_eq((*shares)[2].gpu_list, std::string("6,0"));
  cr_assert_not(read_job("slurm_load_jobs error: Invalid job id specified", 1).ok());
}

Test(slurm_env, of_a_whole_array_only_the_asked_task_counts) {
  const char* array =
      "JobId=29 ArrayJobId=29 ArrayTaskId=3 JobName=x\n"
      "     Nodes=node2 CPU_IDs=0-7 Mem=8000 GRES=gpu:h100:2(IDX:0-1)\n\n"
      "JobId=30 ArrayJobId=29 ArrayTaskId=1 JobName=x\n"
      "     Nodes=node1 CPU_IDs=0-7 Mem=8000 GRES=gpu:h100:2(IDX:2-3)\n\n";
  const auto shares = read_job(array, 30);
  cr_assert(shares.ok());
  cr_assert_eq(shares->size(), 1u);
  cr_assert_eq(shares->front().node, std::string("node1"));
  cr_assert_not(read_job(array, 31).ok());
}

Test(slurm_env, another_allocation_s_commands_see_nothing_of_this_job) {
  const char* environment[] = {"PATH=/bin",
                               "SLURM_CONF=/c",
                               "SLURM_JOB_ID=5",
                               "SBATCH_X=1",
                               "_SLURM_SPANK_OPTION_swell_elastic=4x",
                               "SALLOC_QOS=q",
                               "CUDA_VISIBLE_DEVICES=0",
                               "HOME=/root",
                               nullptr};
  cr_assert_eq(outside_environment(environment),
               (std::vector<std::string>{"PATH=/bin", "SLURM_CONF=/c", "HOME=/root"}));
}

Test(slurm_env, the_job_s_own_step_is_not_bound_by_the_script_s_task_layout) {
  const char* environment[] = {"SLURM_JOB_ID=5", "SLURM_NTASKS=1", "SLURM_GPUS_PER_TASK=1",
                               "SLURM_NTASKS_PER_NODE=1", nullptr};
  cr_assert_eq(step_environment(environment), std::vector<std::string>{"SLURM_JOB_ID=5"});
}

Test(slurm_env, the_job_s_own_record_says_whether_it_is_elastic) {
  const char* text =
      "JobId=29 ArrayJobId=29 JobName=x\n   AdminComment=swell[elastic=max=4x basic=2]\n\n"
      "JobId=30 ArrayJobId=29 JobName=x\n   AdminComment=mine swell[elastic=max=8 basic=4]\n\n"
      "JobId=31 JobName=swell-30\n   AdminComment=swell[parent=30 grant=abc]\n\n"
      "JobId=32 JobName=x\n   Comment=swell[elastic=max=8]\n";
  cr_assert_eq(read_tag(text, 30)->get("elastic"), std::string("max=8"));
  for (const JobId job : {31u, 32u, 33u}) cr_assert_not(read_tag(text, job).has_value());
}

Test(slurm_env, the_owner_of_a_job_is_told_apart_from_other_jobs_shown) {
  const std::string text =
      "JobId=30 JobName=a\n   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A\n\n"
      "JobId=31 JobName=b\n   UserId=bob(1001) GroupId=bob(1001) MCS_label=N/A\n";
  cr_assert_eq(read_owner(text, 30).value(), 1000u);
  cr_assert_eq(read_owner(text, 31).value(), 1001u);
  cr_assert_not(read_owner(text, 32).has_value());
}

Test(slurm_env, the_gpus_that_a_job_asked_for_are_read_and_none_of_another) {
  const char* const text =
      "JobId=30 JobName=a\n   TresPerNode=gres:gpu:2\n\n"
      "JobId=31 JobName=b\n   TresPerNode=gres/shard:4 TresPerTask=cpu=2,gres/gpu=1\n\n"
      "JobId=32 JobName=c\n   TresPerNode=gres:shard:4\n";
  cr_assert_eq(read_wanted_gpus(text, 30), "TresPerNode=gres:gpu:2");
  cr_assert_eq(read_wanted_gpus(text, 31), "TresPerTask=cpu=2,gres/gpu=1");
  cr_assert_eq(read_wanted_gpus(text, 32), "");
  cr_assert_eq(read_wanted_gpus(text, 33), "");
}
