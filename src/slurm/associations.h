// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::slurm {

/// An account, or a user in an account, as far as its limits matter to jobs that run at once.
struct AssociationRecord {
  std::string account, user, partition;  ///< user empty: the account; partition empty: all
  std::int64_t uid = -1;                 ///< of `user`; -1: none
  std::string parent;                    ///< the account above; empty: none, or that of `user`
  bool limits_running = false;           ///< jobs or resources of its running jobs are limited
  std::optional<int> max_submitted;      ///< jobs that it may have, pending ones too
};

/// All associations where any has a limit; else, and without slurmdbd, none.
/// One RPC to slurmctld.
Result<std::vector<AssociationRecord>> load_associations();

}  // namespace swell::slurm
