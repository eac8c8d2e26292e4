// SPDX-License-Identifier: GPL-2.0-or-later
//
// With the real libslurm of the version that is built against: it and FreeLoaded together free
// every text that a record may have, once. A text that is added to this list and makes a test fail
// belongs into loaded.cc.
#include "slurm/loaded.h"

#include <criterion/criterion.h>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <string>
#include <unistd.h>

extern "C" char* slurm_xstrdup(const char* text);
extern "C" void* slurm_xcalloc(std::size_t count, std::size_t size, bool clear, bool may_fail,
                               const char* file, int line, const char* function);

using namespace swell;

namespace {

template <typename T>
T* allocated() {
  return static_cast<T*>(slurm_xcalloc(1, sizeof(T), true, false, "", 0, ""));
}

/// Longer than anything that libslurm allocates beside.
const std::string text(5000, 'x');

// Lists, which clang-format takes for statements.
// clang-format off
#define EACH(member) \
  if constexpr (requires { record.member; }) record.member = slurm_xstrdup(text.c_str());

void fill(auto& record, const job_info_t*) {
  EACH(account) EACH(admin_comment) EACH(array_task_str) EACH(batch_features) EACH(batch_host) EACH(burst_buffer)
  EACH(burst_buffer_state) EACH(cluster) EACH(cluster_features) EACH(command) EACH(comment) EACH(container)
  EACH(container_id) EACH(container_type) EACH(cpus_per_tres) EACH(cronspec) EACH(dependency) EACH(exc_nodes)
  EACH(extra) EACH(failed_node) EACH(features) EACH(fed_origin_str) EACH(fed_siblings_active_str)
  EACH(fed_siblings_viable_str) EACH(gres_total) EACH(het_job_id_set) EACH(job_size_str) EACH(licenses)
  EACH(licenses_allocated) EACH(mail_user) EACH(mcs_label) EACH(mem_per_tres) EACH(name) EACH(network) EACH(nodes)
  EACH(partition) EACH(prefer) EACH(priority_array_names) EACH(qos) EACH(req_nodes) EACH(resv_name) EACH(resv_ports)
  EACH(sched_nodes) EACH(selinux_context) EACH(state_desc) EACH(std_err) EACH(std_in) EACH(std_out) EACH(submit_line)
  EACH(system_comment) EACH(tres_alloc_str) EACH(tres_bind) EACH(tres_freq) EACH(tres_per_job) EACH(tres_per_node)
  EACH(tres_per_socket) EACH(tres_per_task) EACH(tres_req_str) EACH(user_name) EACH(wckey) EACH(work_dir)
}

void fill(auto& record, const node_info_t*) {
  EACH(alloc_tres_fmt_str) EACH(arch) EACH(bcast_address) EACH(cluster_name) EACH(comment) EACH(cpu_spec_list)
  EACH(extra) EACH(features) EACH(features_act) EACH(gpu_spec) EACH(gres) EACH(gres_drain) EACH(gres_used)
  EACH(instance_id) EACH(instance_type) EACH(mcs_label) EACH(name) EACH(node_addr) EACH(node_hostname) EACH(os)
  EACH(parameters) EACH(partitions) EACH(reason) EACH(resv_name) EACH(topology_str) EACH(tres_fmt_str) EACH(version)
}

void fill(auto& record, const partition_info_t*) {
  EACH(allow_accounts) EACH(allow_alloc_nodes) EACH(allow_groups) EACH(allow_qos) EACH(alternate)
  EACH(billing_weights_str) EACH(cluster_name) EACH(deny_accounts) EACH(deny_qos) EACH(job_defaults_str) EACH(name)
  EACH(nodes) EACH(nodesets) EACH(qos_char) EACH(topology_name)
}

#undef EACH
// clang-format on

/// Bytes of `count` answers of one full record that are still allocated after they were freed.
template <typename Message, typename Record>
long left_over(Record* Message::*array, int count) {
  const auto load_and_free = [&] {
    std::unique_ptr<Message, slurm::FreeLoaded> message(allocated<Message>());
    message.get()->*array = allocated<Record>();
    message->record_count = 1;
    fill(*(message.get()->*array), static_cast<const Record*>(nullptr));
  };
  load_and_free();  // libslurm's and the allocator's own beginnings
  const auto before = mallinfo2().uordblks;
  for (int i = 0; i < count; ++i) load_and_free();
  return static_cast<long>(mallinfo2().uordblks) - static_cast<long>(before);
}

/// libslurm frees records with plugins, which take a slurm.conf. In its own folder, gone at the
/// end.
struct Conf {
  std::string folder =
      std::filesystem::temp_directory_path() / ("swell-loaded-" + std::to_string(getpid()));
  Conf() {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/slurm.conf")
        << "ClusterName=none\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n"
           "AuthType=auth/munge\nSelectType=select/cons_tres\n";
    std::ofstream(folder + "/cgroup.conf");
    setenv("SLURM_CONF", (folder + "/slurm.conf").c_str(), 1);
  }
  ~Conf() { std::filesystem::remove_all(folder); }
};

}  // namespace

Test(loaded, frees_all_of_jobs) {
  const Conf conf;
  cr_assert_lt(left_over(&job_info_msg_t::job_array, 20), 5000);
}

Test(loaded, frees_all_of_nodes) {
  const Conf conf;
  cr_assert_lt(left_over(&node_info_msg_t::node_array, 20), 5000);
}

Test(loaded, frees_all_of_partitions) {
  const Conf conf;
  cr_assert_lt(left_over(&partition_info_msg_t::partition_array, 20), 5000);
}
