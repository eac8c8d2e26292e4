// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/job_submit/companion_fields.h"

#include <cstdint>
#include <fmt/format.h>
#include <type_traits>

namespace swell::job_submit {

namespace {

/// Values that one member of a companion may have.
enum class May {
  be_compared,  ///< submission.cc reads it, and admission compares it with the offer
  differ,    ///< any value: it does not decide resources, place, time, cost or preemption, or Slurm
             ///< or Swell sets it
  be_zero,   ///< unset, or 0, which salloc writes if nothing was requested
  be_unset,  ///< unset, or NO_VAL, which salloc of 24.11 writes if the unset value is 0
  not_differ,  ///< only unset
};

/// Flags about the form of the request, not its content; salloc sets them by itself.
constexpr std::uint64_t kHarmlessFlags =
#ifdef JOB_NTASKS_SET
    JOB_NTASKS_SET |
#endif
#ifdef JOB_CPUS_SET
    JOB_CPUS_SET |
#endif
#ifdef JOB_MEM_SET
    JOB_MEM_SET |
#endif
#ifdef USE_DEFAULT_ACCT
    USE_DEFAULT_ACCT |
#endif
#ifdef USE_DEFAULT_PART
    USE_DEFAULT_PART |
#endif
#ifdef USE_DEFAULT_QOS
    USE_DEFAULT_QOS |
#endif
#ifdef USE_DEFAULT_WCKEY
    USE_DEFAULT_WCKEY |
#endif
    0;

/// Calls visit(name, allowed values, pointer to member) for each member that this version of Slurm
/// has.
template <typename Description, typename Visit>
void for_each_member(Visit visit) {
#define MEMBER(name, may) \
  if constexpr (requires(Description d) { d.name; }) visit(#name, May::may, &Description::name)
  MEMBER(account, be_compared);
  MEMBER(acctg_freq, differ);
  MEMBER(admin_comment, differ);
  MEMBER(alloc_node, differ);
  MEMBER(alloc_resp_port, differ);
  MEMBER(alloc_sid, differ);
  MEMBER(alloc_tls_cert, differ);
  MEMBER(argc, differ);
  MEMBER(argv, differ);
  MEMBER(array_inx, be_compared);
  MEMBER(array_bitmap, differ);
  MEMBER(batch_features, not_differ);
  MEMBER(begin_time, not_differ);
  MEMBER(bitflags, be_zero);
  MEMBER(burst_buffer, not_differ);
  MEMBER(clusters, not_differ);
  MEMBER(cluster_features, not_differ);
  MEMBER(comment, be_compared);
  MEMBER(contiguous, be_zero);
  MEMBER(container, not_differ);
  MEMBER(container_id, not_differ);
  MEMBER(container_type, not_differ);
  MEMBER(core_spec, not_differ);
  MEMBER(cpu_bind, differ);
  MEMBER(cpu_bind_type, differ);
  MEMBER(cpu_freq_min, not_differ);
  MEMBER(cpu_freq_max, not_differ);
  MEMBER(cpu_freq_gov, not_differ);
  MEMBER(cpus_per_tres, not_differ);
  MEMBER(crontab_entry, not_differ);
  MEMBER(deadline, not_differ);
  MEMBER(delay_boot, not_differ);
  MEMBER(dependency, not_differ);
  MEMBER(end_time, not_differ);
  MEMBER(environment, differ);
  MEMBER(env_hash, differ);
  MEMBER(env_size, differ);
  MEMBER(extra, not_differ);
  MEMBER(exc_nodes, not_differ);
  MEMBER(features, not_differ);
  MEMBER(fed_siblings_active, be_zero);
  MEMBER(fed_siblings_viable, be_zero);
  MEMBER(group_id, differ);
  MEMBER(het_job_offset, be_compared);
  MEMBER(id, differ);
  MEMBER(immediate, be_compared);
  MEMBER(job_id, not_differ);
  MEMBER(job_id_str, not_differ);
  MEMBER(job_size_str, not_differ);
  MEMBER(step_id, differ);
  MEMBER(kill_on_node_fail, differ);
  MEMBER(licenses, not_differ);
  MEMBER(licenses_tot, not_differ);
  MEMBER(mail_type, differ);
  MEMBER(mail_user, differ);
  MEMBER(mcs_label, not_differ);
  MEMBER(mem_bind, differ);
  MEMBER(mem_bind_type, differ);
  MEMBER(mem_per_tres, not_differ);
  MEMBER(mem_update_delay, be_unset);
  MEMBER(mem_update_margin, be_unset);
  MEMBER(name, be_compared);
  MEMBER(network, not_differ);
  MEMBER(nice, not_differ);
  MEMBER(num_tasks, be_compared);
  MEMBER(oom_kill_step, differ);
  MEMBER(open_mode, differ);
  MEMBER(origin_cluster, differ);
  MEMBER(other_port, differ);
  MEMBER(overcommit, be_zero);
  MEMBER(partition, be_compared);
  MEMBER(plane_size, not_differ);
  MEMBER(power_flags, be_zero);
  MEMBER(prefer, not_differ);
  MEMBER(priority, differ);
  MEMBER(profile, differ);
  MEMBER(qos, be_compared);
  MEMBER(reboot, be_zero);
  MEMBER(resp_host, differ);
  MEMBER(restart_cnt, be_zero);
  MEMBER(req_nodes, be_compared);
  MEMBER(requeue, differ);
  MEMBER(reservation, not_differ);
  MEMBER(resv_port_cnt, be_unset);
  MEMBER(script, be_compared);
  MEMBER(script_buf, not_differ);
  MEMBER(script_hash, differ);
  MEMBER(segment_size, be_zero);
  MEMBER(shared, not_differ);
  MEMBER(site_factor, not_differ);
  MEMBER(spank_job_env, differ);
  MEMBER(spank_job_env_size, differ);
  MEMBER(submit_line, differ);
  MEMBER(task_dist, not_differ);
  MEMBER(time_limit, be_compared);
  MEMBER(time_min, be_zero);
  MEMBER(tres_bind, not_differ);
  MEMBER(tres_freq, not_differ);
  MEMBER(tres_per_job, be_compared);
  MEMBER(tres_per_node, be_compared);
  MEMBER(tres_per_socket, be_compared);
  MEMBER(tres_per_task, be_compared);
  MEMBER(user_id, differ);
  MEMBER(wait_all_nodes, differ);
  MEMBER(warn_flags, differ);
  MEMBER(warn_signal, differ);
  MEMBER(warn_time, differ);
  MEMBER(work_dir, differ);
  MEMBER(cpus_per_task, be_compared);
  MEMBER(min_cpus, be_compared);
  MEMBER(max_cpus, be_zero);
  MEMBER(min_nodes, be_compared);
  MEMBER(max_nodes, be_compared);
  MEMBER(boards_per_node, be_zero);
  MEMBER(sockets_per_board, be_zero);
  MEMBER(sockets_per_node, be_zero);
  MEMBER(cores_per_socket, be_zero);
  MEMBER(threads_per_core, not_differ);
  MEMBER(ntasks_per_node, be_zero);
  MEMBER(ntasks_per_socket, be_zero);
  MEMBER(ntasks_per_core, be_zero);
  MEMBER(ntasks_per_board, be_zero);
  MEMBER(ntasks_per_tres, be_zero);
  MEMBER(pn_min_cpus, be_compared);
  MEMBER(pn_min_memory, be_compared);
  MEMBER(pn_min_tmp_disk, be_zero);
  MEMBER(req_context, not_differ);
  MEMBER(req_switch, be_zero);
  MEMBER(select_jobinfo, differ);
  MEMBER(selinux_context, not_differ);
  MEMBER(std_err, differ);
  MEMBER(std_in, differ);
  MEMBER(std_out, differ);
  MEMBER(tres_req_cnt, differ);
  MEMBER(wait4switch, not_differ);
  MEMBER(wckey, not_differ);
  MEMBER(x11, be_zero);
  MEMBER(x11_magic_cookie, differ);
  MEMBER(x11_target, differ);
  MEMBER(x11_target_port, differ);
#undef MEMBER
}

template <typename T>
bool is_untouched(const T& value, const T& initial, May may) {
  if constexpr (std::is_same_v<T, char*>) return value == nullptr || *value == '\0';
  else if constexpr (std::is_pointer_v<T>) return value == nullptr;
  else if constexpr (std::is_arithmetic_v<T>)
    return value == initial || (may == May::be_zero && value == 0) ||
           (may == May::be_unset && value == static_cast<T>(NO_VAL));
  else return true;
}

/// Returns the member's name, with its value if that is a number.
template <typename T>
std::string described(const char* name, const T& value) {
  if constexpr (std::is_arithmetic_v<T>) return fmt::format("{}={:#x}", name, value);
  else return name;
}

}  // namespace

std::string members_beyond_an_offer(const job_desc_msg_t& job) {
  job_desc_msg_t initial;
  slurm_init_job_desc_msg(&initial);
  job_desc_msg_t seen = job;
  seen.bitflags &= ~kHarmlessFlags;
  if (seen.task_dist == SLURM_DIST_UNKNOWN)
    seen.task_dist = initial.task_dist;  // salloc's way of not setting it
  std::string names;
  for_each_member<job_desc_msg_t>([&](const char* name, May may, auto member) {
    if (may == May::be_compared || may == May::differ ||
        is_untouched(seen.*member, initial.*member, may))
      return;
    names += (names.empty() ? "" : ", ") + described(name, seen.*member);
  });
  return names;
}

std::vector<KnownMember> known_members() {
  std::vector<KnownMember> members;
  const job_desc_msg_t job{};
  for_each_member<job_desc_msg_t>([&](const char* name, May, auto member) {
    const auto begin = static_cast<std::size_t>(reinterpret_cast<const char*>(&(job.*member)) -
                                                reinterpret_cast<const char*>(&job));
    members.push_back({name, begin, begin + sizeof(job.*member)});
  });
  return members;
}

}  // namespace swell::job_submit
