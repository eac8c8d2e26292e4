// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/convert.h"

#include <criterion/criterion.h>
#include <ctime>
#include <iterator>
#include <vector>

using namespace swell::slurm;

namespace {

job_info_t pending(std::uint32_t leader, std::uint32_t reason) {
  job_info_t info{};
  info.het_job_id = leader;
  info.job_state = JOB_PENDING;
  info.priority = 1;
  info.state_reason = static_cast<decltype(info.state_reason)>(reason);
  return info;
}

}  // namespace

Test(convert, a_part_that_slurm_has_put_off_waits_for_resources_while_another_does) {
  job_info_t jobs[] = {pending(30, WAIT_RESOURCES), pending(30, WAIT_TIME), pending(30, WAIT_HELD),
                       pending(40, WAIT_TIME),      pending(40, WAIT_TIME), pending(0, WAIT_TIME),
                       pending(0, WAIT_RESOURCES)};
  job_info_msg_t message{};
  message.job_array = jobs;
  message.record_count = std::size(jobs);
  std::vector<bool> need;
  for (const JobRecord& job : convert(message))
    need.push_back(job.waiting == Waiting::for_resources);
  const std::vector<bool> expected{true, true, false, false, false, false, true};
  cr_assert(need == expected);
}

Test(convert, a_job_that_waits_for_minutes_waits_for_a_limit_that_others_fill) {
  const auto waits = [](std::uint32_t reason) { return convert(pending(0, reason)).waiting; };
  for (const std::uint32_t reason :
       {WAIT_ASSOC_GRP_CPU_MIN, WAIT_ASSOC_GRP_MEM_MIN, WAIT_ASSOC_GRP_NODE_MIN,
        WAIT_ASSOC_GRP_GRES_MIN, WAIT_ASSOC_GRP_BILLING_MIN, WAIT_ASSOC_GRP_UNK_MIN})
    cr_assert(waits(reason) == Waiting::for_association, "%u", reason);
  for (const std::uint32_t reason :
       {WAIT_QOS_GRP_CPU_MIN, WAIT_QOS_GRP_MEM_MIN, WAIT_QOS_GRP_NODE_MIN, WAIT_QOS_GRP_GRES_MIN,
        WAIT_QOS_GRP_BILLING_MIN, WAIT_QOS_GRP_UNK_MIN})
    cr_assert(waits(reason) == Waiting::for_qos, "%u", reason);
  cr_assert(waits(WAIT_ASSOC_MAX_GRES_MINS_PER_JOB) == Waiting::for_other, "a limit of one job");
}

Test(convert, gpus_that_are_asked_for_by_task_or_socket_are_marked) {
  job_info_t info = pending(0, WAIT_RESOURCES);
  char gpus[] = "gres:gpu:h100:4", cpus[] = "cpu:2";
  info.tres_per_node = info.tres_per_job = gpus;
  info.tres_per_task = cpus;
  cr_assert_not(convert(info).gpus_by_task_or_socket);
  info.tres_per_task = gpus;
  cr_assert(convert(info).gpus_by_task_or_socket);
  info.tres_per_task = nullptr;
  info.tres_per_socket = gpus;
  cr_assert(convert(info).gpus_by_task_or_socket);
}

Test(convert, a_node_has_registered_once_slurmctld_knows_when_its_slurmd_started) {
  node_info_t node{};
  const auto registered = [&](std::uint32_t state, std::time_t slurmd_start) {
    node.node_state = state;
    node.slurmd_start_time = slurmd_start;
    return convert(node).registered;
  };
  cr_assert_not(registered(NODE_STATE_UNKNOWN, 0));
  cr_assert_not(registered(NODE_STATE_MIXED, 0), "Slurm takes it for usable all the same");
  cr_assert(registered(NODE_STATE_IDLE, 1700000000));
  for (const std::uint32_t powered : {NODE_STATE_CLOUD, NODE_STATE_POWERED_DOWN,
                                      NODE_STATE_POWERING_UP, NODE_STATE_POWERING_DOWN})
    cr_assert(registered(NODE_STATE_IDLE | powered, 0), "a job is what starts it");
}

Test(convert, a_node_that_is_to_be_empty_drains_and_is_not_lent) {
  const auto converted = [](std::uint32_t state) {
    node_info_t node{};
    node.node_state = NODE_STATE_MIXED | state;
    return convert(node);
  };
  for (const std::uint32_t asked :
       {NODE_STATE_DRAIN, NODE_STATE_FAIL, NODE_STATE_REBOOT_REQUESTED, NODE_STATE_REBOOT_ISSUED,
        NODE_STATE_POWER_DOWN, NODE_STATE_POWER_DRAIN}) {
    cr_assert(converted(asked).draining, "%x", asked);
    cr_assert_not(converted(asked).usable, "%x", asked);
  }
  for (const std::uint32_t other :
       std::initializer_list<std::uint32_t>{0, NODE_STATE_PLANNED, NODE_STATE_POWER_UP}) {
    cr_assert_not(converted(other).draining, "%x", other);
    cr_assert(converted(other).usable, "%x", other);
  }
}

Test(convert, nodes_that_are_not_shared_are_known_by_their_jobs_and_partitions) {
  job_info_t info = {};
  char label[] = "secret";
  info.mcs_label = label;
  for (const std::uint16_t shared :
       {JOB_SHARED_NONE, JOB_SHARED_OK, JOB_SHARED_USER, JOB_SHARED_MCS}) {
    info.shared = shared;
    const JobRecord job = convert(info);
    cr_assert_eq(job.sole_user, shared == JOB_SHARED_USER);
    cr_assert_eq(job.sole_label, shared == JOB_SHARED_MCS);
    cr_assert_eq(job.mcs_label.get(), "secret");
  }
  partition_info_t partition = {};
  cr_assert_not(convert(partition).sole_user);
  partition.flags = PART_FLAG_EXCLUSIVE_USER;
  cr_assert(convert(partition).sole_user);
}

Test(convert, mcs_parameters_are_read_as_slurm_reads_them) {
  cr_assert_eq(labelled_nodes_by("mcs/none", "select"), LabelledNodes::of_none);
  cr_assert_eq(labelled_nodes_by("", "select"), LabelledNodes::of_none);
  cr_assert_eq(labelled_nodes_by("mcs/user", ""), LabelledNodes::of_those_that_ask);
  cr_assert_eq(labelled_nodes_by("mcs/user", "enforced,Select,privatedata"), LabelledNodes::of_all);
  cr_assert_eq(labelled_nodes_by("mcs/group", "ondemand,noselect:a|b"), LabelledNodes::of_none);
  cr_assert_eq(labelled_nodes_by("mcs/account", "ondemand,ondemandselect"),
               LabelledNodes::of_those_that_ask);
}
