// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/planning.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/mutex.h"
#include "control/quiet_thread.h"
#include "core/helpers.h"

namespace swell::controller {

namespace {

/// As other background threads in slurmctld: it gives way to slurmctld's own.
constexpr int kNiceness = 10;

/// Time that one solve may take.
constexpr std::chrono::seconds kSolveTime{5};

void be_nice() { setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness); }

bool holds_the_same(const policy::ElasticJobView& a, const policy::ElasticJobView& b) {
  return std::equal(a.companions.begin(), a.companions.end(), b.companions.begin(),
                    b.companions.end(), [](const auto& one, const auto& other) {
                      return one.id == other.id && one.leaving == other.leaving;
                    });
}

const policy::ElasticJobView* find(const policy::ClusterView& view, policy::JobId id) {
  for (const policy::ElasticJobView& job : view.jobs)
    if (job.id == id) return &job;
  return nullptr;
}

}  // namespace

Planning::Planning(const policy::Policy& policy, std::function<void()> ready)
    : policy_(policy), scales_(policy.row_filter()), ready_(std::move(ready)) {
  thread_ = control::quiet_thread("swell-plan", [this] { run(); });
}

Planning::~Planning() {
  {
    const Lock lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool Planning::is_busy() const {
  const Lock lock(mutex_);
  return is_busy_;
}

void Planning::start(policy::ClusterView view) {
  const Lock lock(mutex_);
  wanted_ = std::move(view);
  is_busy_ = true;
  changed_.notify_all();
}

std::optional<Decided> Planning::take(std::chrono::milliseconds patience) {
  Lock lock(mutex_);
  if (!is_busy_) return std::nullopt;
  changed_.wait_for(lock, patience, [this]() SWELL_REQUIRES(mutex_) { return made_.has_value(); });
  if (!made_) return std::nullopt;
  is_busy_ = false;
  return std::exchange(made_, std::nullopt);
}

void Planning::run() {
  be_nice();
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this]() SWELL_REQUIRES(mutex_) { return stops_ || wanted_; });
    if (stops_) return;
    Decided made;
    made.view = std::move(*wanted_);
    wanted_.reset();
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    try {
      made.decisions = policy_.decide(made.view);
      for (const policy::ElasticJobView& job : made.view.jobs)
        if (auto table = scales_.of(job, made.view); !table.rows.empty())
          made.scales[job.id] = std::move(table);
    } catch (const std::exception& problem) { made.problem = problem.what(); }
    made.took_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    lock.lock();
    made_ = std::move(made);
    changed_.notify_all();
    if (!ready_) continue;
    lock.unlock();
    ready_();
    lock.lock();
  }
}

planner::Budget solve_budget() {
  const auto end = std::chrono::steady_clock::now() + kSolveTime;
  return {[end] { return std::chrono::steady_clock::now() >= end; }};
}

std::shared_ptr<Executor> planning_helpers() {
  if (std::thread::hardware_concurrency() < 2) return nullptr;
  try {
    return std::make_shared<Helpers>(1, [](std::function<void()> body) {
      return control::quiet_thread("swell-plan", [body = std::move(body)] {
        be_nice();
        body();
      });
    });
  } catch (const std::system_error&) { return nullptr; }  // there can be no more threads
}

policy::Decisions still_good(const Decided& decided, const policy::ClusterView& now) {
  policy::Decisions good;
  good.reclaim_order = decided.decisions.reclaim_order;
  good.unlikely = decided.decisions.unlikely;
  std::map<std::string, policy::NodeIndex> index;
  std::vector<policy::Resources> free;
  for (std::size_t i = 0; i < now.nodes.size(); ++i) {
    index[now.nodes[i].name] = static_cast<policy::NodeIndex>(i);
    free.push_back(now.nodes[i].free);
  }
  std::set<policy::JobId> waiting, spoilt;
  for (const policy::PendingDemand& demand : now.queue) waiting.insert(demand.id);
  for (const policy::Reclaim& reclaim : decided.decisions.reclaims)
    if (reclaim.needed_by == 0 || waiting.contains(reclaim.needed_by))
      good.reclaims.push_back(reclaim);
    else spoilt.insert(reclaim.job);

  std::map<policy::JobId, std::vector<policy::Grant>> grants;
  for (policy::Grant grant : decided.decisions.grants) {
    const policy::ElasticJobView *then = find(decided.view, grant.job), *job = find(now, grant.job);
    const auto node = index.find(decided.view.nodes[static_cast<std::size_t>(grant.node)].name);
    if (then == nullptr || job == nullptr || !job->may_grow || !holds_the_same(*then, *job) ||
        node == index.end()) {
      spoilt.insert(grant.job);
      continue;
    }
    grant.node = node->second;
    grants[grant.job].push_back(grant);
  }
  for (const auto& [job, its] : grants) {
    if (spoilt.contains(job)) continue;
    const std::vector<policy::Resources> before = free;
    bool fits = true;
    for (const policy::Grant& grant : its) {
      policy::Resources& left = free[static_cast<std::size_t>(grant.node)];
      fits = fits && left.covers(grant.lent) &&
             !now.nodes[static_cast<std::size_t>(grant.node)].settling;
      left -= grant.lent;
    }
    if (fits) {
      good.grants.insert(good.grants.end(), its.begin(), its.end());
    } else {
      free = before;
      spoilt.insert(job);
    }
  }
  std::set<policy::JobId> changing;
  for (const policy::Grant& grant : decided.decisions.grants) changing.insert(grant.job);
  for (const policy::Reclaim& reclaim : decided.decisions.reclaims) changing.insert(reclaim.job);
  for (const policy::NewPlan& plan : decided.decisions.plans) {
    if (spoilt.contains(plan.job)) continue;
    const policy::ElasticJobView *then = find(decided.view, plan.job), *job = find(now, plan.job);
    if (changing.contains(plan.job) || (then != nullptr && job != nullptr && job->may_replan &&
                                        then->may_replan && holds_the_same(*then, *job)))
      good.plans.push_back(plan);
  }
  return good;
}

}  // namespace swell::controller
