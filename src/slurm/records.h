// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/slurm_text/gres.h"
#include "slurm/associations.h"
#include "slurm/shared_text.h"

/// Slurm's records as plain values, the same for every version of Slurm. Made by LiveSlurm from the
/// public API, or by tests; read by the controller and the tools.
namespace swell::slurm {

using JobId = std::uint32_t;
using slurm_text::GpuRequest;

enum class JobPhase { pending, running, suspended, completing, ended };

/// Reason why a job is pending, as far as it matters for idle GPUs.
enum class Waiting {
  for_resources,    ///< starts when resources are free and its turn has come
  for_association,  ///< a limit on the jobs of its user or account is reached
  for_qos,          ///< a limit on the jobs of its QOS is reached
  for_other,        ///< held, dependent, over a limit, ...: idle GPUs would not start it
};

/// GPUs that a job holds on one node.
struct GpuAllocation {
  std::string node;
  GpuRequest gpus;
};

struct JobRecord {
  JobId id = 0;
  JobId het_leader = 0;  ///< leader of its heterogeneous job; 0: it is not part of one
  uid_t uid = 0;
  std::string user, name, account, partition, qos;
  JobPhase phase = JobPhase::ended;
  Waiting waiting = Waiting::for_other;
  std::string state_text;  ///< as squeue shows it
  bool was_preempted = false;
  std::uint32_t priority = 0;
  std::string admin_comment, comment;
  std::vector<std::string> nodes;
  std::vector<GpuAllocation> gpus;  ///< held now, node by node
  int cpus = 0;                     ///< requested (while pending) or held
  std::int64_t memory_mib = 0;      ///< held in all; 0 if Slurm does not say
  std::time_t submit_time = 0, start_time = 0, end_time = 0, preempt_time = 0;
  std::time_t deadline = 0;          ///< time of --deadline; 0: none
  std::uint32_t time_limit_min = 0;  ///< 0: none
  bool has_script = false;           ///< submitted with sbatch
  bool in_array = false;             ///< the job is an array, or a task of one
  /// Waits for an expedited requeue: its nodes stay reserved for it until then.
  bool starts_again = false;
  bool may_requeue = false;  ///< neither --no-requeue nor JobRequeue=0
  int pending_tasks = 1;     ///< array tasks that this record of a pending job stands for
  // Demands of the submission, or of later changes. `min_nodes` of a running job: those it has.
  int min_nodes = 1, max_nodes = 1;
  int min_cpus_per_node = 0;
  std::int64_t min_memory_mib_per_node = 0, min_memory_mib_per_cpu = 0;
  GpuRequest gpus_per_node, gpus_in_all;  ///< count 0: not requested in this form
  bool gpus_by_task_or_socket = false;    ///< some are requested by these, and counted above
  bool whole_nodes = false;
  std::string reservation;
  SharedText required_nodes;  ///< host list
  // Options of pending and of running jobs, as their users wrote them:
  SharedText features;        ///< --constraint
  SharedText excluded_nodes;  ///< host list
  bool sole_user = false;     ///< --exclusive=user, or its partition has ExclusiveUser
  bool sole_label = false;    ///< --exclusive=mcs
  SharedText mcs_label;

  /// Returns whether Slurm has warned the present run of the job that it will be preempted, and
  /// ended after a grace time.
  bool is_preempted() const noexcept { return preempt_time != 0 && preempt_time >= start_time; }
  int gpu_count() const noexcept {
    int sum = 0;
    for (const GpuAllocation& each : gpus) sum += each.gpus.count;
    return sum;
  }
};

struct NodeRecord {
  std::string name;
  bool usable = false;      ///< up, answering, not drained, not reserved, not powered down
  bool completing = false;  ///< a job is just ending on it: Slurm starts nothing there until then
  bool draining = false;    ///< must not run more jobs: drained, failing, or to be rebooted
  std::vector<GpuRequest> gpus;  ///< configured GPUs, one entry for each type
  int cpus = 0, cpus_used = 0;
  std::int64_t memory_mib = 0, memory_used_mib = 0;
  std::vector<std::string> features;
  std::uint32_t weight = 1;  ///< Slurm uses nodes of lower weight first
  std::string address;       ///< NodeAddr
  std::string extra;  ///< Extra: text of several tools, including Swell's description of the node
  bool registered = true;  ///< since slurmctld started; true if Slurm manages the node's power
};

/// MaxMemPerNode of a job, or MaxMemPerCPU.
struct MemoryLimit {
  std::int64_t mib = 0;  ///< 0: unlimited
  bool per_cpu = false;
};

struct PartitionRecord {
  std::string name;
  std::vector<std::string> nodes;
  bool is_default = false;
  int priority_tier = 1;
  bool up = false;
  bool gives_whole_nodes = false;  ///< OverSubscribe=EXCLUSIVE
  bool sole_user = false;          ///< ExclusiveUser: a node has jobs of one user at a time
  std::uint32_t max_time_min = 0;  ///< MaxTime; 0: unlimited
  std::string qos;                 ///< QOS of the partition, with limits for all jobs in it
  int min_nodes = 1;               ///< MinNodes of a job
  int max_cpus_per_node = 0;       ///< for all its jobs on a node; 0: unlimited
  MemoryLimit max_memory;          ///< unlimited: the whole site's limit holds
};

/// A reservation of whole nodes or of parts of them.
struct ReservationRecord {
  std::string name;
  std::vector<std::string> nodes;  ///< in order of their names
  std::time_t start = 0, end = 0;
};

/// Jobs whose nodes run only jobs of the same MCS label (MCSParameters).
enum class LabelledNodes { of_none, of_those_that_ask, of_all };

/// The cluster at one time.
struct Snapshot {
  std::time_t taken = 0;
  std::vector<JobRecord> jobs;
  std::vector<NodeRecord> nodes;
  std::vector<PartitionRecord> partitions;
  std::vector<ReservationRecord> reservations;
  LabelledNodes labelled_nodes = LabelledNodes::of_none;
  MemoryLimit max_memory;  ///< in partitions without a limit of their own
  std::map<std::string, std::uint32_t> qos_max_time_min;  ///< MaxWall of those QOS that have one
  /// left_between() the previous snapshot and this one. Because nodes are loaded before jobs, their
  /// records may still count the resources of these jobs as used.
  std::vector<JobRecord> just_left;
  /// Accounts and users with their limits, at most kAssociationsKept old; null: not known.
  std::shared_ptr<const std::vector<AssociationRecord>> associations;
  /// Result of keep_for_restarts() for this snapshot.
  std::map<JobId, std::vector<std::string>> kept_nodes;
};

/// Returns the jobs that held resources in `before`, with these resources, and hold none in `now`.
std::vector<JobRecord> left_between(const Snapshot& before, const Snapshot& now);

/// Returns the nodes of the jobs of `now` that wait for an expedited requeue: those that each job
/// held in `before`, that were kept there, or that it holds now. Slurm forgets nodes that are down
/// or already clean.
std::map<JobId, std::vector<std::string>> keep_for_restarts(const Snapshot& before,
                                                            const Snapshot& now);

}  // namespace swell::slurm
