// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/convert.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "core/saturating.h"
#include "core/slurm_text/gres.h"
#include "slurm/hostlist.h"
#include "slurm/versions.h"

namespace swell::slurm {

namespace {

using slurm_text::parse_gpus;
using slurm_text::sum_gpus;

std::string text(const char* value) { return value != nullptr ? value : ""; }

JobPhase phase_of(std::uint32_t state) {
  if ((state & JOB_COMPLETING) != 0) return JobPhase::completing;
  switch (state & JOB_STATE_BASE) {
    case JOB_PENDING: return JobPhase::pending;
    case JOB_RUNNING: return JobPhase::running;
    case JOB_SUSPENDED: return JobPhase::suspended;
    default: return JobPhase::ended;
  }
}

const char* state_name(std::uint32_t state) {
  if ((state & JOB_COMPLETING) != 0) return "COMPLETING";
  static constexpr const char* names[] = {"PENDING",   "RUNNING",   "SUSPENDED", "COMPLETED",
                                          "CANCELLED", "FAILED",    "TIMEOUT",   "NODE_FAIL",
                                          "PREEMPTED", "BOOT_FAIL", "DEADLINE",  "OUT_OF_MEMORY"};
  static_assert(JOB_OOM == std::size(names) - 1);
  const std::uint32_t base = state & JOB_STATE_BASE;
  return base < std::size(names) ? names[base] : "UNKNOWN";
}

Waiting waiting_of(const job_info_t& info) {
  if (info.priority == 0) return Waiting::for_other;
  switch (info.state_reason) {
    case WAIT_NO_REASON:
    case WAIT_PRIORITY:
    case WAIT_RESOURCES:
    case FAIL_DEFER: return Waiting::for_resources;
    case WAIT_ASSOC_JOB_LIMIT:
    case WAIT_ASSOC_RESOURCE_LIMIT:
    case WAIT_ASSOC_TIME_LIMIT:
    case WAIT_ASSOC_MAX_JOBS:
    case WAIT_ASSOC_GRP_JOB:
    case WAIT_ASSOC_GRP_CPU:
    case WAIT_ASSOC_GRP_CPU_MIN:
    case WAIT_ASSOC_GRP_CPU_RUN_MIN:
    case WAIT_ASSOC_GRP_MEM:
    case WAIT_ASSOC_GRP_MEM_MIN:
    case WAIT_ASSOC_GRP_MEM_RUN_MIN:
    case WAIT_ASSOC_GRP_NODE:
    case WAIT_ASSOC_GRP_NODE_MIN:
    case WAIT_ASSOC_GRP_NODE_RUN_MIN:
    case WAIT_ASSOC_GRP_GRES:
    case WAIT_ASSOC_GRP_GRES_MIN:
    case WAIT_ASSOC_GRP_GRES_RUN_MIN:
    case WAIT_ASSOC_GRP_BILLING:
    case WAIT_ASSOC_GRP_BILLING_MIN:
    case WAIT_ASSOC_GRP_BILLING_RUN_MIN:
    case WAIT_ASSOC_GRP_UNK:
    case WAIT_ASSOC_GRP_UNK_MIN:
    case WAIT_ASSOC_GRP_UNK_RUN_MIN: return Waiting::for_association;
    case WAIT_QOS_JOB_LIMIT:
    case WAIT_QOS_RESOURCE_LIMIT:
    case WAIT_QOS_TIME_LIMIT:
    case WAIT_QOS_GRP_JOB:
    case WAIT_QOS_GRP_CPU:
    case WAIT_QOS_GRP_CPU_MIN:
    case WAIT_QOS_GRP_CPU_RUN_MIN:
    case WAIT_QOS_GRP_MEM:
    case WAIT_QOS_GRP_MEM_MIN:
    case WAIT_QOS_GRP_MEM_RUN_MIN:
    case WAIT_QOS_GRP_NODE:
    case WAIT_QOS_GRP_NODE_MIN:
    case WAIT_QOS_GRP_NODE_RUN_MIN:
    case WAIT_QOS_GRP_GRES:
    case WAIT_QOS_GRP_GRES_MIN:
    case WAIT_QOS_GRP_GRES_RUN_MIN:
    case WAIT_QOS_GRP_BILLING:
    case WAIT_QOS_GRP_BILLING_MIN:
    case WAIT_QOS_GRP_BILLING_RUN_MIN:
    case WAIT_QOS_GRP_UNK:
    case WAIT_QOS_GRP_UNK_MIN:
    case WAIT_QOS_GRP_UNK_RUN_MIN:
    case WAIT_QOS_MAX_JOB_PER_USER:
    case WAIT_QOS_MAX_CPU_PER_USER:
    case WAIT_QOS_MAX_MEM_PER_USER:
    case WAIT_QOS_MAX_NODE_PER_USER:
    case WAIT_QOS_MAX_GRES_PER_USER:
    case WAIT_QOS_MAX_BILLING_PER_USER:
    case WAIT_QOS_MAX_UNK_PER_USER:
    case WAIT_QOS_MAX_JOB_PER_ACCT:
    case WAIT_QOS_MAX_CPU_PER_ACCT:
    case WAIT_QOS_MAX_MEM_PER_ACCT:
    case WAIT_QOS_MAX_NODE_PER_ACCT:
    case WAIT_QOS_MAX_GRES_PER_ACCT:
    case WAIT_QOS_MAX_BILLING_PER_ACCT:
    case WAIT_QOS_MAX_UNK_PER_ACCT: return Waiting::for_qos;
    default: return Waiting::for_other;
  }
}

int bounded(std::uint32_t value, int when_unset) {
  if (value == NO_VAL || value == INFINITE || value > 100'000'000) return when_unset;
  return static_cast<int>(value);
}

int bounded16(std::uint16_t value, int when_unset) {
  return value == NO_VAL16 || value == INFINITE16 ? when_unset : value;
}

/// Returns the minutes of a time limit; 0 if there is none.
std::uint32_t minutes(std::uint32_t limit) {
  return limit == NO_VAL || limit == INFINITE ? 0 : limit;
}

void read_memory(const job_info_t& info, JobRecord& job) {
  const std::uint64_t memory = info.pn_min_memory;
  if (memory == NO_VAL64 || memory == INFINITE64) return;
  if ((memory & MEM_PER_CPU) != 0)
    job.min_memory_mib_per_cpu = static_cast<std::int64_t>(memory & ~MEM_PER_CPU);
  else job.min_memory_mib_per_node = static_cast<std::int64_t>(memory);
}

/// Reduces Slurm's four ways to request GPUs to two: on each node, or in all.
void read_gpus(const job_info_t& info, JobRecord& job) {
  if (const GpuRequest gpus = sum_gpus(text(info.tres_per_node)); gpus.count > 0)
    job.gpus_per_node = gpus;
  if (const GpuRequest gpus = sum_gpus(text(info.tres_per_job)); gpus.count > 0)
    job.gpus_in_all = gpus;
  if (GpuRequest gpus = sum_gpus(text(info.tres_per_task)); gpus.count > 0) {
    gpus.count =
        saturated_int(saturating_product(gpus.count, std::max(bounded(info.num_tasks, 1), 1)));
    job.gpus_in_all = gpus;
    job.gpus_by_task_or_socket = true;
  }
  if (GpuRequest gpus = sum_gpus(text(info.tres_per_socket)); gpus.count > 0) {
    gpus.count = saturated_int(
        saturating_product(gpus.count, std::max(bounded16(info.sockets_per_node, 1), 1)));
    job.gpus_per_node = gpus;
    job.gpus_by_task_or_socket = true;
  }
}

std::vector<std::string> words(const char* list) {
  std::vector<std::string> result;
  std::istringstream in(text(list));
  for (std::string word; std::getline(in, word, ',');)
    if (!word.empty()) result.push_back(word);
  return result;
}

}  // namespace

JobRecord convert(const job_info_t& info) {
  JobRecord job;
  job.id = job_id_of(info);
  job.het_leader = info.het_job_id;
  job.has_script = info.batch_flag != 0;
  job.in_array = info.array_job_id != 0 || info.array_task_str != nullptr;
  job.uid = info.user_id;
  job.user = text(info.user_name);
  job.name = text(info.name);
  job.account = text(info.account);
  job.partition = text(info.partition);
  job.qos = text(info.qos);
  job.phase = phase_of(info.job_state);
  job.state_text = state_name(info.job_state);
  job.was_preempted = (info.job_state & JOB_STATE_BASE) == JOB_PREEMPTED;
  job.priority = info.priority;
  job.admin_comment = text(info.admin_comment);
  job.comment = text(info.comment);
  // A job that is held, or over a limit, does not start at once.
  job.starts_again = starts_again_at_once(info) && waiting_of(info) == Waiting::for_resources;
  job.cpus = bounded(info.num_cpus, 1);
  job.submit_time = info.submit_time;
  job.start_time = info.start_time;
  job.end_time = info.end_time;
  job.preempt_time = info.preempt_time;
  job.deadline = info.deadline;
  job.time_limit_min = minutes(info.time_limit);
  if (job.phase == JobPhase::pending) {
    job.waiting = waiting_of(info);
    if (info.array_task_str != nullptr)
      job.pending_tasks = slurm_text::count_array_tasks(info.array_task_str);
  } else {
    job.nodes = expand_hosts(info.nodes);
    job.memory_mib = slurm_text::tres_value(text(info.tres_alloc_str), "mem");
    const std::size_t details = std::min<std::size_t>(info.gres_detail_cnt, job.nodes.size());
    for (std::size_t i = 0; i < details; ++i)
      for (GpuRequest& gpus : parse_gpus(text(info.gres_detail_str[i])))
        if (gpus.count > 0) job.gpus.push_back({job.nodes[i], std::move(gpus)});
  }
  job.may_requeue = info.requeue != 0;
  job.min_nodes = std::max(bounded(info.num_nodes, 1), 1);
  job.max_nodes = std::max(bounded(info.max_nodes, 0), job.min_nodes);
  job.min_cpus_per_node = bounded16(info.pn_min_cpus, 0);
  job.whole_nodes = info.shared == JOB_SHARED_NONE;
  job.reservation = text(info.resv_name);
  job.required_nodes = info.req_nodes;
  read_gpus(info, job);
  job.sole_user = info.shared == JOB_SHARED_USER;
  job.sole_label = info.shared == JOB_SHARED_MCS;
  job.mcs_label = info.mcs_label;
  job.features = info.features;
  job.excluded_nodes = info.exc_nodes;
  read_memory(info, job);
  return job;
}

std::vector<JobRecord> convert(const job_info_msg_t& message) {
  std::vector<JobRecord> jobs;
  jobs.reserve(message.record_count);
  TextPool pool;
  std::set<JobId> waiting;  // leaders of jobs with a part that waits for resources
  for (std::uint32_t i = 0; i < message.record_count; ++i) {
    JobRecord& job = jobs.emplace_back(convert(message.job_array[i]));
    for (SharedText* text :
         {&job.features, &job.required_nodes, &job.excluded_nodes, &job.mcs_label})
      pool.share(*text);
    if (job.het_leader != 0 && job.phase == JobPhase::pending &&
        job.waiting == Waiting::for_resources)
      waiting.insert(job.het_leader);
  }
  for (std::uint32_t i = 0; i < message.record_count; ++i)
    if (waiting.count(jobs[i].het_leader) != 0 && jobs[i].phase == JobPhase::pending &&
        message.job_array[i].state_reason == WAIT_TIME)
      jobs[i].waiting = Waiting::for_resources;
  return jobs;
}

NodeRecord convert(node_info_t& info) {
  NodeRecord node;
  node.name = text(info.name);
  const std::uint32_t base = info.node_state & NODE_STATE_BASE;
  // The node was asked to end its jobs first, or immediately.
  constexpr std::uint32_t draining = NODE_STATE_DRAIN | NODE_STATE_FAIL |
                                     NODE_STATE_REBOOT_REQUESTED | NODE_STATE_REBOOT_ISSUED |
                                     NODE_STATE_POWER_DOWN | NODE_STATE_POWER_DRAIN;
  constexpr std::uint32_t unusable =
      draining | NODE_STATE_NO_RESPOND | NODE_STATE_POWERED_DOWN | NODE_STATE_POWERING_UP |
      NODE_STATE_MAINT | NODE_STATE_POWERING_DOWN | NODE_STATE_INVALID_REG | NODE_STATE_RES;
  node.usable =
      (base == NODE_STATE_IDLE || base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED) &&
      (info.node_state & unusable) == 0;
  node.completing = (info.node_state & NODE_STATE_COMPLETING) != 0;
  node.draining = (info.node_state & draining) != 0;
  for (GpuRequest& gpus : parse_gpus(text(info.gres)))
    if (gpus.count > 0) node.gpus.push_back(std::move(gpus));
  node.cpus = info.cpus_efctv > 0 ? info.cpus_efctv : info.cpus;
  node.memory_mib =
      static_cast<std::int64_t>(info.real_memory) -
      static_cast<std::int64_t>(info.mem_spec_limit == NO_VAL64 ? 0 : info.mem_spec_limit);
  const NodeUse use = use_of(info);
  node.cpus_used = use.cpus;
  node.memory_used_mib = static_cast<std::int64_t>(use.memory_mib);
  node.features = words(info.features_act != nullptr ? info.features_act : info.features);
  node.weight = info.weight;
  node.address = text(info.node_addr);
  node.extra = text(info.extra);
  constexpr std::uint32_t powered = NODE_STATE_CLOUD | NODE_STATE_POWERED_DOWN |
                                    NODE_STATE_POWERING_UP | NODE_STATE_POWERING_DOWN;
  node.registered = info.slurmd_start_time != 0 || (info.node_state & powered) != 0;
  return node;
}

MemoryLimit memory_limit(std::uint64_t value) {
  if (value == NO_VAL64 || value == INFINITE64) return {};
  return {static_cast<std::int64_t>(value & ~MEM_PER_CPU), (value & MEM_PER_CPU) != 0};
}

PartitionRecord convert(const partition_info_t& info) {
  PartitionRecord partition;
  partition.name = text(info.name);
  partition.nodes = expand_hosts(info.nodes);
  partition.is_default = (info.flags & PART_FLAG_DEFAULT) != 0;
  partition.priority_tier = info.priority_tier;
  partition.up = info.state_up == PARTITION_UP;
  partition.gives_whole_nodes = info.max_share == 0;
  partition.sole_user = (info.flags & PART_FLAG_EXCLUSIVE_USER) != 0;
  partition.max_time_min = minutes(info.max_time);
  partition.qos = text(info.qos_char);
  partition.min_nodes = bounded(info.min_nodes, 1);
  partition.max_cpus_per_node = bounded(info.max_cpus_per_node, 0);
  partition.max_memory = memory_limit(info.max_mem_per_cpu);
  return partition;
}

LabelledNodes labelled_nodes_by(const std::string& plugin, std::string parameters) {
  if (plugin.empty() || plugin == "mcs/none") return LabelledNodes::of_none;
  std::transform(parameters.begin(), parameters.end(), parameters.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto has = [&](const char* word) { return parameters.find(word) != std::string::npos; };
  // In Slurm's own order; its default is ondemandselect.
  if (has("noselect")) return LabelledNodes::of_none;
  return has("select") && !has("ondemandselect") ? LabelledNodes::of_all
                                                 : LabelledNodes::of_those_that_ask;
}

ReservationRecord convert(const reserve_info_t& info) {
  ReservationRecord reservation;
  reservation.name = text(info.name);
  // A reservation of licences or burst buffers holds no nodes: any job may use its nodes.
  if ((info.flags & RESERVE_FLAG_ANY_NODES) == 0) reservation.nodes = expand_hosts(info.node_list);
  std::sort(reservation.nodes.begin(), reservation.nodes.end());
  reservation.start = info.start_time;
  reservation.end = info.end_time;
  return reservation;
}

}  // namespace swell::slurm
