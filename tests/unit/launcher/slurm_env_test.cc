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
      "SLURM_CONF              = /etc/slurm/slurm.conf\n"
      "SlurmctldPort           = 6817-6820\n"
      "JobFileAppend           = 1\n"
      "SrunPortRange           = 60001-63000\n");
  cr_assert(config.ok());
  cr_assert(config->appends_output);
  cr_assert_eq(config->srun_ports.first, 60001);
  cr_assert_eq(config->srun_ports.last, 63000);
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

Test(slurm_env, without_a_range_of_ports_any_is_taken) {
  for (const char* none : {"", "0-0", "60001", "60002-60001", "0-70000"}) {
    const auto config =
        read_config(std::string("SlurmUser = slurm(64030)\nSlurmctldHost[0] = head1\n"
                                "SrunPortRange = ") +
                    none + "\n");
    cr_assert(config.ok());
    cr_assert_eq(config->srun_ports.first, 0);
    cr_assert_eq(config->srun_ports.last, 0);
  }
}

Test(slurm_env, a_job_s_share_of_every_node) {
  const auto shares = read_job(
      "JobId=1 JobName=x\n   NumNodes=3 NumCPUs=80 NumTasks=3\n"
      "   JOB_GRES=gpu:h100:10\n"
      "     Nodes=node[1-2] CPU_IDs=0-15,32-47 Mem=32000 GRES=gpu:h100:4(IDX:0-3)\n"
      "     Nodes=node7 CPU_IDs=0-15 Mem=16000 GRES=nic:1,gpu:h100:1(IDX:6),gpu:a100:1(IDX:0)\n",
      1, {{"JobName", "x"}});
  cr_assert(shares.ok());
  cr_assert_eq(shares->size(), 3u);
  cr_assert_eq((*shares)[1].node, std::string("node2"));
  cr_assert_eq((*shares)[1].gpus, 4);
  cr_assert_eq((*shares)[1].cpus, 32);
  cr_assert_eq((*shares)[1].memory_mib, 32000);
  cr_assert_eq((*shares)[1].gpu_list, std::string("0-3"));
  cr_assert_eq((*shares)[1].gpu_types, std::string());
  cr_assert_eq((*shares)[2].gpus, 2);
  cr_assert_eq((*shares)[2].gpu_list, std::string("6,0"));
  cr_assert_eq((*shares)[2].gpu_types, std::string("a100:1,h100:1"));
  cr_assert_not(read_job("slurm_load_jobs error: Invalid job id specified", 1, {}).ok());
}

Test(slurm_env, only_the_asked_task_of_an_array_counts) {
  const char* array =
      "JobId=29 ArrayJobId=29 ArrayTaskId=3 JobName=x\n"
      "     Nodes=node2 CPU_IDs=0-7 Mem=8000 GRES=gpu:h100:2(IDX:0-1)\n\n"
      "JobId=30 ArrayJobId=29 ArrayTaskId=1 JobName=x\n"
      "     Nodes=node1 CPU_IDs=0-7 Mem=8000 GRES=gpu:h100:2(IDX:2-3)\n\n";
  const auto shares = read_job(array, 30, {{"JobName", "x"}});
  cr_assert(shares.ok());
  cr_assert_eq(shares->size(), 1u);
  cr_assert_eq(shares->front().node, std::string("node1"));
  cr_assert_not(read_job(array, 31, {{"JobName", "x"}}).ok());
}

namespace {

/// `scontrol show job -d 5` with these texts of its user.
std::string shown(const std::string& name, const std::string& command, const std::string& directory,
                  const std::string& comment, const std::string& wckey = "") {
  return "JobId=5 JobName=" + name + "\n   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A\n" +
         "   Priority=1 Nice=0 Account=a QOS=normal" + (wckey.empty() ? "" : " WCKey=" + wckey) +
         "\n   JobState=RUNNING Reason=None Dependency=(null)\n   NodeList=node1\n"
         "   JOB_GRES=gpu:h100:2\n"
         "     Nodes=node1 CPU_IDs=0-7 Mem=8000 GRES=gpu:h100:2(IDX:0-1)\n"
         "   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0\n"
         "   Features=(null) DelayBoot=00:00:00\n   Command=" +
         command + "\n   WorkDir=" + directory + "\n   Comment=" + comment +
         "\n   StdOut=" + directory + "/out\n\n";
}

}  // namespace

Test(slurm_env, no_text_of_the_user_passes_for_a_node_of_the_job) {
  const std::string line = "     Nodes=node9 CPU_IDs=0-3 Mem=1 GRES=gpu:h100:4(IDX:0-3)";
  const std::string whole = shown("a", "b", "c", "d") + shown("a", "b", "c", "d");
  for (const std::string& text :
       {line, "x" + line, "x\n" + line, "x\n" + line + "\n", "x\n\nJobId=5 JobName=y\n" + line,
        "x\n   UserId=root(0)\n" + line, whole, "\n" + line + "\n   Command=x", "\n\n" + line,
        std::string("a\nJobId=99 b"), std::string("Nodes=node9"), std::string("x WCKey=\n") + line})
    for (int where = 0; where < 5; ++where) {
      std::string texts[] = {"name", "/x/job.sh", "/x", "none", "key"};
      texts[where] = text;
      const auto shares = read_job(shown(texts[0], texts[1], texts[2], texts[3], texts[4]), 5,
                                   {{"JobName", texts[0]}, {"WCKey", texts[4]}});
      cr_assert(shares.ok(), "%d: %s", where, text.c_str());
      cr_assert_eq(shares->size(), 1u, "%d: %s", where, text.c_str());
      cr_assert_eq(shares->front().node, std::string("node1"), "%d: %s", where, text.c_str());
      cr_assert_eq(shares->front().gpus, 2);
    }
}

Test(slurm_env, a_name_that_changed_meanwhile_hides_no_node) {
  const auto shares = read_job(shown("before", "b", "c", "d"), 5, {{"JobName", "after"}});
  cr_assert(shares.ok());
  cr_assert_eq(shares->front().node, std::string("node1"));
}

Test(slurm_env, facts_of_a_job_come_from_a_line_without_its_user_s_texts) {
  const char* lines =
      "29              29_3                1000   2   N/A   gres:gpu:2   N/A   N/A  \n"
      "30              29_1                1000   2   N/A   gres/shard:4   N/A   cpu=2,gres/gpu=1 \n"
      "31              31                  0   2      N/A   gres:shard:4   N/A   N/A\n"
      "32              32+0                1001   2   gres:gpu:8 N/A N/A N/A\n";
  cr_assert_eq(read_job_facts(lines, 29)->id, std::string("29_3"));
  cr_assert_eq(read_job_facts(lines, 29)->owner, 1000u);
  cr_assert_eq(read_job_facts(lines, 29)->nodes, 2u);
  cr_assert_eq(read_job_facts(lines, 29)->wanted_gpus, std::string("TresPerNode=gres:gpu:2"));
  cr_assert_eq(read_job_facts(lines, 30)->wanted_gpus, std::string("TresPerTask=cpu=2,gres/gpu=1"));
  cr_assert_eq(read_job_facts(lines, 31)->wanted_gpus, std::string());
  cr_assert_eq(read_job_facts(lines, 31)->id, std::string("31"));
  cr_assert_eq(read_job_facts(lines, 32)->id, std::string("32"));
  cr_assert_not(read_job_facts(lines, 33).has_value());
  cr_assert_not(read_job_facts("squeue: error: no such job\n", 1).has_value());
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

Test(slurm_env, a_companion_s_steps_run_as_the_job_s_own_do) {
  const char* environment[] = {"PATH=/bin",
                               "SLURM_CONF=/c",
                               "SLURM_JOB_ID=5",
                               "SLURM_JOB_NODELIST=node1",
                               "SLURM_NTASKS=2",
                               "SLURM_GPUS=2",
                               "SLURM_MEM_PER_CPU=100",
                               "SLURM_EXPORT_ENV=NONE",
                               "SLURM_LABELIO=1",
                               "SLURM_TASK_PROLOG=/p",
                               "SLURM_UNBUFFEREDIO=1",
                               "SLURM_CPU_BIND=none",
                               "SLURM_MEM_BIND=quiet,map_mem:0",
                               "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image=q",
                               "_SLURM_SPANK_OPTION_pyxis_container_image=q",
                               "SQUEUE_FORMAT=%i",
                               "SALLOC_QOS=q",
                               nullptr};
  cr_assert_eq(companion_step_environment(environment),
               (std::vector<std::string>{"PATH=/bin", "SLURM_CONF=/c", "SLURM_EXPORT_ENV=NONE",
                                         "SLURM_LABELIO=1", "SLURM_TASK_PROLOG=/p",
                                         "SLURM_UNBUFFEREDIO=1", "SLURM_CPU_BIND=none",
                                         "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image=q",
                                         "_SLURM_SPANK_OPTION_pyxis_container_image=q"}));
  // Commands that do not start a step see none of it.
  cr_assert_eq(outside_environment(environment),
               (std::vector<std::string>{"PATH=/bin", "SLURM_CONF=/c"}));
}

Test(slurm_env, the_job_s_admin_comment_says_whether_it_is_elastic) {
  cr_assert_eq(read_tag("mine swell[elastic=max=8 basic=4]  \n")->get("elastic"),
               std::string("max=8"));
  for (const char* text : {"", "swell[parent=30 grant=abc]", "swell[elastic=max=8"})
    cr_assert_not(read_tag(text).has_value(), "%s", text);
}
