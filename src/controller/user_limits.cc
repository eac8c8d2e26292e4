// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/user_limits.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <set>
#include <tuple>

#include "base/lower.h"
#include "controller/companion_identity.h"

namespace swell::controller {

namespace {

/// Time for Slurm to start the pending job after lent GPUs are back.
constexpr double kLimitSettles_s = 10;
/// After this wait without lent GPUs in its limit, a job must be waiting for its user's own jobs.
constexpr double kLimitTrial_s = 60;
/// Keeps one in so many of a limit of submitted jobs free, at least one.
constexpr int kFreeShare = 4;
/// Waiting jobs that are looked at in one round, in order of their ids.
constexpr std::size_t kMaxWaiters = 200;

/// Accounts and users by name, each with the accounts above it.
class Tree {
 public:
  using Node = std::size_t;

  explicit Tree(const std::vector<slurm::AssociationRecord>& associations)
      : associations_(associations) {
    for (Node node = 0; node < associations.size(); ++node) {
      const slurm::AssociationRecord& each = associations[node];
      nodes_[{lower(each.account), each.uid, each.partition}] = node;
    }
  }

  /// The associations that count a job of this user, from his own upwards.
  const std::vector<Node>& above(const slurm::JobRecord& record) {
    const auto [known, is_new] =
        chains_.try_emplace({record.account, std::int64_t{record.uid}, record.partition});
    if (!is_new) return known->second;
    std::string account = lower(record.account);
    auto found = nodes_.find({account, std::int64_t{record.uid}, record.partition});
    if (found == nodes_.end()) found = nodes_.find({account, std::int64_t{record.uid}, ""});
    if (found != nodes_.end()) known->second.push_back(found->second);
    while (known->second.size() < associations_.size()) {
      found = nodes_.find({account, std::int64_t{-1}, ""});
      if (found == nodes_.end()) break;
      known->second.push_back(found->second);
      account = lower(associations_[found->second].parent);
    }
    return known->second;
  }

  const slurm::AssociationRecord& at(Node node) const { return associations_[node]; }

 private:
  using Key = std::tuple<std::string, std::int64_t, std::string>;
  const std::vector<slurm::AssociationRecord>& associations_;
  std::map<Key, Node> nodes_;
  std::map<Key, std::vector<Node>> chains_;
};

std::string words(const slurm::AssociationRecord& association) {
  return association.user.empty()
             ? "account " + association.account
             : fmt::format("user {} in account {}", association.user, association.account);
}

int gpus_of(const slurm::JobRecord& record) {
  return std::max(record.gpus_in_all.count, record.gpus_per_node.count * record.min_nodes);
}

}  // namespace

std::vector<UserLimits::Reclaim> UserLimits::look(const slurm::Snapshot& snapshot, JobTable& jobs,
                                                  const std::vector<LiveGrant>& outstanding,
                                                  double now) {
  for (auto& [id, job] : jobs) { job.limits.lift_users(); }
  std::vector<Reclaim> reclaims;
  static const std::vector<slurm::AssociationRecord> kNone;
  const auto& associations = snapshot.associations ? *snapshot.associations : kNone;
  Tree tree(associations);
  std::set<std::string> limited_partitions;  // whose QOS counts companions too
  for (const slurm::PartitionRecord& each : snapshot.partitions)
    if (!each.qos.empty()) limited_partitions.insert(each.name);
  if (jobs.empty() || (associations.empty() && limited_partitions.empty())) {
    waiters_.clear();
    return reclaims;
  }

  std::map<JobId, const slurm::JobRecord*> elastic;
  std::vector<const slurm::JobRecord*> waiting, running;
  std::vector<int> submitted(associations.size());
  for (const slurm::JobRecord& record : snapshot.jobs) {
    if (record.phase == slurm::JobPhase::ended) continue;
    const int tasks = record.phase == slurm::JobPhase::pending ? record.pending_tasks : 1;
    if (!associations.empty())
      for (const Tree::Node node : tree.above(record)) submitted[node] += tasks;
    if (jobs.contains(record.id)) elastic[record.id] = &record;
    if (record.phase != slurm::JobPhase::pending) {
      if (!identity_in(record)) running.push_back(&record);
    } else if ((record.waiting == slurm::Waiting::for_association ||
                record.waiting == slurm::Waiting::for_qos) &&
               waiting.size() < kMaxWaiters) {
      waiting.push_back(&record);
    }
  }

  // Returns in words the limit that counts both together; empty: there is none.
  const auto shared = [&](const slurm::JobRecord& waiter,
                          const slurm::JobRecord& other) -> std::string {
    if (waiter.waiting == slurm::Waiting::for_qos)
      return waiter.partition == other.partition && limited_partitions.contains(other.partition)
                 ? "the QOS of partition " + other.partition
                 : "";
    const std::vector<Tree::Node>& its = tree.above(other);
    for (const Tree::Node node : tree.above(waiter))
      if (tree.at(node).limits_running && std::find(its.begin(), its.end(), node) != its.end())
        return words(tree.at(node));
    return {};
  };

  std::map<JobId, Waiter> still;
  for (const slurm::JobRecord* record : waiting) {
    Waiter& waiter = still[record->id] = waiters_[record->id];
    int staying = 0, leaving = 0, others = 0;
    std::vector<std::pair<const Companion*, Reclaim>> lent;
    for (const auto& [id, job_record] : elastic) {
      const std::string limit = shared(*record, *job_record);
      if (limit.empty()) continue;
      for (const Companion& companion : jobs.at(id).companions) {
        ++(companion.is_leaving() ? leaving : staying);
        if (!companion.is_leaving())
          lent.push_back({&companion,
                          {id, companion.id,
                           fmt::format("job {} waits for a limit of {}", record->id, limit)}});
      }
    }
    for (const slurm::JobRecord* other : running) others += !shared(*record, *other).empty();
    if (waiter.hopeless_with >= 0 && others < waiter.hopeless_with) waiter = {};
    if (staying + leaving > 0) waiter.bare_since = 0;
    else if (waiter.bare_since == 0) waiter.bare_since = now;
    if (waiter.hopeless_with < 0 && waiter.bare_since > 0 &&
        now - waiter.bare_since >= kLimitTrial_s)
      waiter.hopeless_with = others;
    if (waiter.hopeless_with >= 0) continue;
    for (const auto& [id, job_record] : elastic)
      if (const std::string limit = shared(*record, *job_record); !limit.empty())
        jobs.at(id).limits.hold_back(
            fmt::format("job {} waits for a limit of {}, which lent GPUs count "
                        "for too",
                        record->id, limit));
    if (leaving > 0) waiter.next = now + kLimitSettles_s;
    if (now < waiter.next) continue;
    // The youngest first, until there is as much as the job asks for.
    std::sort(lent.begin(), lent.end(),
              [](const auto& a, const auto& b) { return a.first->id > b.first->id; });
    int gpus = 0;
    for (const auto& [companion, reclaim] : lent) {
      if (gpus > 0 && gpus >= gpus_of(*record)) break;
      gpus += companion->gpus.count;
      reclaims.push_back(reclaim);
    }
    if (gpus > 0) waiter.next = now + kLimitSettles_s;
  }
  waiters_ = std::move(still);

  // The offers that stand become jobs, too.
  for (const LiveGrant& grant : outstanding)
    if (const auto parent = elastic.find(grant.parent);
        parent != elastic.end() && !jobs.at(grant.parent).companions.has_grant(grant.offer.nonce))
      for (const Tree::Node node : tree.above(*parent->second)) ++submitted[node];
  for (const auto& [id, record] : elastic) {
    ElasticJob& job = jobs.at(id);
    for (const Tree::Node node : tree.above(*record)) {
      const auto max = tree.at(node).max_submitted;
      if (!max) continue;
      const int free = std::max((*max + kFreeShare - 1) / kFreeShare, 1);
      int slots = *max - free - submitted[node];
      if (slots <= 0 && job.limits.held_back().empty())
        job.limits.hold_back(fmt::format("{} of {} submitted jobs stay free for {}", free, *max,
                                         words(tree.at(node))));
      job.limits.allow(std::max(slots, 0));
      // Leaving ones are as good as gone.
      for (const Companion& companion : job.companions) slots += companion.is_leaving() ? 1 : 0;
      for (const Companion& companion : job.companions) {
        if (slots >= 0 || companion.is_leaving()) continue;
        const bool is_known =
            std::any_of(reclaims.begin(), reclaims.end(),
                        [&](const Reclaim& each) { return each.companion == companion.id; });
        if (!is_known)
          reclaims.push_back({id, companion.id,
                              fmt::format("{} of {} submitted jobs stay free for {}", free, *max,
                                          words(tree.at(node)))});
        ++slots;
        --submitted[node];
      }
    }
  }
  return reclaims;
}

}  // namespace swell::controller
