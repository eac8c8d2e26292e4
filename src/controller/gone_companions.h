// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <utility>

#include "control/messages.h"

namespace swell::controller {

/// Companions of one job of which the agent's reports arrive when Slurm's records do not show them:
/// lost ones, whose failure the agent may still report, and those that the records have not shown
/// yet.
class GoneCompanions {
 public:
  using Unseen = std::map<std::string, control::Released>;

  /// Notes that a companion on the node was lost. Keeps only the kMaxLostKept highest job ids.
  void lose(control::JobId companion, const std::string& node) {
    lost_[companion] = node;
    if (lost_.size() > kMaxLostKept) lost_.erase(lost_.begin());
  }
  bool was_lost(control::JobId companion) const { return lost_.contains(companion); }
  /// Forgets a companion that was lost. Returns its node, or an empty string if no such loss is
  /// noted.
  std::string take_lost(control::JobId companion) {
    const auto lost = lost_.extract(companion);
    return lost.empty() ? std::string() : lost.mapped();
  }
  /// Keeps an agent's message about a companion that Slurm's records have not shown, until Slurm
  /// has answered a query about that companion.
  void keep_unseen(const std::string& grant, const control::Released& released) {
    unseen_.emplace(grant, released);
  }
  /// Returns the messages that keep_unseen() keeps, by grant.
  const Unseen& unseen() const noexcept { return unseen_; }
  /// REQUIRES: unseen() is not empty.
  void drop_first_unseen() { unseen_.erase(unseen_.begin()); }

 private:
  /// Maximum number of lost companions that are noted.
  static constexpr std::size_t kMaxLostKept = 16;

  std::map<control::JobId, std::string> lost_;  ///< nodes of lost companions
  Unseen unseen_;
};

}  // namespace swell::controller
