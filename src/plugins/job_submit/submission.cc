// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/job_submit/submission.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unistd.h>

#include "controller/host.h"
#include "plugins/job_submit/companion_fields.h"
#include "slurm/versions.h"

// Slurm's own allocator, exported by slurmctld; memory that a submission owns must come from it.
extern "C" char* slurm_xstrdup(const char* text);
extern "C" void slurm_xfree(void** item);

namespace swell::job_submit {

namespace {

/// Higher than every priority that a site's formula gives, because `immediate` allocates only for
/// the head of the queue.
constexpr std::uint32_t kCompanionPriority = 0xfffffff0;

/// Larger counts are reduced to this one; no cluster has as many of anything.
constexpr std::uint64_t kMaxCount = 100'000'000;

std::string text(const char* value) { return value != nullptr ? value : ""; }

template <typename Unsigned>
int count(Unsigned value, Unsigned unset) {
  return value == unset ? 0 : static_cast<int>(std::min<std::uint64_t>(value, kMaxCount));
}

/// Returns the value of NAME=value in an environment; nothing if it is not set.
std::optional<std::string> variable(char** environment, std::uint32_t size, std::string_view name) {
  for (std::uint32_t i = 0; environment != nullptr && i < size; ++i) {
    const std::string_view entry = environment[i] != nullptr ? environment[i] : "";
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
  }
  return std::nullopt;
}

/// Returns --elastic as the SPANK plugin passes it, or SWELL_ELASTIC in the job's environment, for
/// clients without SPANK plugins (slurmrestd, hosts without Swell).
std::optional<std::string> elastic_of(const job_desc_msg_t& job) {
  for (const char* name : {"SWELL_ELASTIC", "SPANK_SWELL_ELASTIC"})
    if (auto value = variable(job.spank_job_env, job.spank_job_env_size, name)) return value;
  return variable(job.environment, job.env_size, "SWELL_ELASTIC");
}

/// Returns the speeds of table=FILE, which the SPANK plugin has read.
std::optional<std::string> speeds_of(const job_desc_msg_t& job) {
  for (const char* name : {"SWELL_SPEEDS", "SPANK_SWELL_SPEEDS"})
    if (auto value = variable(job.spank_job_env, job.spank_job_env_size, name)) return value;
  return variable(job.environment, job.env_size, "SWELL_SPEEDS");
}

void replace(char*& member, const std::string& value) {
  void* old = member;
  slurm_xfree(&old);
  member = slurm_text(value);
}

void lower(const controller::LoweredRequest& to, job_desc_msg_t& job) {
  if (to.tres_per_node) replace(job.tres_per_node, *to.tres_per_node);
  if (to.tres_per_job) replace(job.tres_per_job, *to.tres_per_job);
  const auto set = [](auto& member, const auto& value) {
    if (value) member = static_cast<std::remove_reference_t<decltype(member)>>(*value);
  };
  set(job.min_nodes, to.nodes);
  if (job.max_nodes != NO_VAL) set(job.max_nodes, to.nodes);
  set(job.num_tasks, to.tasks);
  set(job.ntasks_per_node, to.tasks_per_node);
  set(job.min_cpus, to.min_cpus);
  set(job.pn_min_cpus, to.min_cpus_per_node);
  set(job.pn_min_memory, to.memory_mib_per_node);
}

}  // namespace

controller::SubmitRequest read(const job_desc_msg_t& job, std::uint32_t uid) {
  controller::SubmitRequest request;
  request.uid = uid;
  request.name = text(job.name);
  request.comment = text(job.comment);
  request.admin_comment = text(job.admin_comment);
  request.partition = text(job.partition);
  request.account = text(job.account);
  request.qos = text(job.qos);
  request.required_nodes = text(job.req_nodes);
  request.tres_per_node = text(job.tres_per_node);
  request.tres_per_job = text(job.tres_per_job);
  const slurm::PerTask per_task = slurm::per_task_of(text(job.tres_per_task));
  request.tres_per_task = per_task.gres;
  request.tres_per_socket = text(job.tres_per_socket);
  request.min_nodes = count(job.min_nodes, NO_VAL);
  request.max_nodes = count(job.max_nodes, NO_VAL);
  request.sockets_per_node = count(job.sockets_per_node, static_cast<std::uint16_t>(NO_VAL16));
  request.tasks = count(job.num_tasks, NO_VAL);
  request.tasks_per_node = count(job.ntasks_per_node, static_cast<std::uint16_t>(NO_VAL16));
  request.min_cpus = count(job.min_cpus, NO_VAL);
  request.cpus_per_task =
      std::max(count(job.cpus_per_task, static_cast<std::uint16_t>(NO_VAL16)), per_task.cpus);
  if (job.pn_min_memory != NO_VAL64) {
    const auto memory = static_cast<std::int64_t>(job.pn_min_memory & ~MEM_PER_CPU);
    ((job.pn_min_memory & MEM_PER_CPU) != 0 ? request.memory_mib_per_cpu
                                            : request.memory_mib_per_node) = memory;
    request.all_memory = memory == 0;
  }
  request.min_cpus_per_node = count(job.pn_min_cpus, static_cast<std::uint16_t>(NO_VAL16));
  request.time_limit_min = count(job.time_limit, NO_VAL);
  request.immediate = job.immediate != 0;
  request.has_script = job.script != nullptr;
  if (job.requeue != static_cast<std::uint16_t>(NO_VAL16)) request.may_requeue = job.requeue != 0;
  request.is_array = job.array_inx != nullptr;
  request.is_het_component = job.het_job_offset != NO_VAL;
  request.submitted = std::time(nullptr);
  request.features = text(job.features);
  request.excluded_nodes = text(job.exc_nodes);
  request.elastic = elastic_of(job);
  if (request.elastic) request.speeds = speeds_of(job);
  if (controller::grant_in(request.comment)) request.beyond_an_offer = members_beyond_an_offer(job);
  return request;
}

void apply(const controller::Admission& admission, job_desc_msg_t& job) {
  if (admission.admin_comment) replace(job.admin_comment, *admission.admin_comment);
  lower(admission.lowered, job);
  if (!admission.is_companion) return;
  job.priority = kCompanionPriority;
  if (!admission.qos.empty()) replace(job.qos, admission.qos);
  if (!admission.partition.empty()) replace(job.partition, admission.partition);
}

controller::ChangeRequest read_change(const job_desc_msg_t& job, std::uint32_t uid) {
  controller::ChangeRequest request;
  request.uid = uid;
  request.by_slurm_or_root = uid == 0 || uid == geteuid();
  // slurmctld uses the text if there is one, whatever the number says.
  const std::uint32_t number = slurm::job_id_of(job);
  if (number != NO_VAL) request.jobs.push_back(number);
  if (job.job_id_str != nullptr)
    request.jobs.push_back(static_cast<std::uint32_t>(std::strtoul(job.job_id_str, nullptr, 10)));
  request.qos = text(job.qos);
  request.partition = text(job.partition);
  request.comment = text(job.comment);
  if (job.admin_comment != nullptr) request.admin_comment = job.admin_comment;
  return request;
}

void write_admin_comment(const std::string& text, job_desc_msg_t& job) {
  replace(job.admin_comment, text);
}

char* slurm_text(const std::string& value) { return slurm_xstrdup(value.c_str()); }

}  // namespace swell::job_submit
