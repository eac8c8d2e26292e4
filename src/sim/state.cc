// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/state.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/policy/growth_hold.h"
#include "sim/explain.h"

namespace swell::sim {

namespace {

// Iterations until a speed is stable: a window of five sets after some warm-up.
constexpr double kReportIterations = 10;

/// Plan of `type` where a cluster that is empty would start it.
plan::Layout first_plan(const JobSpec& spec, const JobType& type, const cluster::Cluster& cluster) {
  const auto gpus = first_gpus(type.gpus, cluster, type.gpu_type);
  auto plan = gpus ? basic_layout(type, *gpus, cluster) : std::nullopt;
  if (!plan) throw Broken(fmt::format("job {} ({}) fits nowhere", spec.id, type.model->name));
  return std::move(*plan);
}

}  // namespace

GpuSet Job::held(bool with_leaving) const {
  std::map<int, plan::GpuMask> nodes;
  for (const NodeGpus& part : basic) nodes[part.node] |= part.gpus;
  for (const LentGpus& companion : companions)
    if (with_leaving || !companion.leaving) nodes[companion.gpus.node] |= companion.gpus.gpus;
  GpuSet set;
  for (auto [node, gpus] : nodes) set.push_back({node, gpus});
  return set;
}

int Job::lent_gpus() const noexcept {
  int sum = 0;
  for (const LentGpus& companion : companions) sum += std::popcount(companion.gpus.gpus);
  return sum;
}

bool Job::starting(double now_s, double for_s) const noexcept {
  return phase == Phase::running && change.move == Move::none && !measured.coefficients &&
         companions.empty() && now_s - times.started_s < for_s;
}

State::State(const Setup& its_setup)
    : setup(its_setup),
      cluster(*its_setup.cluster),
      ledger(cluster),
      kept(cluster.nodes().size(), 0) {
  jobs.reserve(setup.workload->jobs.size());
  for (const JobSpec& spec : setup.workload->jobs) {
    const JobType& traced = setup.workload->type_of(spec);
    const bool fewer = spec.consents && traced.least && setup.honours_consent();
    Job& job = jobs.emplace_back(spec, fewer ? *traced.least : traced, cluster, setup.seed);
    job.outcome = {spec.id, spec.type, traced.gpus, spec.elastic, spec.submit_s};
    job.outcome.consents = fewer;
    job.outcome.deadline_s = spec.deadline_s;
    const plan::Layout plan = first_plan(spec, traced, cluster);
    job.wanted_gpus = traced.gpus;
    job.limit_s = spec.limit_s;
    job.progress = TrainingProgress(spec.basic_s / job.truth.iteration_s(plan));
    job.basic_plan = fewer ? first_plan(spec, job.type, cluster) : plan;
    job.outcome.basic_s = job.progress.iterations() * job.truth.iteration_s(job.basic_plan);
    // Its user knows that it takes longer where it gets no more.
    if (fewer) job.limit_s *= job.truth.iteration_s(job.basic_plan) / job.truth.iteration_s(plan);
    plan_event(spec.submit_s, Event::Kind::submission, spec.id);
  }
  unfinished = static_cast<int>(jobs.size());
  outcome.gpus = cluster.gpu_count();
}

void State::plan_event(double at_s, Event::Kind kind, policy::JobId job, long stamp, int node) {
  events.push({at_s, ++next_event_, kind, job, stamp, node});
}

void State::set_training(Job& job, bool trains) {
  job.progress.set_rate(trains ? 1 / job.truth.iteration_s(job.current) : 0, now_s);
  if (trains) job.measured.max_gpus = std::max(job.measured.max_gpus, job.current.gpu_count());
  if (trains)
    plan_event(job.progress.ends_s(), Event::Kind::end, job.spec.id, job.progress.stamp());
}

void State::note_submission(const Job& job) {
  std::vector<policy::Submission> all;
  if (submissions) {
    const std::size_t kept = std::min(submissions->size(), policy::kMaxSubmissions - 1);
    all.assign(submissions->end() - static_cast<std::ptrdiff_t>(kept), submissions->end());
  }
  all.push_back({job.spec.submit_s, job.wanted_gpus});
  submissions = std::make_shared<const std::vector<policy::Submission>>(std::move(all));
}

void State::make_pending(Job& job) {
  job.phase = Phase::pending;
  job.times.pending_since_s = now_s;
  job.offered = false;
  ++job.version;
  pending.push_back(job.spec.id);
  changed = true;
  // Profiled beforehand: that time is not counted (Suika, footnote 8). Jobs that run as they are
  // need no table.
  const bool is_given = setup.profiles == Profiles::before ||
                        (setup.profiles != Profiles::running && !job.spec.elastic);
  if (setup.replaces() && is_given && !job.measured.coefficients)
    job.measured.coefficients =
        job.truth.profile(job.basic_plan, setup.prediction_error, setup.reporting);
}

void State::start(Job& job, const GpuSet& gpus, plan::Layout plan) {
  ledger.take(gpus, {job.spec.id, 0});
  job.basic = gpus;
  std::erase(pending, job.spec.id);
  running.push_back(job.spec.id);
  job.phase = Phase::running;
  job.change.move = Move::none;
  job.outcome.waited_s += now_s - job.times.pending_since_s;
  if (!job.ran) job.outcome.start_s = now_s;
  job.ran = true;
  job.times.started_s = job.times.reconfigured_s = now_s;
  job.progress.begin(now_s);
  if (!setup.replaces())
    job.basic_plan = plan;  // there it stays what the user wrote: jobs may start with another size
  job.current = std::move(plan);
  job.grow_after = 0;
  job.history.clear();
  ++job.version;
  changed = true;
  set_training(job, true);
  plan_profile(job);
  if (!setup.policy || !job.spec.elastic) return;
  using Slurmctld = policy::SimulationTraits::Slurmctld;
  const Slurmctld as = setup.slurmctld();
  if (as == Slurmctld::none ? setup.policy->simulation_traits().lends_at_start
                            : as == Slurmctld::as_it_starts || job.wanted_gpus > job.type.gpus)
    to_decide = true;
  if (as == Slurmctld::after_profile_wait) {
    job.measured.awaited_until_s =
        now_s + policy::whole_profile_wait(1 / job.progress.rate(), setup.clocks->profile_wait_s);
    plan_event(job.measured.awaited_until_s, Event::Kind::trusted);
  }
}

bool State::awaits_table(const Job& job) const noexcept {
  return setup.replaces() && job.phase == Phase::pending && !job.measured.coefficients &&
         job.spec.elastic &&
         (setup.profiles == Profiles::alone || setup.profiles == Profiles::full);
}

void State::start_profile(Job& job, const GpuSet& gpus) {
  ledger.take(gpus, {job.spec.id, 0});
  job.basic = gpus;
  std::erase(pending, job.spec.id);
  running.push_back(job.spec.id);
  job.phase = Phase::running;
  job.profiling = true;
  ++job.version;
  const double takes_s = setup.profile_s >= 0 ? setup.profile_s : profile_s(setup.profiles);
  outcome.profile_gpu_s += takes_s * count(gpus);
  plan_event(now_s + takes_s, Event::Kind::tabled, job.spec.id, job.version);
}

void State::end_profile(Job& job) {
  ledger.give_back(job.basic, {job.spec.id, 0});
  job.basic.clear();
  job.profiling = false;
  std::erase(running, job.spec.id);
  job.measured.coefficients =
      job.truth.profile(job.basic_plan, setup.prediction_error, setup.reporting);
  const double since_s = job.times.pending_since_s;
  make_pending(job);
  job.times.pending_since_s = since_s;
}

void State::start_anew(Job& job, plan::Layout plan) {
  job.progress.fall_back(now_s);
  job.times.reconfigured_s = now_s;
  job.current = std::move(plan);
  ++job.version;
  changed = true;
  set_training(job, true);
  plan_profile(job);
}

void State::plan_profile(Job& job) {
  if (job.measured.coefficients || !setup.policy) return;
  job.measured.profiled_s = now_s + setup.reporting.steps / job.progress.rate();
  plan_event(job.measured.profiled_s, Event::Kind::profile, job.spec.id);
}

void State::plan_report(Job& job) {
  if (setup.policy && !setup.replaces() && job.progress.rate() > 0)
    plan_event(now_s + kReportIterations / job.progress.rate(), Event::Kind::report, job.spec.id,
               job.version);
}

void State::drop_companions(Job& job) {
  for (const LentGpus& companion : job.companions)
    ledger.give_back(companion.gpus, {job.spec.id, companion.id});
  job.companions.clear();
  job.change.late.clear();
  changed = to_decide = true;
}

void State::end(Job& job) {
  job.progress.advance(now_s);
  end_change(*this, job);
  drop_companions(job);
  ledger.give_back(job.basic, {job.spec.id, 0});
  job.basic.clear();
  job.phase = Phase::done;
  job.outcome.end_s = now_s;
  ++job.version;
  std::erase(running, job.spec.id);
  --unfinished;
  outcome.makespan_s = std::max(outcome.makespan_s, now_s);
}

}  // namespace swell::sim
