// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/gpu_queue.h"

#include <algorithm>
#include <map>
#include <set>

#include "controller/companion_identity.h"
#include "controller/node_lists.h"
#include "core/policy/view.h"
#include "core/saturating.h"
#include "core/slurm_text/lists.h"

namespace swell::controller {

namespace {

double limit_s(const slurm::JobRecord& job) noexcept {
  return job.time_limit_min > 0 ? 60.0 * job.time_limit_min : GpuQueue::kForever_s;
}

}  // namespace

struct GpuQueue::Nodes {
  std::vector<slurm::NodeRecord> records;         ///< usable ones with GPUs of one type
  std::vector<std::vector<double>> free_s;        ///< by node: when each GPU comes free, rising
  std::vector<std::set<std::string>> partitions;  ///< by node
  std::string default_partition;
  std::optional<NodeLists> lists;
};

int gpus_asked_by(const slurm::JobRecord& pending) noexcept {
  if (pending.gpus_in_all.count > 0) return pending.gpus_in_all.count;
  return saturated_int(saturating_product(pending.gpus_per_node.count, pending.min_nodes));
}

const std::string& type_asked_by(const slurm::JobRecord& pending) noexcept {
  return pending.gpus_per_node.count > 0 ? pending.gpus_per_node.type : pending.gpus_in_all.type;
}

GpuQueue::~GpuQueue() = default;

GpuQueue::GpuQueue(const slurm::Snapshot& snapshot, bool all_pending, slurm::JobId asking)
    : nodes_(std::make_unique<Nodes>()) {
  std::map<std::string_view, std::size_t> index;
  for (const slurm::NodeRecord& node : snapshot.nodes) {
    if (!node.usable || node.gpus.size() != 1 || node.gpus.front().count <= 0) continue;
    slurm::NodeRecord& kept = nodes_->records.emplace_back();
    kept.name = node.name;
    kept.gpus = node.gpus;
    kept.cpus = node.cpus;
    kept.memory_mib = node.memory_mib;
    kept.features = node.features;
    index[node.name] = nodes_->records.size() - 1;
    nodes_->free_s.emplace_back(static_cast<std::size_t>(node.gpus.front().count), 0.0);
    types_.push_back(node.gpus.front().type);
  }
  std::sort(types_.begin(), types_.end());
  types_.erase(std::unique(types_.begin(), types_.end()), types_.end());
  nodes_->partitions.resize(nodes_->records.size());
  for (const slurm::PartitionRecord& partition : snapshot.partitions) {
    if (partition.is_default) nodes_->default_partition = partition.name;
    if (!partition.up) continue;
    for (const std::string& name : partition.nodes)
      if (const auto found = index.find(name); found != index.end())
        nodes_->partitions[found->second].insert(partition.name);
  }
  std::vector<const slurm::NodeRecord*> pointers;
  for (const slurm::NodeRecord& node : nodes_->records) pointers.push_back(&node);
  nodes_->lists.emplace(pointers, nodes_->records);

  for (const slurm::JobRecord& job : snapshot.jobs) {
    if (job.phase == slurm::JobPhase::pending || job.phase == slurm::JobPhase::ended) continue;
    double until_s = 0;
    const auto companion = identity_in(job);
    const bool is_lent = companion && (asking == 0 || companion->parent == asking);
    if (!is_lent && job.phase != slurm::JobPhase::completing)
      until_s = job.time_limit_min > 0 && job.end_time != 0
                    ? std::max(static_cast<double>(job.end_time - snapshot.taken), 1.0)
                    : kForever_s;
    for (const slurm::GpuAllocation& held : job.gpus)
      if (const auto found = index.find(held.node); found != index.end()) {
        auto& free_s = nodes_->free_s[found->second];
        const auto count =
            std::min(static_cast<std::size_t>(std::max(held.gpus.count, 0)), free_s.size());
        // The first are idle as yet, where no more is held than there is.
        for (std::size_t i = 0; i < count; ++i) free_s[i] = std::max(free_s[i], until_s);
        std::sort(free_s.begin(), free_s.end());
      }
  }
  if (!all_pending) return;
  for (const slurm::JobRecord* job : in_order(snapshot)) place_as_asked(*job);
}

std::vector<const slurm::JobRecord*> GpuQueue::in_order(const slurm::Snapshot& snapshot) {
  std::map<std::string_view, int> tiers;
  for (const slurm::PartitionRecord& partition : snapshot.partitions)
    tiers[partition.name] = partition.priority_tier;
  std::vector<std::pair<int, const slurm::JobRecord*>> queue;
  for (const slurm::JobRecord& job : snapshot.jobs) {
    if (job.phase != slurm::JobPhase::pending || job.waiting != slurm::Waiting::for_resources ||
        !job.reservation.empty() || gpus_asked_by(job) == 0)
      continue;
    const auto tier =
        tiers.find(std::string_view(job.partition).substr(0, job.partition.find(',')));
    queue.emplace_back(tier != tiers.end() ? tier->second : 0, &job);
  }
  std::sort(queue.begin(), queue.end(), [](const auto& one, const auto& other) {
    if (one.first != other.first) return one.first > other.first;
    if (one.second->priority != other.second->priority)
      return one.second->priority > other.second->priority;
    return one.second->id < other.second->id;
  });
  if (queue.size() > policy::kQueueDepth) queue.resize(policy::kQueueDepth);
  std::vector<const slurm::JobRecord*> jobs;
  for (const auto& [tier, job] : queue) jobs.push_back(job);
  return jobs;
}

std::optional<GpuQueue::Place> GpuQueue::find(const slurm::JobRecord& job, std::string_view type) {
  const std::string& named = job.partition.empty() ? nodes_->default_partition : job.partition;
  const std::vector<std::string_view> partitions = slurm_text::split_list(named);
  const auto ruled_out = nodes_->lists->ruled_out_for(job);
  const NodeLists::Named* required =
      job.required_nodes.empty() ? nullptr : nodes_->lists->of_pending(job.required_nodes);
  if (!ruled_out || (!job.required_nodes.empty() && required == nullptr)) return std::nullopt;
  std::vector<std::size_t> possible;
  int largest = 0;
  for (std::size_t i = 0; i < nodes_->records.size(); ++i) {
    const slurm::NodeRecord& node = nodes_->records[i];
    const auto place = static_cast<policy::NodeIndex>(i);
    if (node.gpus.front().type != type || ruled_out->contains(place) ||
        (required != nullptr && !required->nodes.contains(place)) ||
        node.cpus < job.min_cpus_per_node || node.memory_mib < job.min_memory_mib_per_node)
      continue;
    if (std::none_of(partitions.begin(), partitions.end(), [&](std::string_view each) {
          return nodes_->partitions[i].contains(std::string(each));
        }))
      continue;
    possible.push_back(i);
    largest = std::max(largest, node.gpus.front().count);
  }
  if (possible.empty()) return std::nullopt;
  int nodes = std::max(job.min_nodes, 1), gpus = job.gpus_per_node.count;
  if (gpus == 0) {
    // In all: as few nodes as may be, with equal shares.
    const int all = job.gpus_in_all.count;
    nodes = std::max(nodes, (all + largest - 1) / largest);
    gpus = (all + nodes - 1) / nodes;
  }
  const auto wanted = static_cast<std::size_t>(nodes);
  std::erase_if(possible, [&](std::size_t i) {
    return nodes_->free_s[i].size() < static_cast<std::size_t>(gpus);
  });
  if (gpus < 1 || possible.size() < wanted) return std::nullopt;
  const auto ready_s = [&](std::size_t i) {
    return nodes_->free_s[i][static_cast<std::size_t>(gpus) - 1];
  };
  std::stable_sort(possible.begin(), possible.end(), [&](std::size_t one, std::size_t other) {
    return ready_s(one) < ready_s(other);
  });
  possible.resize(wanted);
  return Place{possible, gpus, ready_s(possible.back())};
}

std::optional<double> GpuQueue::start_of(const slurm::JobRecord& job, std::string_view type) {
  const auto place = find(job, type);
  if (!place || place->start_s >= kForever_s) return std::nullopt;
  return place->start_s;
}

void GpuQueue::place(const slurm::JobRecord& job, std::string_view type, double takes_s) {
  const auto place = find(job, type);
  if (!place) return;
  for (const std::size_t node : place->nodes) {
    auto& free_s = nodes_->free_s[node];
    std::fill_n(free_s.begin(), place->gpus, std::min(place->start_s + takes_s, 2 * kForever_s));
    std::sort(free_s.begin(), free_s.end());
  }
}

void GpuQueue::place_as_asked(const slurm::JobRecord& job) {
  if (const std::string& type = type_asked_by(job); !type.empty())
    return place(job, type, limit_s(job));
  const std::string* best = nullptr;
  double best_s = 0;
  for (const std::string& type : types_)
    if (const auto start_s = start_of(job, type); start_s && (best == nullptr || *start_s < best_s))
      best = &type, best_s = *start_s;
  if (best != nullptr) place(job, *best, limit_s(job));
}

}  // namespace swell::controller
