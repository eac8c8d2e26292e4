// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/associations.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>

#include <slurm/slurm.h>
#include <slurm/slurmdb.h>

#include "slurm/live_slurm.h"

namespace swell::slurm {

namespace {

std::string text(const char* value) { return value != nullptr ? value : ""; }

std::optional<int> count(std::uint32_t value) {
  if (value == NO_VAL || value == INFINITE) return std::nullopt;
  return static_cast<int>(std::min<std::uint32_t>(value, 1'000'000'000));
}

AssociationRecord convert(const slurmdb_assoc_rec_t& record) {
  AssociationRecord association;
  association.account = text(record.acct);
  association.user = text(record.user);
  if (!association.user.empty() && record.uid != NO_VAL) association.uid = record.uid;
  association.partition = text(record.partition);
  association.parent = text(record.parent_acct);
  const auto is_set = [](const char* tres) { return tres != nullptr && *tres != '\0'; };
  association.limits_running = count(record.grp_jobs) || is_set(record.grp_tres) ||
                               is_set(record.grp_tres_mins) || is_set(record.grp_tres_run_mins) ||
                               (is_set(record.user) && count(record.max_jobs));
  association.max_submitted = count(record.grp_submit_jobs);
  if (const auto own = count(record.max_submit_jobs); own && is_set(record.user))
    association.max_submitted = std::min(*own, association.max_submitted.value_or(*own));
  return association;
}

}  // namespace

Result<std::vector<AssociationRecord>> load_associations() {
  assoc_mgr_info_request_msg_t request{};
  request.flags = ASSOC_MGR_INFO_FLAG_ASSOC;
  assoc_mgr_info_msg_t* message = nullptr;
  if (slurm_load_assoc_mgr_info(&request, &message) != SLURM_SUCCESS)
    return Error(fmt::format("slurm_load_assoc_mgr_info: {}", slurm_reason(errno)));
  std::vector<AssociationRecord> associations;
  bool limits = false;
  if (message->assoc_list != nullptr) {
    auto* each = slurm_list_iterator_create(message->assoc_list);
    while (const auto* record = static_cast<slurmdb_assoc_rec_t*>(slurm_list_next(each))) {
      associations.push_back(convert(*record));
      limits = limits || associations.back().limits_running || associations.back().max_submitted;
    }
    slurm_list_iterator_destroy(each);
  }
  slurm_free_assoc_mgr_info_msg(message);
  if (!limits) associations.clear();
  return associations;
}

}  // namespace swell::slurm
