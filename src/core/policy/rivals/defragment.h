// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/lending/placement_state.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// De-fragmentation (Suika 3.2.3), for the first pending job of a decision that fits nowhere:
/// clears nodes for it by moving jobs that are on one node to other nodes. A job that has
/// companions, or whose new place is lent, is moved by a later decision, once these are reclaimed.
/// Changes nothing if that makes no room.
class Defragmenter final : public LastResort {
 public:
  void make_room(PlacementState& state, const PendingDemand& demand,
                 PlacementState::Nodes nodes) override;
  std::vector<Migration> take_migrations() noexcept { return std::move(migrations_); }

 private:
  struct Tenant;
  static std::vector<Tenant> tenants_in_the_way(const PlacementState& state, NodeIndex node,
                                                const Resources& needed);

  bool done_ = false;
  std::vector<Migration> migrations_;
};

}  // namespace swell::policy
