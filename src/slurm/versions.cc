// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/versions.h"

#include <cstdio>
#include <cstdlib>

#include "slurm/fabric_source.h"

namespace swell::slurm {

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)

namespace {

slurm_step_id_t whole(JobId job) noexcept {
  slurm_step_id_t id{};
  id.job_id = job;
  id.step_id = NO_VAL;
  id.step_het_comp = NO_VAL;
  return id;
}

}  // namespace

int kill_job(JobId job, std::uint16_t signal) noexcept {
  return slurm_kill_job(whole(job), signal, 0);
}

int requeue_job(JobId job) noexcept { return slurm_requeue(whole(job), 0); }

int load_job(JobId job, job_info_msg_t** message) noexcept {
  return slurm_load_job(message, whole(job), SHOW_ALL | SHOW_DETAIL);
}

int notify_job(JobId job, const std::string& line) noexcept {
  return slurm_notify_job(whole(job), const_cast<char*>(line.c_str()));
}

NodeUse use_of(node_info_t& node) noexcept { return {node.alloc_cpus, node.alloc_memory}; }

void free_conf(slurm_conf_t* conf) noexcept { slurm_free_conf(conf); }

#else

int kill_job(JobId job, std::uint16_t signal) noexcept { return slurm_kill_job(job, signal, 0); }

int requeue_job(JobId job) noexcept { return slurm_requeue(job, 0); }

int load_job(JobId job, job_info_msg_t** message) noexcept {
  return slurm_load_job(message, job, SHOW_ALL | SHOW_DETAIL);
}

int notify_job(JobId job, const std::string& line) noexcept {
  return slurm_notify_job(job, const_cast<char*>(line.c_str()));
}

NodeUse use_of(node_info_t& node) noexcept {
  NodeUse use;
  if (node.select_nodeinfo == nullptr) return use;
  slurm_get_select_nodeinfo(node.select_nodeinfo, SELECT_NODEDATA_SUBCNT, NODE_STATE_ALLOCATED,
                            &use.cpus);
  slurm_get_select_nodeinfo(node.select_nodeinfo, SELECT_NODEDATA_MEM_ALLOC, NODE_STATE_ALLOCATED,
                            &use.memory_mib);
  return use;
}

void free_conf(slurm_conf_t* conf) noexcept { slurm_free_ctl_conf(conf); }

#endif

bool constrains_devices(const slurm_conf_t& conf) {
  if (conf.cgroup_conf == nullptr || conf.task_plugin == nullptr) return false;
  // The list's records are not public; the function that prints them is.
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  if (out == nullptr) return false;
  char title[] = "cgroup";
  slurm_print_key_pairs(out, conf.cgroup_conf, title);
  std::fclose(out);
  const bool apart = devices_apart(conf.task_plugin, {text, size});
  std::free(text);
  return apart;
}

}  // namespace swell::slurm
