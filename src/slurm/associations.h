// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::slurm {

/// An account, or a user in an account, with its limits on the jobs that run at the same time.
struct AssociationRecord {
  std::string account, user, partition;  ///< user empty: the account itself; partition empty: all
  std::int64_t uid = -1;                 ///< uid of `user`; -1: none
  std::string parent;                    ///< the account above, or that of `user`; empty: none
  bool limits_running = false;       ///< the number, resources or minutes of its jobs are limited
  std::optional<int> max_submitted;  ///< maximum number of its jobs, including pending ones
};

/// Loads all associations if any has a limit; otherwise, and without slurmdbd, returns none. One
/// RPC to slurmctld.
Result<std::vector<AssociationRecord>> load_associations();

}  // namespace swell::slurm
