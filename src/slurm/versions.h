// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <slurm/slurm.h>
#include <string>
#include <string_view>

#include "slurm/records.h"

/// Differences between the public headers of the supported versions of Slurm (22.05, 24.11, 26.05).
/// Detected from the header's members rather than its version number if possible. Only this folder
/// and src/plugins/select know of versions: docs/versions.md.
namespace swell::slurm {

/// Returns the job id of a record, request or answer of Slurm: from 26.05 on it is in its step_id.
template <typename Record>
JobId job_id_of(const Record& record) noexcept {
  if constexpr (requires { record.step_id.job_id; }) return record.step_id.job_id;
  else return record.job_id;
}

template <typename Record>
void set_job_id(Record& record, JobId job) noexcept {
  if constexpr (requires { record.step_id.job_id; }) record.step_id.job_id = job;
  else record.job_id = job;
}

/// Calls slurm_kill_job(), from 26.05 on with a slurm_step_id_t. Returns its result.
int kill_job(JobId job, std::uint16_t signal) noexcept;

/// Calls slurm_requeue(), likewise.
int requeue_job(JobId job) noexcept;

/// Calls slurm_load_job(), likewise.
int load_job(JobId job, job_info_msg_t** message) noexcept;

/// Calls slurm_notify_job(), likewise.
int notify_job(JobId job, const std::string& line) noexcept;

/// Returns whether, by slurmctld's configuration, a job's processes can open only the GPUs of their
/// own allocation (devices_apart() of fabric_source.h).
bool constrains_devices(const slurm_conf_t& conf);

/// CPUs and memory in MiB that jobs use on a node.
struct NodeUse {
  std::uint16_t cpus = 0;
  std::uint64_t memory_mib = 0;
};
/// Returns the CPUs and memory in use on a node: from the select plugin's record, from 26.05 on
/// from the node's own. `node` is not changed.
NodeUse use_of(node_info_t& node) noexcept;

/// GRES and CPUs that a submission requests for each task.
struct PerTask {
  std::string gres;  ///< "gres/gpu:h100:1"; empty: only CPUs
  int cpus = 0;      ///< 0: not given
};
/// Reads tres_per_task, into which newer versions (seen on 24.11) also write --cpus-per-task:
/// "cpu=8" or "cpu:8", alone or in a list.
inline PerTask per_task_of(std::string_view tres_per_task) {
  PerTask result;
  while (!tres_per_task.empty()) {
    const std::string_view item = tres_per_task.substr(0, tres_per_task.find(','));
    tres_per_task.remove_prefix(std::min(item.size() + 1, tres_per_task.size()));
    std::uint16_t cpus = 0;
    const char* const end = item.data() + item.size();
    const bool counts_cpus = (item.starts_with("cpu=") || item.starts_with("cpu:")) &&
                             std::from_chars(item.data() + 4, end, cpus).ptr == end;
    if (counts_cpus && cpus > 0) result.cpus = std::max<int>(result.cpus, cpus);
    else result.gres += (result.gres.empty() ? "" : ",") + std::string(item);
  }
  return result;
}

/// Whether Slurm calls a job_submit plugin's job_modify() with a fourth argument, for a message to
/// the requester: from 23.02 on.
inline constexpr bool kModifyTakesMessage = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0);

/// Value of changes_gpu_types() of release.h for the Slurm that this is built for.
inline constexpr bool kChangesGpuTypes = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0);

/// Returns PreemptParameters, which came after 22.05; whether it exists is found from the header.
/// Null: not set.
template <typename Conf>
const char* preempt_parameters_of(const Conf& conf) noexcept {
  if constexpr (requires { conf.preempt_params; }) return conf.preempt_params;
  else return nullptr;
}

/// Returns whether a job that failed with its nodes will start again at once, at the head of the
/// queue: an expedited requeue, from 25.11 on. Seen on 26.05: the job is PENDING and EXPEDITING
/// until it starts, and at first also COMPLETING while its other nodes clean up.
template <typename Job>
bool starts_again_at_once(const Job& job) noexcept {
#ifdef JOB_EXPEDITING
  return (job.job_state & JOB_EXPEDITING) != 0;
#else
  static_cast<void>(job);
  return false;
#endif
}

/// Calls slurm_free_ctl_conf(), from 26.05 on slurm_free_conf().
void free_conf(slurm_conf_t* conf) noexcept;

}  // namespace swell::slurm
