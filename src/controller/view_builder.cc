// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/view_builder.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <set>
#include <unordered_map>

#include "controller/companion_identity.h"
#include "controller/companion_time.h"
#include "controller/gpu_masks.h"
#include "controller/growth_facts.h"
#include "controller/machines.h"
#include "controller/node_lists.h"
#include "controller/partition_limits.h"
#include "controller/quotas.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/registry.h"
#include "core/saturating.h"
#include "core/slurm_text/lists.h"

namespace swell::controller {

namespace {

using policy::NodeIndex;
using policy::Resources;

/// Jobs of one array that are looked at one by one; those behind are served by Slurm's preemption.
constexpr int kMaxArrayTasks = 100;

/// GPUs that Slurm itself took back wait so long for a job that the view does not show. Slurm
/// starts that job in its next round of backfill (bf_interval).
constexpr std::time_t kPreemptedKept_s = 120;

class Builder {
 public:
  Builder(const slurm::Snapshot& snapshot, const JobTable& jobs,
          const std::vector<LiveGrant>& outstanding, const Config& config, double now,
          std::shared_ptr<const cluster::Fabric> fabric,
          std::shared_ptr<const cluster::Cluster> machines, const TypeMoves* moves)
      : snapshot_(snapshot),
        jobs_(jobs),
        moves_(moves),
        outstanding_(outstanding),
        config_(config),
        quotas_(config, snapshot, jobs, outstanding),
        limits_(snapshot, jobs, outstanding),
        now_(now) {
    view_.positions.fabric = std::move(fabric);
    view_.machines = std::move(machines);
    view_.order_wanted = true;
    view_.now_s = now;
    plans_ = policy::policy_plans(config.policy);
    sheets_ = policy::policy_reads_data_sheets(config.policy);
  }

  policy::ClusterView build() {
    add_nodes();
    add_partitions();
    note_sharing();
    return_just_left();
    take_used();
    keep_for_restarts();
    forget_uncertain_gpus();
    std::vector<Pending> queue;
    for (const slurm::JobRecord& record : snapshot_.jobs) {
      if (const auto found = jobs_.find(record.id); found != jobs_.end())
        add_job(found->second, record);
      else if (record.phase == slurm::JobPhase::pending) add_to(queue, record);
    }
    std::sort(queue.begin(), queue.end());
    std::vector<Pending> moving;
    if (moves_ != nullptr)
      for (const auto& [id, move] : *moves_)
        if (move.is_set_aside(record_of(id))) add_to(moving, move.demand);
    queue.insert(queue.begin(), moving.begin(), moving.end());
    serve(queue);
    if (any_unseen_) keep_preempted();
    return std::move(view_);
  }

 private:
  NodeIndex index_of(const std::string& name) const { return lists_->index_of(name); }
  Resources& free_on(NodeIndex node) { return view_.nodes[static_cast<std::size_t>(node)].free; }

  void add_nodes() {
    int place = -1;
    for (const slurm::NodeRecord& node : snapshot_.nodes) {
      ++place;
      for (const slurm::GpuRequest& each : node.gpus) gpus_ += each.count;
      if (!node.usable) continue;
      policy::NodeView view;
      view.name = node.name;
      // A node with several types shows no GPUs: which ones a job got is not told by a count.
      if (node.gpus.size() == 1) {
        view.gpu_type = node.gpus[0].type;
        view.total.gpus = node.gpus[0].count;
      }
      view.total.cpus = node.cpus;
      view.total.memory_mib = node.memory_mib;
      view.free = {view.total.gpus, node.cpus - node.cpus_used,
                   node.memory_mib - node.memory_used_mib};
      view.settling = node.completing;
      if (view.total.gpus > 0 && view.total.gpus <= cluster::kMaxGpusPerNode)
        view.free_gpus = lowest(~plan::GpuMask{0}, view.total.gpus);
      view_.nodes.push_back(std::move(view));
      view_.positions.index.push_back(place);
      records_.push_back(&node);
    }
    lists_.emplace(records_, snapshot_.nodes);
    for (const slurm::ReservationRecord& each : snapshot_.reservations) {
      if (each.start <= snapshot_.taken) continue;
      policy::NodeSet nodes;
      for (const std::string& name : each.nodes)
        if (const NodeIndex node = index_of(name); node >= 0) nodes.insert(node);
      reserved_.emplace_back(each.start, std::move(nodes));
    }
  }

  void add_partitions() {
    for (const slurm::PartitionRecord& partition : snapshot_.partitions) {
      std::vector<NodeIndex> nodes;
      if (partition.up)
        for (const std::string& name : partition.nodes)
          if (const NodeIndex node = index_of(name); node >= 0) nodes.push_back(node);
      std::sort(nodes.begin(), nodes.end());
      partition_index_[partition.name] = static_cast<int>(view_.partitions.size());
      partitions_.push_back(&partition);
      view_.partitions.push_back(std::move(nodes));
    }
  }

  const slurm::PartitionRecord& partition_at(int index) const {
    return *partitions_[static_cast<std::size_t>(index)];
  }

  policy::Sharing sharing_of(const slurm::JobRecord& record) const {
    const auto partition = partition_index_.find(first_partition(record));
    const bool has_label =
        snapshot_.labelled_nodes == slurm::LabelledNodes::of_all ||
        (snapshot_.labelled_nodes == slurm::LabelledNodes::of_those_that_ask && record.sole_label);
    return {record.uid,
            record.sole_user ||
                (partition != partition_index_.end() && partition_at(partition->second).sole_user),
            has_label ? record.mcs_label.get() : std::string()};
  }

  policy::Sharing sharing_of_companions(const slurm::JobRecord& parent) const {
    const std::string& name =
        config_.expansion_partition.empty() ? parent.partition : config_.expansion_partition;
    const auto partition = partition_index_.find(name);
    return {parent.uid,
            partition != partition_index_.end() && partition_at(partition->second).sole_user,
            snapshot_.labelled_nodes == slurm::LabelledNodes::of_all ? parent.mcs_label.get()
                                                                     : std::string()};
  }

  /// Notes which nodes are in use by jobs other than companions.
  void note_sharing() {
    for (const slurm::JobRecord& record : snapshot_.jobs) {
      if (record.phase == slurm::JobPhase::pending || record.phase == slurm::JobPhase::ended ||
          identity_in(record))
        continue;
      policy::Sharing sharing = sharing_of(record);
      any_closed_ = any_closed_ || !sharing.is_free();
      policy::NodeSet& nodes = in_use_[std::move(sharing)];
      for (const std::string& name : record.nodes)
        if (const NodeIndex node = index_of(name); node >= 0) nodes.insert(node);
    }
  }

  /// Returns the nodes of jobs, other than companions, beside which Slurm does not run one that
  /// shares nodes in this way.
  const policy::NodeSet& closed_to(const policy::Sharing& sharing) {
    static const policy::NodeSet none;
    if (sharing.is_free() && !any_closed_) return none;
    const auto [found, is_new] = closed_.try_emplace(sharing);
    if (is_new)
      for (const auto& [other, nodes] : in_use_)
        if (!policy::may_share(other, sharing)) found->second |= nodes;
    return found->second;
  }

  void take_used() {
    for (const slurm::JobRecord& record : snapshot_.jobs) {
      if (record.phase == slurm::JobPhase::pending || record.phase == slurm::JobPhase::ended)
        continue;
      for (const slurm::GpuAllocation& held : record.gpus)
        if (const NodeIndex node = index_of(held.node); node >= 0) take(node, held.gpus);
    }
    for (const LiveGrant& grant : outstanding_) {
      // Its companion may be in the snapshot already.
      if (const NodeIndex node = index_of(grant.offer.node); node >= 0 && !is_seen(grant)) {
        free_on(node) -= Resources{grant.offer.gpus, grant.offer.cpus, grant.offer.memory_mib};
        // Which ones Slurm will take, is its own choice.
        plan::GpuMask& idle = view_.nodes[static_cast<std::size_t>(node)].free_gpus;
        idle &= ~lowest(idle, grant.offer.gpus);
      }
    }
  }

  /// Counts GPUs of jobs that have just left as free before their nodes' records show it: where
  /// Slurm has made room itself, nothing is reclaimed. They are lent only once the records do.
  void return_just_left() {
    std::map<NodeIndex, Resources> held, left;
    for (const slurm::JobRecord& record : snapshot_.just_left) add_shares(record, left);
    if (left.empty()) return;
    for (const slurm::JobRecord& record : snapshot_.jobs)
      if (record.phase != slurm::JobPhase::pending && record.phase != slurm::JobPhase::ended)
        add_shares(record, held);
    for (const auto& [index, resources] : left) {
      policy::NodeView& node = view_.nodes[static_cast<std::size_t>(index)];
      const Resources& used = held[index];
      const int cpus = std::min(resources.cpus, node.total.cpus - used.cpus - node.free.cpus);
      const std::int64_t memory_mib = std::min(
          resources.memory_mib, node.total.memory_mib - used.memory_mib - node.free.memory_mib);
      if (cpus <= 0 && memory_mib <= 0) continue;
      node.free += Resources{0, std::max(cpus, 0), std::max<std::int64_t>(memory_mib, 0)};
      node.settling = true;
    }
  }

  /// Lends none of the GPUs of a job that Slurm restarts at once: the job would have to wait until
  /// they are back.
  void keep_for_restarts() {
    for (const auto& [id, nodes] : snapshot_.kept_nodes)
      for (const std::string& name : nodes)
        if (const NodeIndex node = index_of(name); node >= 0)
          view_.nodes[static_cast<std::size_t>(node)].settling = true;
  }

  /// Adds CPUs and memory of a job to its nodes: an equal share to each, which Slurm's records of
  /// jobs do not tell better.
  void add_shares(const slurm::JobRecord& record, std::map<NodeIndex, Resources>& on) const {
    const auto nodes = static_cast<int>(record.nodes.size());
    for (const std::string& name : record.nodes)
      if (const NodeIndex node = index_of(name); node >= 0)
        on[node] += Resources{0, record.cpus / nodes, record.memory_mib / nodes};
  }

  void take(NodeIndex node, const slurm::GpuRequest& gpus) {
    free_on(node).gpus -= gpus.count;
    const plan::GpuMask mask = mask_of(gpus);
    if (mask == 0 && gpus.count > 0) uncertain_.insert(node);
    view_.nodes[static_cast<std::size_t>(node)].free_gpus &= ~mask;
  }

  /// Hides GPUs of which type or state is not known, so that nothing is planned on them.
  void forget_uncertain_gpus() {
    for (std::size_t i = 0; i < view_.nodes.size(); ++i) {
      policy::NodeView& node = view_.nodes[i];
      const auto index = static_cast<NodeIndex>(i);
      if (std::popcount(node.free_gpus) != node.free.gpus || uncertain_.contains(index) ||
          (view_.machines != nullptr && !can_plan_on(*view_.machines, index)))
        node.free_gpus = 0;
    }
  }

  bool is_seen(const LiveGrant& grant) const {
    const auto parent = jobs_.find(grant.parent);
    if (parent == jobs_.end()) return false;
    return parent->second.companions.has_grant(grant.offer.nonce);
  }

  void add_job(const ElasticJob& job, const slurm::JobRecord& record) {
    const auto partition = partition_index_.find(record.partition);
    if (partition == partition_index_.end()) return;
    policy::ElasticJobView view;
    view.id = job.id;
    view.owner = job.uid;
    view.partition = partition->second;
    view.basic_gpus = job.basic_gpus;
    if (plans_) view.training = training_of(job, record);
    const double step_s = job.training.step_s();
    if (const auto left = job.agent_words.steps().left(now_, step_s))
      view.remaining_samples = *left * step_s * job.training.rate();
    if (const std::time_t deadline = deadline_of(job.spec.deadline, record); deadline != 0)
      view.deadline_s = now_ + static_cast<double>(deadline - snapshot_.taken);
    view.gpu_types = job.spec.types;
    for (const slurm::GpuAllocation& held : record.gpus) {
      if (job.spec.types.empty() && std::find(view.gpu_types.begin(), view.gpu_types.end(),
                                              held.gpus.type) == view.gpu_types.end())
        view.gpu_types.push_back(held.gpus.type);
      if (const NodeIndex node = index_of(held.node); node >= 0) {
        view.basic_nodes.push_back(node);
        view.basic_gpu_masks.push_back(mask_of(held.gpus));
      }
    }
    const int gpus = std::max(job.basic_gpus, 1);
    const int per_worker = job.agent_words.gpus_per_worker();
    view.per_worker.gpus = per_worker;
    view.per_worker.cpus =
        std::max(saturated_int((saturating_product(record.cpus, per_worker) + gpus - 1) / gpus), 1);
    view.per_worker.memory_mib = saturating_product(record.memory_mib, per_worker) / gpus;
    view.excluded_nodes = lists_->not_lent_to(record);
    exclude_too_short(job, record, view.excluded_nodes);
    exclude_limited(record, view);
    view.sharing = sharing_of_companions(record);
    view.closed_nodes = closed_to(view.sharing);
    if (!view.sharing.is_free())
      for (const LiveGrant& grant : outstanding_) {
        const auto parent = jobs_.find(grant.parent);
        const NodeIndex node = index_of(grant.offer.node);
        if (parent != jobs_.end() && parent->second.uid != job.uid && node >= 0)
          view.closed_nodes.insert(node);
      }
    for (const Companion& companion : job.companions)
      view.companions.push_back({.id = companion.id,
                                 .node = index_of(companion.node),
                                 .held = companion.held,
                                 .gpus = mask_of(companion.gpus),
                                 .leaving = companion.is_leaving()});
    const policy::GrowthFacts growth =
        growth_facts(job, record, view, view_, config_, snapshot_.taken);
    view.max_gpus = max_gpus(job, view, growth);
    if (const int wanted = std::min(job.wanted_gpus, view.max_gpus); wanted > job.basic_gpus)
      view.wanted_gpus = wanted;
    view.sizes =
        control::common_sizes(job.spec.totals(job.basic_gpus, std::min(view.max_gpus, gpus_)),
                              job.agent_words.last().sizes, job.basic_gpus);
    view.may_grow = policy::growth_hold(growth) == policy::GrowthHold::none && !is_moving(job.id);
    view.changing = record.phase != slurm::JobPhase::running || job.is_changing(now_);
    view.may_replan = may_replan(job);
    view.starting = view.training != nullptr && !view.training->is_measured() &&
                    job.agent_words.last().state == control::JobState::allocated;
    view.started_s = job.first_seen;
    view.method = redeploy::method_of(job.way());
    view_.jobs.push_back(std::move(view));
  }

  bool is_moving(JobId job) const { return moves_ != nullptr && moves_->contains(job); }
  const slurm::JobRecord* record_of(JobId job) const {
    const auto found = std::find_if(snapshot_.jobs.begin(), snapshot_.jobs.end(),
                                    [&](const slurm::JobRecord& each) { return each.id == job; });
    return found != snapshot_.jobs.end() ? &*found : nullptr;
  }

  /// Returns the max number of GPUs that the job may have in all: the lowest of all limits.
  /// REQUIRES: `view` says what the job holds and what is known of its training.
  int max_gpus(const ElasticJob& job, const policy::ElasticJobView& view,
               const policy::GrowthFacts& growth) const {
    int max = job.spec.max_total(job.asked_gpus(), policy::Expansions::can_plan(view, view_));
    if (config_.max_gpus_per_job > 0)
      max = std::max(std::min(max, config_.max_gpus_per_job), job.basic_gpus);
    if (job.limits.max_gpus() > 0)
      max = std::max(std::min(max, job.limits.max_gpus()), job.basic_gpus);
    if (const auto room = quotas_.room(job.id))
      max = std::min(max, job.basic_gpus + job.companions.lent_gpus() + *room);
    // Without a profile it grows no further than its user asked for.
    if (growth.is_owed_some && policy::profile_hold(growth) != policy::GrowthHold::none)
      max = std::min(max, job.wanted_gpus);
    return max;
  }

  /// Excludes nodes on which a companion would have to end before it is worth its start.
  void exclude_too_short(const ElasticJob& job, const slurm::JobRecord& record,
                         policy::NodeSet& excluded) {
    const std::time_t now = snapshot_.taken;
    const double least_s = least_time_s(config_, job);
    const CompanionEnd end = end_anywhere(snapshot_, record, config_, now);
    if (!end.why.empty() && static_cast<double>(end.at - now) < least_s)
      excluded |= policy::NodeSet::first(view_.nodes.size());
    for (const auto& [start, nodes] : reserved_)
      if (static_cast<double>(start - now) < least_s && (end.at == 0 || start < end.at))
        excluded |= nodes;
  }

  /// Excludes nodes on which limits of the partition let no companion run.
  void exclude_limited(const slurm::JobRecord& record, policy::ElasticJobView& view) {
    const PartitionLimits& limits = limits_.of(companion_partition(record, config_));
    if (!limits.any()) return;
    for (const NodeIndex node : view_.partitions[static_cast<std::size_t>(view.partition)])
      if (!limits.why_none_on(view_.nodes[static_cast<std::size_t>(node)].name, view.per_worker)
               .empty())
        view.excluded_nodes.insert(node);
  }

  std::shared_ptr<const policy::Training> training_of(const ElasticJob& job,
                                                      const slurm::JobRecord& record) const {
    const bool by_sheet = sheets_ && job.goes_by_sheet(now_);
    if (view_.machines == nullptr || (!job.training.is_known() && !by_sheet)) return nullptr;
    const auto basic = held_gpus(job, record, *view_.machines, false),
               all = held_gpus(job, record, *view_.machines, true);
    if (!basic || !all) return nullptr;
    const plan::Allocations allocations = allocations_of(job, record, *view_.machines);
    if (by_sheet)
      return job.description.model()->seen(*basic, *all, job.training.told().plan(), view_.machines,
                                           allocations);
    return job.training.seen(*basic, *all, view_.machines,
                             job.spec.consistency == control::Consistency::exact
                                 ? planner::Consistency::exact
                                 : planner::Consistency::relaxed,
                             allocations);
  }

  /// Plans change while its program runs, and it has reported of the last one that it was told.
  bool may_replan(const ElasticJob& job) const {
    return job.agent.is_connected() && job.spec.mode == control::Mode::live &&
           job.agent_words.last().state == control::JobState::active && !job.limits.is_paused() &&
           !job.training.told().makes_own_plans() && !job.training.told().awaits_report() &&
           !job.offers.is_open() && now_ >= job.offers.times().grows_after &&
           job.replans.may_follow(job.companions, now_);
  }

  /// A pending job that Slurm might start, and its place in the queue.
  struct Pending {
    const slurm::JobRecord* record;
    int partition, tier;
    bool operator<(const Pending& other) const {
      if (tier != other.tier) return tier > other.tier;
      if (record->priority != other.record->priority)
        return record->priority > other.record->priority;
      return record->id < other.record->id;
    }
  };

  /// A job may name several partitions; the first is as good a guess as any of where it starts.
  static std::string first_partition(const slurm::JobRecord& record) {
    return record.partition.substr(0, record.partition.find(','));
  }

  void add_to(std::vector<Pending>& queue, const slurm::JobRecord& record) {
    if (record.waiting != slurm::Waiting::for_resources) return;
    const auto partition = partition_index_.find(first_partition(record));
    const bool is_seen = record.reservation.empty() && partition != partition_index_.end();
    if (is_seen)
      queue.push_back({&record, partition->second, partition_at(partition->second).priority_tier});
    // One in a reservation with FLEX also runs outside of it.
    any_unseen_ = any_unseen_ || !is_seen || record.partition.find(',') != std::string::npos;
  }

  /// Lends nothing on nodes where Slurm has just preempted companions, while jobs wait that the
  /// view does not show, or not in each of their partitions. Lent again before Slurm starts the
  /// job, the GPUs would be preempted again, and the job would wait for ever.
  void keep_preempted() {
    for (const slurm::JobRecord& record : snapshot_.jobs)
      if (record.phase == slurm::JobPhase::ended && record.is_preempted() &&
          snapshot_.taken - record.end_time < kPreemptedKept_s && identity_in(record))
        for (const std::string& name : record.nodes)
          if (const NodeIndex node = index_of(name); node >= 0)
            view_.nodes[static_cast<std::size_t>(node)].settling = true;
  }

  /// Adds what policies look at, from the head on: the view is as large as that, however many jobs
  /// users submit. Other parts of a heterogeneous job that has one among them follow at the end.
  void serve(const std::vector<Pending>& queue) {
    std::set<slurm::JobId> in_parts;
    for (const Pending& each : queue) {
      const std::size_t left =
          policy::kQueueDepth - std::min<std::size_t>(policy::kQueueDepth, view_.queue.size());
      const bool is_part = each.record->het_leader != 0;
      any_unseen_ = any_unseen_ || left == 0;
      if (left == 0 && in_parts.empty()) return;
      if (left == 0 && !(is_part && in_parts.contains(each.record->het_leader))) continue;
      const auto demand = demand_of(each);
      any_unseen_ = any_unseen_ || !demand;
      if (!demand) continue;
      if (is_part) in_parts.insert(each.record->het_leader);
      const int tasks = std::min(each.record->pending_tasks, kMaxArrayTasks);
      view_.queue.insert(view_.queue.end(), left == 0 ? 1 : std::min<std::size_t>(left, tasks),
                         *demand);
    }
  }

  /// Returns nothing for a job that cannot start, as a node that it asks for is down, and for one
  /// whose node lists are too long to be read: Slurm's preemption serves it.
  std::optional<policy::PendingDemand> demand_of(const Pending& pending) {
    const slurm::JobRecord& record = *pending.record;
    policy::PendingDemand demand;
    demand.id = record.id;
    demand.partition = pending.partition;
    demand.part_of = record.het_leader;
    demand.min_nodes = record.min_nodes;
    demand.max_nodes = record.max_nodes;
    demand.per_node.gpus = record.gpus_per_node.count;
    demand.in_all.gpus = record.gpus_in_all.count;
    demand.gpu_type =
        record.gpus_per_node.count > 0 ? record.gpus_per_node.type : record.gpus_in_all.type;
    demand.per_node.cpus = std::max(record.min_cpus_per_node, 1);
    demand.in_all.cpus = record.cpus;
    demand.per_node.memory_mib = record.min_memory_mib_per_node;
    demand.in_all.memory_mib = saturating_product(record.min_memory_mib_per_cpu, record.cpus);
    demand.whole_nodes = record.whole_nodes || partition_at(pending.partition).gives_whole_nodes;
    demand.sharing = sharing_of(record);
    demand.closed_nodes = closed_to(demand.sharing);
    const NodeLists::Named* required = lists_->of_pending(record.required_nodes);
    if (required == nullptr || !required->all_known) return std::nullopt;
    demand.required_nodes = required->nodes;
    std::optional<policy::NodeSet> ruled_out = lists_->ruled_out_for(record);
    if (!ruled_out) return std::nullopt;
    demand.excluded_nodes = std::move(*ruled_out);
    // More nodes than asked for are taken only where the GPUs in all need them.
    if (record.gpus_in_all.count == 0 && demand.in_all.cpus <= demand.per_node.cpus)
      demand.max_nodes = demand.min_nodes;
    return demand;
  }

  const slurm::Snapshot& snapshot_;
  const JobTable& jobs_;
  const TypeMoves* moves_;  ///< null: none
  const std::vector<LiveGrant>& outstanding_;
  const Config& config_;
  Quotas quotas_;
  LimitsByPartition limits_;
  double now_;
  int gpus_ = 0;  ///< of all nodes, usable or not
  policy::ClusterView view_;
  std::vector<const slurm::NodeRecord*> records_;
  std::optional<NodeLists> lists_;  ///< from add_nodes() on
  std::unordered_map<std::string, int> partition_index_;
  std::vector<std::pair<std::time_t, policy::NodeSet>> reserved_;  ///< from this time on
  std::vector<const slurm::PartitionRecord*> partitions_;          ///< by the index in the view
  /// Nodes in use by jobs other than companions, by how these share them; whether any of these
  /// jobs closes its nodes to others.
  std::map<policy::Sharing, policy::NodeSet> in_use_;
  bool any_closed_ = false;
  bool any_unseen_ = false;  ///< jobs wait for resources that the view does not show, or not fully
  std::map<policy::Sharing, policy::NodeSet> closed_;  ///< to whom
  std::set<NodeIndex> uncertain_;  ///< nodes on which a job holds GPUs that are only counted
  bool plans_ = false, sheets_ = false;
};

}  // namespace

policy::ClusterView build_view(const slurm::Snapshot& snapshot, const JobTable& jobs,
                               const std::vector<LiveGrant>& outstanding, const Config& config,
                               double now, std::shared_ptr<const cluster::Fabric> fabric,
                               std::shared_ptr<const cluster::Cluster> machines,
                               const TypeMoves* moves) {
  return Builder(snapshot, jobs, outstanding, config, now, std::move(fabric), std::move(machines),
                 moves)
      .build();
}

}  // namespace swell::controller
