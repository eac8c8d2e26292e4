// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/loaded.h"

#include "slurm/versions.h"

// Frees an xmalloc() block and sets the pointer to null. libslurm and slurmctld of every version
// export it, but no public header declares it.
extern "C" void slurm_xfree(void** text);

namespace swell::slurm {

namespace {

void free_text(char*& text) noexcept {
  void* allocated = text;
  if (allocated != nullptr) slurm_xfree(&allocated);
  text = nullptr;
}

/// Frees the member if this version's record has it.
#define SWELL_FREE_TEXT(record, member) \
  if constexpr (requires { (record).member; }) free_text((record).member)

// Members that the free functions of each version forget, as tests/unit/slurm/loaded_test.cc finds
// them with that version's libslurm:
//   22.05  job admin_comment cluster_features cronspec prefer system_comment;
//          node bcast_address comment extra;
//          partition nodesets
//   24.11  job resv_ports
//   26.05  node parameters
template <typename Job>
void free_forgotten_of_job(Job& job) noexcept {
  SWELL_FREE_TEXT(job, admin_comment);
  SWELL_FREE_TEXT(job, cluster_features);
  SWELL_FREE_TEXT(job, cronspec);
  SWELL_FREE_TEXT(job, prefer);
  SWELL_FREE_TEXT(job, resv_ports);
  SWELL_FREE_TEXT(job, system_comment);
}

template <typename Node>
void free_forgotten_of_node(Node& node) noexcept {
  SWELL_FREE_TEXT(node, bcast_address);
  SWELL_FREE_TEXT(node, comment);
  SWELL_FREE_TEXT(node, extra);
  SWELL_FREE_TEXT(node, parameters);
}

template <typename Partition>
void free_forgotten_of_partition(Partition& partition) noexcept {
  SWELL_FREE_TEXT(partition, nodesets);
}

#undef SWELL_FREE_TEXT

}  // namespace

void FreeLoaded::operator()(job_info_msg_t* message) const noexcept {
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    free_forgotten_of_job(message->job_array[i]);
  slurm_free_job_info_msg(message);
}

void FreeLoaded::operator()(node_info_msg_t* message) const noexcept {
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    free_forgotten_of_node(message->node_array[i]);
  slurm_free_node_info_msg(message);
}

void FreeLoaded::operator()(partition_info_msg_t* message) const noexcept {
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    free_forgotten_of_partition(message->partition_array[i]);
  slurm_free_partition_info_msg(message);
}

void FreeLoaded::operator()(reserve_info_msg_t* message) const noexcept {
  slurm_free_reservation_info_msg(message);
}

void FreeLoaded::operator()(slurm_conf_t* conf) const noexcept { free_conf(conf); }

}  // namespace swell::slurm
