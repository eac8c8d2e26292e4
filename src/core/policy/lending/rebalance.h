// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "core/policy/lending/expansions.h"
#include "core/policy/lending/worth.h"

namespace swell::policy {

/// Maximum number of GPUs that one search for an offer considers, since planning time grows with
/// their square; the next search goes on from there.
inline constexpr int kStep = 64;

/// Moves companions from jobs that gain little by them to jobs that gain clearly more: a part of
/// one decision of Swell. Keeps references to its arguments, which must outlive it.
class Rebalance {
 public:
  /// `effort`: of the whole decision. `loss`: loss of a companion's job for each of its GPUs, in
  /// the unit of Worth::gain().
  Rebalance(const ClusterView& view, const Swell::Options& options, const Belief& belief,
            const Worth& worth, const ScaleTables& tables, Effort& effort,
            PlacementState& placement, const PlacementState::Loss& loss) noexcept
      : view_(view),
        options_(options),
        belief_(belief),
        worth_(worth),
        tables_(tables),
        effort_(effort),
        placement_(placement),
        loss_(loss) {}

  /// Reclaims in the placement state what should go to other jobs. REQUIRES:
  /// PlacementState::serve_queue() has run, PlacementState::close() has not.
  void run();

 private:
  using Companions = std::vector<std::pair<const ElasticJobView*, const CompanionView*>>;

  /// A job for which others may lose companions: it may get `max` GPUs that are `worth` each.
  struct Taker {
    const ElasticJobView* job = nullptr;
    double worth = 0;
    double owed_since = kNever;
    int max = 0;
  };

  /// A companion whose GPUs another job may be lent. `loss`: of its job, for each GPU.
  struct Lent {
    const ElasticJobView* job = nullptr;
    const CompanionView* companion = nullptr;
    double loss = 0;
  };

  int returning() const;
  std::vector<Lent> lent_companions() const;
  std::vector<Taker> takers() const;
  Companions companions_below(double worth, const ElasticJobView& taker,
                              const std::vector<Lent>& lent, const std::set<JobId>& shrunk) const;
  Companions best_for(const Taker& to, const Companions& pool) const;
  double lost_with(const Companions& given) const;
  double pauses(const ElasticJobView& taker, double factor, const Expansion& offer,
                const Companions& given) const;
  static Companions touched_by(const Expansion& offer, const Companions& pool);

  const ClusterView& view_;
  const Swell::Options& options_;
  const Belief& belief_;
  const Worth& worth_;
  const ScaleTables& tables_;
  Effort& effort_;
  PlacementState& placement_;
  const PlacementState::Loss& loss_;
};

}  // namespace swell::policy
