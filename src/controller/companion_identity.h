// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "controller/state_file.h"
#include "core/result.h"
#include "slurm/records.h"

namespace swell::controller {

/// Which job a companion is, as Swell itself knows it. A job id alone says nothing: agents may name
/// any, and slurmctld gives ids out again after a kill -9.
struct CompanionIdentity {
  control::JobId id = 0;
  control::JobId parent = 0;
  uid_t uid = 0;
  std::string grant;  ///< the nonce in its tag
};

/// Says who a companion is by Slurm's own record: by the tag, which job_submit/swell wrote. Nothing
/// where the record is no companion's. Arrays, heterogeneous jobs and batch jobs never are.
std::optional<CompanionIdentity> identity_in(const slurm::JobRecord& record);

/// Is the job of this record this very companion? The error says what speaks against it.
Result<void> check_identity(const slurm::JobRecord& record, const CompanionIdentity& companion);

/// Does the running companion hold no more than its grant says? The error names the first excess.
/// `whole_nodes`: its partition gives whole nodes out, so that its CPUs and memory are not what it
/// asked for.
Result<void> check_within_grant(const slurm::JobRecord& record, const IssuedGrant& grant,
                                bool whole_nodes);

}  // namespace swell::controller
