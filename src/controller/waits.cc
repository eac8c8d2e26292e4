// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/waits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "controller/companion_time.h"
#include "controller/constraint.h"
#include "controller/growth_facts.h"
#include "controller/partition_limits.h"
#include "controller/quotas.h"
#include "core/count_of.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/lending/fewest_first.h"
#include "core/policy/lending/placement_state.h"
#include "core/policy/lending/sizes.h"
#include "core/policy/registry.h"

namespace swell::controller {

namespace {

using policy::Resources;

/// A time left, in whole seconds that are never too few.
std::string seconds(double left) { return fmt::format("{:.0f} s", std::ceil(std::max(left, 0.0))); }

std::string by_trust(const ElasticJob& job, double now) {
  const std::string left = seconds(job.trust.until() - now);
  return job.trust.is_barred(now)
             ? fmt::format("{}; it is lent none for {} more", job.trust.why(), left)
             : fmt::format("{}; unless it reports better within {}, they go back", job.trust.why(),
                           left);
}

std::string by_back_off(const ElasticJob& job, double now) {
  const std::string left = seconds(job.offers.times().grows_after - now);
  // The count of failures is cleared once training has used lent GPUs; until then a companion
  // that is not used yet shows that the last offer was taken up.
  const bool is_taken_up = std::any_of(
      job.companions.begin(), job.companions.end(),
      [](const Companion& companion) { return !companion.is_leaving() && !companion.used; });
  const std::string& kind = job.offers.refused().kind;
  if (job.offers.failures() > 0 && !is_taken_up)
    return fmt::format("its last offer failed{}; the next comes in {} at the earliest",
                       kind.empty() ? "" : fmt::format(" ({})", kind), left);
  return fmt::format(
      "it was changed a short while ago, and is not grown for {} more (GrowthInterval)", left);
}

std::string by_profile_wait(const ElasticJob& job, const Config& config, double now) {
  const std::int64_t steps = job.agent_words.steps_here();
  const std::string measured =
      steps < policy::kProfileSteps
          ? fmt::format(
                "its first {} steps are measured before it is lent GPUs, and it has made {}",
                policy::kProfileSteps,
                steps == 0 ? std::string("none yet") : fmt::format("{} of them", steps))
          : fmt::format("it has made its first {} steps, and may still report how fast they were",
                        policy::kProfileSteps);
  return fmt::format(
      "{}; Swell waits for {} more at most (ProfileWait)", measured,
      seconds(policy::profile_wait_left(now - job.agent.since(), steps, config.profile_wait_s)));
}

/// Returns the sentence of a hold, for the job's owner. REQUIRES: not `none`.
std::string sentence(policy::GrowthHold hold, const policy::GrowthFacts& facts,
                     const ElasticJob& job, const Waiting& waiting) {
  using policy::GrowthHold;
  const double now = facts.now_s;
  switch (hold) {
    case GrowthHold::paused: return "its owner has paused it";
    case GrowthHold::no_agent: return "its swellrun is not connected";
    case GrowthHold::refuses: return job.agent_words.last().no_growth;
    case GrowthHold::not_running: return "Slurm does not run it just now";
    case GrowthHold::preempted: return "Slurm preempts it, and ends it soon";
    case GrowthHold::ends_soon:
      return fmt::format("its time limit leaves {}, below LeastRemaining ({:.0f} s)",
                         seconds(facts.left_s), facts.least_left_s);
    case GrowthHold::falls_short: return by_trust(job, now);
    case GrowthHold::at_its_limit: return job.limits.held_back();
    case GrowthHold::profile_refused: return "its profile is not used: " + job.reports.refused();
    case GrowthHold::profile_needed:
      return "no profile of its program is known (LendWithoutProfile=no)";
    case GrowthHold::profile_awaited: return by_profile_wait(job, waiting.config, now);
    case GrowthHold::stays:
      return fmt::format("it stays as it is for {} more (stay={})",
                         seconds(job.offers.times().stays_until - now), job.spec.stay_s);
    case GrowthHold::backs_off: return by_back_off(job, now);
    case GrowthHold::changing:
      return fmt::format("it is {} just now", to_text(job.agent_words.last().state));
    case GrowthHold::none: break;
  }
  return {};
}

/// A constraint that Swell does not understand: then it does not know where the job may run.
std::string by_constraint(const slurm::JobRecord& record) {
  if (record.features.empty()) return {};
  const Result<Constraint> constraint = Constraint::parse(record.features.get());
  return constraint ? std::string() : constraint.error().message() + "; it is lent nothing";
}

/// The limit that it has reached.
std::string by_limit(const ElasticJob& job, const policy::ElasticJobView& seen,
                     const Waiting& waiting) {
  const int has = job.kept_gpus();
  if (job.limits.max_gpus() > 0 && has >= job.limits.max_gpus())
    return fmt::format("its owner wants at most {} (swell max)",
                       count_of(job.limits.max_gpus(), "GPU"));
  if (const int max = waiting.config.max_gpus_per_job; max > 0 && has >= max)
    return fmt::format("no job has more than {} here (MaxGPUsPerJob)", count_of(max, "GPU"));
  const bool planned = policy::Expansions::can_plan(seen, waiting.view);
  if (const int max = job.spec.max_total(job.asked_gpus(), planned); has >= max)
    return job.spec.has_max()
               ? fmt::format("it has all {} that --elastic lets it have", count_of(max, "GPU"))
               : fmt::format(
                     "it has {}: without a profile a job gets {:g} times what it asks for, where --elastic has no max=",
                     count_of(max, "GPU"), policy::kUnplannedFactor);
  if (std::string full = Quotas(waiting.config, waiting.snapshot, waiting.jobs, waiting.outstanding)
                             .why_full(job.id);
      !full.empty())
    return full;
  if (policy::next_size(seen, has) == 0)
    return fmt::format("it may have {} in all, and its next size is larger",
                       count_of(seen.max_gpus, "GPU"));
  return {};
}

/// Returns a reason that passes in a while, without anybody doing anything.
std::string by_time(policy::GrowthHold hold, const policy::GrowthFacts& facts,
                    const ElasticJob& job, const Waiting& waiting) {
  int offered = 0;
  for (const LiveGrant& grant : waiting.outstanding)
    if (grant.parent == job.id && !job.companions.has_grant(grant.offer.nonce))
      offered += grant.offer.gpus;
  if (offered > 0)
    return fmt::format("it is offered {}, which its swellrun is just taking up",
                       count_of(offered, "GPU"));
  if (hold != policy::GrowthHold::none) return sentence(hold, facts, job, waiting);
  for (const Companion& companion : job.companions)
    if (companion.is_leaving()) return "the lent GPUs that go back are not back yet";
  return {};
}

std::string and_others(std::size_t nodes) {
  return nodes > 1 ? fmt::format(" and {} more nodes", nodes - 1) : "";
}

/// Nodes of several GPU types, on which the job could use idle GPUs.
std::string on_mixed_nodes(const slurm::JobRecord& record, const policy::ElasticJobView& seen,
                           const Waiting& waiting) {
  const auto partition = std::find_if(
      waiting.snapshot.partitions.begin(), waiting.snapshot.partitions.end(),
      [&](const slurm::PartitionRecord& each) { return each.name == record.partition; });
  if (partition == waiting.snapshot.partitions.end()) return {};
  const std::set<std::string_view> nodes(partition->nodes.begin(), partition->nodes.end());
  std::map<std::string_view, std::map<std::string_view, int>> idle;  // by node and type
  for (const slurm::NodeRecord& node : waiting.snapshot.nodes)
    if (node.usable && node.gpus.size() > 1 && nodes.contains(node.name))
      for (const slurm::GpuRequest& gpus : node.gpus)
        if (seen.gpu_types.empty() || std::find(seen.gpu_types.begin(), seen.gpu_types.end(),
                                                gpus.type) != seen.gpu_types.end())
          idle[node.name][gpus.type] += gpus.count;
  if (idle.empty()) return {};
  for (const slurm::JobRecord& job : waiting.snapshot.jobs)
    for (const slurm::GpuAllocation& held : job.gpus)
      if (const auto node = idle.find(held.node); node != idle.end())
        if (const auto type = node->second.find(held.gpus.type); type != node->second.end())
          type->second -= held.gpus.count;
  std::erase_if(idle, [](const auto& node) {
    return std::none_of(node.second.begin(), node.second.end(),
                        [](const auto& type) { return type.second > 0; });
  });
  if (idle.empty()) return {};
  return fmt::format("{}{} {} several GPU types: none of {} is lent", idle.begin()->first,
                     and_others(idle.size()), idle.size() > 1 ? "have" : "has",
                     idle.size() > 1 ? "them" : "it");
}

/// Idle nodes where a companion would have to end too soon.
std::string where_it_ends_soon(const ElasticJob& job, const slurm::JobRecord& record,
                               const policy::ElasticJobView& seen, const Waiting& waiting) {
  const std::time_t now = waiting.snapshot.taken;
  const double least_s = least_time_s(waiting.config, job);
  std::string first, limit;
  std::size_t nodes = 0;
  for (const policy::NodeIndex index :
       waiting.view.partitions[static_cast<std::size_t>(seen.partition)]) {
    const policy::NodeView& node = waiting.view.nodes[static_cast<std::size_t>(index)];
    if (node.free.gpus < 1 || !seen.excluded_nodes.contains(index)) continue;
    const CompanionEnd end =
        end_of_companion(waiting.snapshot, record, waiting.config, node.name, now);
    const auto left = static_cast<double>(end.at - now);
    if (end.why.empty() || left >= least_s) continue;
    if (nodes++ > 0) continue;
    first = node.name;
    limit = fmt::format("{} leaves {}", end.why, seconds(left));
  }
  if (nodes == 0) return {};
  return fmt::format(
      "nothing is lent on {}{}: {}, and at least {} are needed (LeastRemaining, and the job's grace)",
      first, and_others(nodes), limit, seconds(least_s));
}

/// Returns a sentence about nodes with idle GPUs on which a limit of the partition lets no
/// companion run; empty: there are none.
std::string where_limits_forbid(const slurm::JobRecord& record, const policy::ElasticJobView& seen,
                                const Waiting& waiting) {
  LimitsByPartition by_partition(waiting.snapshot, waiting.jobs, waiting.outstanding);
  const PartitionLimits& limits = by_partition.of(companion_partition(record, waiting.config));
  if (!limits.any()) return {};
  std::string first, limit;
  std::size_t nodes = 0;
  for (const policy::NodeIndex index :
       waiting.view.partitions[static_cast<std::size_t>(seen.partition)]) {
    const policy::NodeView& node = waiting.view.nodes[static_cast<std::size_t>(index)];
    if (node.free.gpus < 1) continue;
    std::string why = limits.why_none_on(node.name, seen.per_worker);
    if (why.empty() || nodes++ > 0) continue;
    first = node.name;
    limit = std::move(why);
  }
  if (nodes == 0) return {};
  return fmt::format("idle GPUs on {}{} cannot be lent to it: {}", first, and_others(nodes), limit);
}

/// Returns a sentence about nodes with idle GPUs on which Slurm runs no companion of the job
/// because jobs of other users run there; empty: there are none.
std::string where_it_may_not_share(const policy::ElasticJobView& seen, const Waiting& waiting) {
  std::string first;
  std::size_t nodes = 0;
  for (const policy::NodeIndex index :
       waiting.view.partitions[static_cast<std::size_t>(seen.partition)]) {
    const policy::NodeView& node = waiting.view.nodes[static_cast<std::size_t>(index)];
    if (node.free.gpus < 1 || !seen.closed_nodes.contains(index)) continue;
    if (nodes++ == 0) first = node.name;
  }
  if (nodes == 0) return {};
  return fmt::format(
      "idle GPUs on {}{} cannot be lent to it: jobs of others run there, and they or it may not share a node (ExclusiveUser, --exclusive=user, or MCS labels)",
      first, and_others(nodes));
}

/// Nodes with idle GPUs on which companions have failed.
std::string where_companions_failed(const ElasticJob& job, const policy::ElasticJobView& seen,
                                    const Waiting& waiting) {
  if (waiting.health == nullptr) return {};
  const std::time_t now = waiting.snapshot.taken;
  std::string first;
  std::time_t until = 0;
  std::size_t nodes = 0;
  for (const policy::NodeIndex index :
       waiting.view.partitions[static_cast<std::size_t>(seen.partition)]) {
    const policy::NodeView& node = waiting.view.nodes[static_cast<std::size_t>(index)];
    const std::time_t its = waiting.health->withheld_until(node.name, job.uid, now);
    if (its == 0 || node.free.gpus < 1 || nodes++ > 0) continue;
    first = node.name;
    until = its;
  }
  if (nodes == 0) return {};
  return fmt::format("nothing is lent on {}{} for {} more: companions of several jobs failed there",
                     first, and_others(nodes), seconds(static_cast<double>(until - now)));
}

/// GPUs that are idle for one job, as the policies see it.
class Idle {
 public:
  Idle(const policy::ElasticJobView& job, const policy::ClusterView& view)
      : job_(job), view_(view), plans_(policy::Expansions::can_plan(job, view)) {}

  std::string why_none() const {
    const int idle = gpus(0, job_.per_worker);
    if (!suffices(idle)) return too_few(idle);
    const int depth = std::min(static_cast<int>(view_.queue.size()), kDepth);
    if (suffices(gpus(depth, job_.per_worker))) return {};
    // The first that takes any of them: mostly the head of the queue, so that it is looked for from
    // there. Each look serves the queue up to it.
    int none = 0, some = 1;
    const auto takes = [&](int served) { return gpus(served, job_.per_worker) < idle; };
    for (; some < depth && !takes(some); some = std::min(2 * some, depth)) none = some;
    while (some - none > 1) {
      const int middle = (none + some) / 2;
      (takes(middle) ? some : none) = middle;
    }
    const policy::PendingDemand& first = view_.queue[static_cast<std::size_t>(some - 1)];
    const bool needs_all = !suffices(gpus(some, job_.per_worker));
    return fmt::format("{} job {}",
                       needs_all ? "a pending job needs the GPUs first:"
                                 : "pending jobs need the GPUs first, the first of them",
                       first.part_of != 0 ? first.part_of : first.id);
  }

 private:
  static constexpr policy::FewestFirst::Options kOptions = {};  ///< the same for every policy
  static constexpr int kDepth = kOptions.queue_depth;

  /// GPUs of whole workers that could be lent to it once the first `depth` pending jobs are served.
  /// Where exactly a policy keeps room for these depends on whom it takes it back from.
  int gpus(int depth, const Resources& worker) const {
    policy::PlacementState placement(view_);
    const policy::PlacementState::Loss no_loss = [](const auto&, const auto&) { return 0.0; };
    placement.serve_queue(depth, no_loss, policy::PlacementState::Nodes::by_idle);
    placement.close();
    int workers = 0;
    for (const policy::NodeIndex node :
         view_.partitions[static_cast<std::size_t>(job_.partition)]) {
      if (!placement.may_lend(job_, node, worker)) continue;
      int here = 0;
      for (Resources left = placement.free(node); left.covers(worker); left -= worker) ++here;
      // Plans are made for GPUs that are known by their indexes alone.
      const plan::GpuMask known = view_.nodes[static_cast<std::size_t>(node)].free_gpus;
      workers += plans_ ? std::min(here, std::popcount(known) / worker.gpus) : here;
    }
    return workers * worker.gpus;
  }

  /// Returns by how many GPUs it could grow if `idle` are idle.
  int growth(int idle) const {
    const int has = job_.basic_gpus + job_.lent_gpus();
    int most = has;
    for (int next = policy::next_size(job_, has); next != 0 && next - has <= idle;
         next = policy::next_size(job_, next))
      most = next;
    return most - has;
  }

  bool suffices(int idle) const {
    const int more = growth(idle), has = job_.basic_gpus + job_.lent_gpus();
    return more > 0 && (plans_ || has < job_.wanted_gpus || more >= kOptions.min_growth * has);
  }

  std::string too_few(int idle) const {
    const Resources& worker = job_.per_worker;
    if (suffices(gpus(0, {worker.gpus, 0, 0})))
      return fmt::format(
          "GPUs are idle, but not with {} and {} MiB beside, as each of its workers has",
          count_of(worker.cpus, "CPU"), worker.memory_mib);
    if (idle == 0) return "no GPU that it could use is idle";
    const int has = job_.basic_gpus + job_.lent_gpus();
    if (const int next = policy::next_size(job_, has); next - has > idle)
      return fmt::format("of the GPUs that it could use {} are idle, and its next size takes {}",
                         idle, next - has);
    return fmt::format(
        "it could have {} more, and no job is grown by less than a tenth of what it has",
        count_of(growth(idle), "GPU"));
  }

  const policy::ElasticJobView& job_;
  const policy::ClusterView& view_;
  bool plans_;
};

}  // namespace

std::string waits_for(const ElasticJob& job, const Waiting& waiting) {
  using policy::GrowthHold;
  if (waiting.draining) return "the administrator drains Swell: nothing is lent until that is over";
  const auto record = std::find_if(waiting.snapshot.jobs.begin(), waiting.snapshot.jobs.end(),
                                   [&](const slurm::JobRecord& each) { return each.id == job.id; });
  const auto seen = std::find_if(waiting.view.jobs.begin(), waiting.view.jobs.end(),
                                 [&](const auto& each) { return each.id == job.id; });
  const bool is_shown = record != waiting.snapshot.jobs.end() && seen != waiting.view.jobs.end();
  const policy::GrowthFacts facts = growth_facts(
      job, is_shown ? *record : slurm::JobRecord(), is_shown ? *seen : policy::ElasticJobView(),
      waiting.view, waiting.config, waiting.snapshot.taken);
  const GrowthHold hold = policy::growth_hold(facts);
  if (hold != GrowthHold::none && hold <= GrowthHold::refuses)
    return sentence(hold, facts, job, waiting);
  if (!is_shown) return "Slurm's records do not show where it runs";
  if (hold != GrowthHold::none && hold <= GrowthHold::ends_soon)
    return sentence(hold, facts, job, waiting);
  if (std::string why = by_constraint(*record); !why.empty()) return why;
  if (hold != GrowthHold::none && hold <= GrowthHold::at_its_limit)
    return sentence(hold, facts, job, waiting);
  if (std::string why = by_limit(job, *seen, waiting); !why.empty()) return why;
  if (hold != GrowthHold::none && hold <= GrowthHold::profile_awaited)
    return sentence(hold, facts, job, waiting);
  if (std::string why = by_time(hold, facts, job, waiting); !why.empty()) return why;
  if (seen->per_worker.gpus < 1) return {};
  std::string why = Idle(*seen, waiting.view).why_none();
  if (why.empty()) return why;
  for (const std::string& more :
       {on_mixed_nodes(*record, *seen, waiting), where_it_ends_soon(job, *record, *seen, waiting),
        where_limits_forbid(*record, *seen, waiting), where_it_may_not_share(*seen, waiting),
        where_companions_failed(job, *seen, waiting)})
    if (!more.empty()) why += "; " + more;
  return why;
}

}  // namespace swell::controller
