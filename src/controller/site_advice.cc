// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/site_advice.h"

#include <fmt/format.h>
#include <utility>

#include "base/mutex.h"
#include "control/elastic_spec.h"
#include "core/policy/registry.h"
#include "slurm/site_config.h"

namespace swell::controller {

namespace {

/// How often what submissions are told of the site is looked up anew.
constexpr auto kSiteFactsKept = std::chrono::minutes(5);

control::SiteFacts facts_of(const slurm::Snapshot& snapshot, const Config& config) {
  control::SiteFacts facts;
  for (const slurm::NodeRecord& node : snapshot.nodes)
    for (const slurm::GpuRequest& gpus : node.gpus) facts.gpus_by_type[gpus.type] += gpus.count;
  facts.max_gpus_per_job = config.max_gpus_per_job;
  facts.keeps_deadlines =
      policy::policy_takes_objectives(config.policy) && policy::keeps_deadlines(config.objective);
  return facts;
}

/// GraceTime of the QOS or partition that companions run in; nothing where slurmctld does not say.
std::optional<int> grace_of_expansions(const Config& config) {
  if (!config.expansion_qos.empty()) {
    const auto grace = slurm::load_qos_grace(config.expansion_qos);
    return grace ? std::optional<int>(static_cast<int>(*grace)) : std::nullopt;
  }
  if (const auto partitions = slurm::load_site_partitions())
    for (const slurm::SitePartition& each : *partitions)
      if (each.name == config.expansion_partition) return static_cast<int>(each.grace_s);
  return std::nullopt;
}

/// Longest grace of any job where the site sets none: neither MaxGrace nor a GraceTime.
constexpr int kUnsetGrace_s = 300;

int longest_grace(const Config& config, std::optional<int> grace_of_place) {
  if (config.max_grace_s > 0) return config.max_grace_s;
  return grace_of_place && *grace_of_place > 0 ? *grace_of_place : kUnsetGrace_s;
}

}  // namespace

int SiteAdvice::max_grace_s() {
  Lock lock(mutex_);
  return facts_.max_grace_s;
}

std::set<std::string> SiteAdvice::gpu_types() {
  Lock lock(mutex_);
  std::set<std::string> types;
  for (const auto& [type, count] : facts_.gpus_by_type)
    if (!type.empty()) types.insert(type);
  return types;
}

void SiteAdvice::set_draining(bool draining) {
  Lock lock(mutex_);
  facts_.draining = draining;
}

bool SiteAdvice::draining() {
  Lock lock(mutex_);
  return facts_.draining;
}

void SiteAdvice::learn(const slurm::Snapshot& snapshot, const Config& config,
                       bool changes_gpu_types) {
  const auto now = std::chrono::steady_clock::now();
  if (snapshot.nodes.empty() || (learnt_ && now - *learnt_ < kSiteFactsKept)) return;
  control::SiteFacts facts = facts_of(snapshot, config);
  facts.changes_gpu_types = changes_gpu_types;
  facts.grace_s = grace_of_expansions(config);
  facts.max_grace_s = longest_grace(config, facts.grace_s);
  learnt_ = now;
  Lock lock(mutex_);
  facts.draining = facts_.draining;
  facts_ = std::move(facts);
}

std::string SiteAdvice::on(const SubmitRequest& request) {
  const auto spec = control::ElasticSpec::parse(*request.elastic);
  if (!spec) return {};
  control::SiteFacts facts;
  {
    Lock lock(mutex_);
    facts = facts_;
  }
  std::string text;
  for (const std::string& each : control::advice(*spec, basic_gpus_of(request), facts))
    text += fmt::format("{}--elastic: {}", text.empty() ? "" : "\n", each);
  return text;
}

}  // namespace swell::controller
