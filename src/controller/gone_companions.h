// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <utility>

#include "control/messages.h"

namespace swell::controller {

/// Companions of one job that are gone, or that Slurm's records have not shown, of which its agent
/// may still say something, or has said it.
class GoneCompanions {
 public:
  using Unseen = std::map<std::string, control::Released>;

  /// Notes that a companion on the node was lost. Only the youngest are kept.
  void lose(control::JobId companion, const std::string& node) {
    lost_[companion] = node;
    if (lost_.size() > kMaxLostKept) lost_.erase(lost_.begin());
  }
  bool was_lost(control::JobId companion) const { return lost_.contains(companion); }
  /// Forgets a companion that was lost. Returns its node; empty: none of this id was lost of late.
  std::string take_lost(control::JobId companion) {
    const auto lost = lost_.extract(companion);
    return lost.empty() ? std::string() : lost.mapped();
  }
  /// Keeps an agent's message about a companion that Slurm's records have not shown, until Slurm
  /// has answered what became of it.
  void keep_unseen(const std::string& grant, const control::Released& released) {
    unseen_.emplace(grant, released);
  }
  /// Returns these messages, by grant.
  const Unseen& unseen() const noexcept { return unseen_; }
  /// REQUIRES: unseen() has some.
  void drop_first_unseen() { unseen_.erase(unseen_.begin()); }

 private:
  /// Lost companions of one job of which its agent may still say that they failed.
  static constexpr std::size_t kMaxLostKept = 16;

  std::map<control::JobId, std::string> lost_;  ///< and their nodes
  Unseen unseen_;
};

}  // namespace swell::controller
