// SPDX-License-Identifier: GPL-2.0-or-later
#include <config.h>

#include "slurm/live_slurm.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <tuple>

#include "core/slurm_text/gres.h"
#include "slurm/associations.h"
#include "slurm/convert.h"
#include "slurm/loaded.h"
#include "slurm/site_config.h"
#include "slurm/versions.h"

namespace swell::slurm {

namespace {

/// Maximum age of limits of accounts and users. Slurm's answer names all users of the site: if it
/// takes long it is requested less often, so that this costs about 1 / kAssociationsShare of the
/// time.
constexpr std::chrono::seconds kAssociationsKeptLeast{2}, kAssociationsKept{15};
constexpr int kAssociationsShare = 100;

bool are_equal(const std::vector<AssociationRecord>& some,
               const std::vector<AssociationRecord>& others) {
  const auto members = [](const AssociationRecord& each) {
    return std::tie(each.account, each.user, each.partition, each.uid, each.parent,
                    each.limits_running, each.max_submitted);
  };
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [&](const AssociationRecord& one, const AssociationRecord& other) {
                      return members(one) == members(other);
                    });
}

std::string text(const char* value) { return value != nullptr ? value : ""; }

Error failure(const char* what) { return Error(fmt::format("{}: {}", what, slurm_reason(errno))); }

/// Returns whether slurmctld refuses a change now that it will accept later: it is not the active
/// controller, or slurmdbd has not yet told it its number for the job, without which older versions
/// refuse.
bool is_taken_later(int error) {
#if HAVE_DECL_ESLURM_JOB_SETTING_DB_INX
  if (error == ESLURM_JOB_SETTING_DB_INX) return true;
#endif
  return error == ESLURM_IN_STANDBY_MODE;
}

/// How often limits of QOS and parts of slurm.conf are loaded again.
constexpr auto kSettingsKept = std::chrono::seconds(60);

class LiveSlurm final : public SlurmApi {
 public:
  Result<std::optional<Snapshot>> load() override {
    // Load nodes before jobs. Then a job that starts in between is in the queue while its node
    // still counts as free, and `immediate` refuses nodes that are not free after all.
    Result<bool> nodes = load_nodes();
    if (!nodes) return nodes.error();
    Result<bool> partitions = load_partitions();
    if (!partitions) return partitions.error();
    Result<bool> reservations = load_reservations();
    if (!reservations) return reservations.error();
    Result<bool> jobs = load_jobs();
    if (!jobs) return jobs.error();
    const bool limits = load_limits();
    if (!*nodes && !*partitions && !*reservations && !*jobs && !limits && !forced_)
      return std::optional<Snapshot>{};
    load_settings();
    forced_ = false;
    last_.taken = std::time(nullptr);
    return std::optional<Snapshot>(last_);
  }

  void forget() override { forced_ = true; }

  Result<std::optional<JobRecord>> load_job(JobId job) override {
    job_info_msg_t* message = nullptr;
    if (slurm::load_job(job, &message) != SLURM_SUCCESS) {
      if (errno == ESLURM_INVALID_JOB_ID) return std::optional<JobRecord>{};
      return failure("slurm_load_job").while_doing(fmt::format("looking at job {}", job));
    }
    const LoadedJobs loaded(message);
    // slurmctld answers with all jobs of an array or heterogeneous job.
    for (std::uint32_t i = 0; i < message->record_count; ++i)
      if (JobRecord record = convert(message->job_array[i]); record.id == job)
        return std::optional<JobRecord>(std::move(record));
    return std::optional<JobRecord>{};
  }

  Result<void> cancel(JobId job) override {
    if (kill_job(job, SIGKILL) == SLURM_SUCCESS) return {};
    if (errno == ESLURM_ALREADY_DONE || errno == ESLURM_INVALID_JOB_ID) return {};
    return failure("slurm_kill_job").while_doing(fmt::format("cancelling job {}", job));
  }

  Result<void> tell(JobId job, const std::string& line) override {
    if (notify_job(job, line) == SLURM_SUCCESS) return {};
    return failure("slurm_notify_job").while_doing(fmt::format("telling job {} a line", job));
  }

  Result<bool> set_admin_comment(JobId job, const std::string& comment) override {
    job_desc_msg_t update;
    slurm_init_job_desc_msg(&update);
    set_job_id(update, job);
    update.admin_comment = const_cast<char*>(comment.c_str());
    if (slurm_update_job(&update) == SLURM_SUCCESS) return true;
    if (is_taken_later(errno)) return false;
    return failure("slurm_update_job")
        .while_doing(fmt::format("writing AdminComment of job {}", job));
  }

  bool changes_gpu_types() const noexcept override { return kChangesGpuTypes; }

  Result<bool> set_gpu_type(JobId job, const std::string& type, const std::string& admin_comment,
                            bool at_once) override {
    const auto doing = [&](Error error) {
      return error.while_doing(fmt::format("having job {} ask for {}", job, type));
    };
    job_info_msg_t* message = nullptr;
    if (slurm::load_job(job, &message) != SLURM_SUCCESS) return doing(failure("slurm_load_job"));
    const LoadedJobs loaded(message);
    for (std::uint32_t i = 0; i < message->record_count; ++i) {
      const job_info_t& info = message->job_array[i];
      if (job_id_of(info) != job) continue;
      if ((info.job_state & JOB_STATE_BASE) != JOB_PENDING)
        return doing(Error("it does not wait any more"));
      if (convert(info).gpus_by_task_or_socket)
        return doing(Error("it asks for GPUs of each task or socket"));
      // Sends Slurm's own text back, with the new type in each list that names GPUs.
      auto lists = slurm_text::with_gpu_type_in_both(
          {text(info.tres_per_job), text(info.tres_per_node)}, type);
      if (!lists)
        return doing(
            Error("it does not ask by --gres, --gpus-per-node or --gpus for GPUs of one type"));
      job_desc_msg_t update;
      slurm_init_job_desc_msg(&update);
      set_job_id(update, job);
      if (!lists->in_all.empty()) update.tres_per_job = lists->in_all.data();
      if (!lists->per_node.empty()) update.tres_per_node = lists->per_node.data();
      update.admin_comment = const_cast<char*>(admin_comment.c_str());
      if (at_once) update.begin_time = std::time(nullptr);
      if (slurm_update_job(&update) == SLURM_SUCCESS) return true;
      if (is_taken_later(errno)) return false;
      return doing(failure("slurm_update_job"));
    }
    return doing(Error("there is no such job"));
  }

  Result<void> requeue(JobId job) override {
    if (requeue_job(job) == SLURM_SUCCESS) return {};
    return failure("slurm_requeue").while_doing(fmt::format("requeueing job {}", job));
  }

 private:
  /// Keeps slurmctld's answer, as each load_...() does, and returns whether it has changed.
  Result<bool> load_nodes() {
    auto nodes = load_nodes_since(nodes_time_);
    if (!nodes) return nodes.error();
    if (!*nodes) return false;
    last_.nodes = **std::move(nodes);
    return true;
  }

  Result<bool> load_partitions() {
    partition_info_msg_t* message = nullptr;
    if (slurm_load_partitions(partitions_time_, &message, SHOW_ALL) != SLURM_SUCCESS)
      return unchanged("slurm_load_partitions");
    const LoadedPartitions loaded(message);
    last_.partitions.clear();
    for (std::uint32_t i = 0; i < message->record_count; ++i)
      last_.partitions.push_back(convert(message->partition_array[i]));
    partitions_time_ = message->last_update;
    return true;
  }

  Result<bool> load_reservations() {
    reserve_info_msg_t* message = nullptr;
    if (slurm_load_reservations(reservations_time_, &message) != SLURM_SUCCESS)
      return unchanged("slurm_load_reservations");
    const LoadedReservations loaded(message);
    last_.reservations.clear();
    for (std::uint32_t i = 0; i < message->record_count; ++i)
      last_.reservations.push_back(convert(message->reservation_array[i]));
    reservations_time_ = message->last_update;
    return true;
  }

  /// Keeps the last answers if slurmctld does not answer: a site without slurmdbd has no QOS.
  void load_settings() {
    const auto now = std::chrono::steady_clock::now();
    if (settings_loaded_ && now - *settings_loaded_ < kSettingsKept) return;
    settings_loaded_ = now;
    slurm_conf_t* conf = nullptr;
    if (slurm_load_ctl_conf(0, &conf) == SLURM_SUCCESS) {
      const LoadedConf loaded(conf);
      last_.labelled_nodes =
          labelled_nodes_by(text(conf->mcs_plugin), text(conf->mcs_plugin_params));
      last_.max_memory = memory_limit(conf->max_mem_per_cpu);
    }
    if (auto times = load_qos_max_times()) last_.qos_max_time_min = *std::move(times);
  }

  Result<bool> load_jobs() {
    job_info_msg_t* message = nullptr;
    if (slurm_load_jobs(jobs_time_, &message, SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS)
      return unchanged("slurm_load_jobs");
    const LoadedJobs loaded(message);
    last_.jobs = convert(*message);
    jobs_time_ = message->last_update;
    return true;
  }

  /// Loads the limits of accounts and users, also while nothing else changes: a limit that was just
  /// set may refuse its user's next job. Without an answer the last ones remain valid. Returns
  /// whether they differ from the last ones.
  bool load_limits() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point now = Clock::now();
    if (limits_looked_at_ && now - *limits_looked_at_ < limits_kept_) return false;
    limits_looked_at_ = now;
    auto associations = load_associations();
    limits_kept_ = std::clamp<Clock::duration>(kAssociationsShare * (Clock::now() - now),
                                               kAssociationsKeptLeast, kAssociationsKept);
    if (!associations || (last_.associations && are_equal(*last_.associations, *associations)))
      return false;
    last_.associations =
        std::make_shared<const std::vector<AssociationRecord>>(std::move(*associations));
    return true;
  }

  static Result<bool> unchanged(const char* what) {
    if (errno == SLURM_NO_CHANGE_IN_DATA) return false;
    return failure(what);
  }

  Snapshot last_;
  std::time_t nodes_time_ = 0, partitions_time_ = 0, reservations_time_ = 0, jobs_time_ = 0;
  std::optional<std::chrono::steady_clock::time_point> settings_loaded_;
  bool forced_ = false;
  std::optional<std::chrono::steady_clock::time_point> limits_looked_at_;
  std::chrono::steady_clock::duration limits_kept_ = kAssociationsKeptLeast;
};

}  // namespace

Result<std::optional<std::vector<NodeRecord>>> load_nodes_since(std::time_t& last) {
  node_info_msg_t* message = nullptr;
  if (slurm_load_node(last, &message, SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS) {
    if (errno == SLURM_NO_CHANGE_IN_DATA) return std::optional<std::vector<NodeRecord>>{};
    return failure("slurm_load_node");
  }
  const LoadedNodes loaded(message);
  std::vector<NodeRecord> nodes;
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    if (message->node_array[i].name != nullptr) nodes.push_back(convert(message->node_array[i]));
  last = message->last_update;
  return std::optional<std::vector<NodeRecord>>(std::move(nodes));
}

std::unique_ptr<SlurmApi> make_live_slurm() { return std::make_unique<LiveSlurm>(); }

Result<ControllerConfig> load_controller_config() {
  slurm_conf_t* conf = nullptr;
  if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS) return failure("slurm_load_ctl_conf");
  const LoadedConf loaded(conf);
  ControllerConfig config;
  config.slurm_conf = text(conf->slurm_conf);
  const std::string name = short_host_name();
  for (std::uint32_t i = 0; i < conf->control_cnt; ++i) {
    if (conf->control_addr[i] == nullptr) continue;
    config.hosts.emplace_back(conf->control_addr[i]);
    const std::string machine = text(conf->control_machine[i]);
    if (config.own_host.empty() && machine.substr(0, machine.find('.')) == name)
      config.own_host = config.hosts.back();
  }
  if (config.own_host.empty() && !config.hosts.empty()) config.own_host = config.hosts.front();
  config.auth_type = text(conf->authtype);
  config.auth_info = text(conf->authinfo);
  config.state_save_location = text(conf->state_save_location);
  config.plugin_dir = text(conf->plugindir);
  config.scheduler_type = text(conf->schedtype);
  config.select_type = text(conf->select_type);
  config.job_submit_plugins = text(conf->job_submit_plugins);
  config.preempt_type = text(conf->preempt_type);
  config.slurmctld_parameters = text(conf->slurmctld_params);
  config.preempt_mode = conf->preempt_mode;
  // Older versions set it in SchedulerParameters.
  config.preempts_youngest_first =
      text(conf->sched_params).find("preempt_youngest_first") != std::string::npos ||
      text(preempt_parameters_of(*conf)).find("youngest_first") != std::string::npos;
  config.plugstack = text(conf->plugstack);
  config.accounting_storage_type = text(conf->accounting_storage_type);
  config.inactive_limit_s = conf->inactive_limit;
  config.requeues = conf->job_requeue != 0;
  config.version = text(conf->version);
  config.slurm_uid = conf->slurm_user_id;
  return config;
}

std::string munge_socket_of(const std::string& auth_info) {
  const std::size_t begin = auth_info.find("socket=");
  if (begin == std::string::npos) return {};
  const std::string rest = auth_info.substr(begin + 7);
  return rest.substr(0, rest.find(','));
}

std::string slurm_reason(int error) { return text(slurm_strerror(error)); }

}  // namespace swell::slurm
