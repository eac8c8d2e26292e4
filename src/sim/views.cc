// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/views.h"

#include <algorithm>
#include <cmath>

#include "core/policy/growth_hold.h"
#include "core/policy/lending/sizes.h"
#include "sim/growth_pace.h"

namespace swell::sim {

namespace {

// CPUs and memory for each GPU: its part of one of Suika's nodes (128 cores, 1 TB), so that they
// never run out before GPUs.
constexpr policy::Resources kPerGpu{1, 8, 65536};

/// Pending jobs that the base scheduler looks at: Slurm's default of bf_max_job_test.
constexpr std::size_t kLookedAt = 500;

std::shared_ptr<const policy::Training> training_of(const State& state, const Job& job,
                                                    const plan::Allocations& allocations = {}) {
  auto training = std::make_shared<policy::Training>();
  training->model = job.type.model;
  training->coefficients = job.measured.coefficients;
  training->basic = job.basic_plan;
  if (job.phase == Phase::running) {
    training->current = job.current;
    allocations.label(training->current);
    if (job.measured.corrected && !state.setup.is_rival())
      training->coefficients = job.measured.corrected;
  }
  training->max_gpus_so_far = job.measured.max_gpus;
  return training;
}

double remaining_samples(const State& state, const Job& job) {
  // The same jobs under every policy.
  if (job.spec.id * 37 % 100 >= 100 * state.setup.remaining_known) return -1;
  return job.progress.left(state.now_s) * job.type.model->global_batch;
}

/// Whether what the job is lent beyond what it wanted waits for its profile, in slurmctld.
bool awaits_profile(const State& state, const Job& job) {
  return state.setup.slurmctld() == policy::SimulationTraits::Slurmctld::after_profile_wait &&
         job.phase == Phase::running && !job.measured.coefficients &&
         state.now_s < job.measured.awaited_until_s;
}

/// Whether slurmctld would decide for the job without a plan.
bool is_unplanned(const State& state, const Job& job) {
  using Slurmctld = policy::SimulationTraits::Slurmctld;
  if (state.setup.policy == nullptr) return false;
  const Slurmctld as = state.setup.policy->simulation_traits().slurmctld;
  return as == Slurmctld::as_it_starts ||
         (as == Slurmctld::after_profile_wait && !job.measured.coefficients);
}

/// Returns the max number of GPUs that a job may have in all: the product's limit where GPUs are
/// lent, counted from what the job wants, whether or not it consented to fewer. Rivals that give
/// every job another size have no limit, as published.
int max_gpus(const State& state, const Job& job) {
  if (!job.spec.elastic || job.barred) return job.type.gpus;
  if (awaits_profile(state, job) && job.wanted_gpus > job.type.gpus) return job.wanted_gpus;
  const int all = state.cluster.gpu_count();
  if (state.setup.replaces()) return all;
  double factor = state.setup.max_factor;
  if (factor <= 0 && !is_unplanned(state, job)) return all;
  if (factor <= 0) factor = policy::kUnplannedFactor;
  const double cap = std::floor(factor * job.wanted_gpus);
  return std::max(job.wanted_gpus, static_cast<int>(std::min<double>(cap, all)));
}

/// View of a job whose GPUs measure its profile: one that runs with these alone, and of which
/// nothing is known.
policy::ElasticJobView profiling_view(const Job& job) {
  policy::ElasticJobView view;
  view.id = job.spec.id;
  view.basic_gpus = view.max_gpus = count(job.basic);
  view.per_worker = kPerGpu;
  for (const NodeGpus& part : job.basic) {
    view.basic_nodes.push_back(part.node);
    view.basic_gpu_masks.push_back(part.gpus);
  }
  view.submitted_s = job.spec.submit_s;
  view.started_s = job.times.pending_since_s;
  return view;
}

/// Returns the facts that slurmctld would know of the job.
policy::GrowthFacts growth_facts(const State& state, const Job& job) {
  using Slurmctld = policy::SimulationTraits::Slurmctld;
  const bool is_decided_by_slurmctld = state.setup.slurmctld() != Slurmctld::none;
  policy::GrowthFacts facts;
  facts.refuses = job.barred;
  facts.falls_short = !job.measured.trust.may_grow(state.now_s);
  facts.can_be_planned = job.measured.coefficients != nullptr;
  facts.lends_without_profile = is_decided_by_slurmctld;
  facts.awaits_profile = state.setup.slurmctld() == Slurmctld::after_profile_wait &&
                         state.now_s < job.measured.awaited_until_s;
  // GPUs owed to a job do not depend on its profile.
  facts.is_owed_some = is_decided_by_slurmctld && job.type.gpus + job.lent_gpus() < job.wanted_gpus;
  facts.now_s = state.now_s;
  facts.grows_after_s = job.grow_after;
  facts.is_settled = job.change.move == Move::none;
  return facts;
}

policy::ElasticJobView job_view(const State& state, const Job& job) {
  if (job.profiling) return profiling_view(job);
  policy::ElasticJobView view;
  view.id = job.spec.id;
  view.basic_gpus = job.type.gpus;
  view.max_gpus = max_gpus(state, job);
  if (job.wanted_gpus > job.type.gpus && !job.barred) view.wanted_gpus = job.wanted_gpus;
  if (!job.spec.elastic || job.barred) view.sizes = {job.type.gpus};
  view.per_worker = kPerGpu;
  for (const NodeGpus& part : job.basic) {
    view.basic_nodes.push_back(part.node);
    view.basic_gpu_masks.push_back(part.gpus);
  }
  const bool profiled = job.measured.coefficients != nullptr;
  const bool settled =
      job.change.move == Move::none && !job.barred && state.now_s >= job.grow_after;
  view.may_grow = policy::growth_hold(growth_facts(state, job)) == policy::GrowthHold::none;
  view.changing = !settled;
  view.may_replan = settled && profiled;
  view.moving = job.change.move != Move::none;
  view.starting = shows_starting(state, job);
  for (const LentGpus& companion : job.companions)
    view.companions.push_back({companion.id, companion.gpus.node,
                               kPerGpu * std::popcount(companion.gpus.gpus), companion.gpus.gpus,
                               companion.leaving || job.change.late.contains(companion.id),
                               companion.benefit});
  // slurmctld knows nothing of a training but its profile.
  if (profiled || state.setup.slurmctld() == policy::SimulationTraits::Slurmctld::none)
    view.training = training_of(state, job, policy::allocations_of(view, &state.cluster));
  view.remaining_samples = remaining_samples(state, job);
  if (job.spec.deadline_s > 0) view.deadline_s = job.spec.deadline_s;
  view.submitted_s = job.spec.submit_s;
  view.started_s = job.times.started_s;
  view.reconfigured_s = job.times.reconfigured_s;
  view.reconfigurations = job.outcome.reconfigurations;
  view.held_s = job.held_s;
  if (const auto way = state.setup.measured_way()) {
    view.method = redeploy::method_of(*way);
    view.measured_cost =
        redeploy::expected_cost(job.pauses, state.pauses, *way, job.spec.id, state.now_s);
  }
  return view;
}

policy::PendingDemand demand_view(const State& state, const Job& job, const PendingJob& waiting) {
  policy::PendingDemand demand;
  demand.id = waiting.id;
  demand.min_nodes = demand.max_nodes = waiting.demand.nodes;
  demand.per_node = kPerGpu * waiting.demand.per_node;
  if (state.cluster.types().size() > 1) demand.gpu_type = state.cluster.type(waiting.gpu_type).name;
  demand.submitted_s = job.spec.submit_s;
  if (state.awaits_table(job)) {
    demand.max_gpus = state.setup.gpus_to_profile(job);
    if (demand.max_gpus == 1) {
      demand.min_nodes = demand.max_nodes = 1;
      demand.per_node = kPerGpu;
    }
    return demand;
  }
  demand.max_gpus = max_gpus(state, job);
  if (state.setup.replaces() || job.spec.elastic) demand.training = training_of(state, job);
  if (state.setup.replaces()) {
    demand.remaining_samples = remaining_samples(state, job);
    demand.held_s = job.held_s;
    if (job.spec.deadline_s > 0) demand.deadline_s = job.spec.deadline_s;
  }
  return demand;
}

}  // namespace

std::vector<PendingJob> queue_of(const State& state) {
  std::vector<PendingJob> queue;
  for (policy::JobId id : state.pending) {
    const Job& job = state.jobs[id - 1];
    queue.push_back({id, job.demand, job.spec.submit_s, job.limit_s, job.type.gpu_type});
  }
  const std::size_t taken =
      state.setup.replaces() ? queue.size() : std::min(queue.size(), kLookedAt);
  std::partial_sort(
      queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken), queue.end(),
      [&](const PendingJob& a, const PendingJob& b) { return state.setup.order->before(a, b); });
  queue.resize(taken);
  return queue;
}

policy::ClusterView make_view(const State& state, const std::vector<PendingJob>& queue) {
  policy::ClusterView view;
  view.partitions.emplace_back();
  for (int node = 0; node < state.ledger.nodes(); ++node) {
    const cluster::Node& named = state.cluster.node(node);
    policy::NodeView seen;
    seen.name = named.name;
    seen.gpu_type = state.cluster.type(named.gpus.front()).name;
    if (state.ledger.is_up(node)) {
      seen.total = kPerGpu * static_cast<int>(named.gpus.size());
      seen.free_gpus = state.ledger.free(node);
      seen.free = kPerGpu * std::popcount(seen.free_gpus);
    }
    view.nodes.push_back(std::move(seen));
    view.partitions.front().push_back(node);
  }
  for (policy::JobId id : state.running) {
    const Job& job = state.jobs[id - 1];
    if (job.spec.elastic || state.setup.replaces()) view.jobs.push_back(job_view(state, job));
  }
  for (const PendingJob& waiting : queue)
    view.queue.push_back(demand_view(state, state.jobs[waiting.id - 1], waiting));
  view.now_s = state.now_s;
  view.submissions = state.submissions;
  view.machines = state.setup.cluster;
  return view;
}

}  // namespace swell::sim
