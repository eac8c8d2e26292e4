// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/companion_identity.h"

#include <fmt/format.h>
#include <limits>
#include <strings.h>

#include "control/tag.h"

namespace swell::controller {

namespace {

/// Slurm gives whole cores out: CPUs that a task may get beyond what it asked for.
constexpr int kMaxThreadsPerCore = 8;

bool same_word(const std::string& a, const std::string& b) {
  return strcasecmp(a.c_str(), b.c_str()) == 0;
}

}  // namespace

std::optional<CompanionIdentity> identity_in(const slurm::JobRecord& record) {
  if (record.in_array || record.has_script || record.het_leader != 0) return std::nullopt;
  const auto tag = control::Tag::find(record.admin_comment);
  if (!tag) return std::nullopt;
  const auto parent = tag->number("parent");
  if (!parent || *parent < 1 || *parent > std::numeric_limits<control::JobId>::max())
    return std::nullopt;
  CompanionIdentity identity;
  identity.id = record.id;
  identity.parent = static_cast<control::JobId>(*parent);
  identity.uid = record.uid;
  identity.grant = tag->get("grant");
  if (identity.grant.empty()) return std::nullopt;
  return identity;
}

Result<void> check_identity(const slurm::JobRecord& record, const CompanionIdentity& companion) {
  const auto found = identity_in(record);
  if (!found || found->id != companion.id)
    return Error(fmt::format("job {} is not a companion", record.id));
  if (found->parent != companion.parent)
    return Error(fmt::format("job {} is a companion of job {}, not of job {}", record.id,
                             found->parent, companion.parent));
  if (found->grant != companion.grant)
    return Error(fmt::format("job {} was created on another grant", record.id));
  if (found->uid != companion.uid)
    return Error(fmt::format("job {} belongs to uid {}, not to uid {}", record.id, found->uid,
                             companion.uid));
  return {};
}

Result<void> check_within_grant(const slurm::JobRecord& record, const IssuedGrant& grant,
                                bool whole_nodes) {
  if (grant.gpus == 0) return {};  // a state file of an older version did not say
  auto more = [](const char* what, const auto& has, const auto& granted) {
    return Error(fmt::format("{}: it has {}, the grant is for {}", what, has, granted));
  };
  for (const std::string& node : record.nodes)
    if (node != grant.node) return more("node", node, grant.node);
  if (record.gpu_count() > grant.gpus) return more("GPUs", record.gpu_count(), grant.gpus);
  for (const slurm::GpuAllocation& held : record.gpus)
    if (held.gpus.type != grant.gpu_type && !grant.gpu_type.empty())
      return more("GPU type", held.gpus.type, grant.gpu_type);
  if (!grant.qos.empty() && !same_word(record.qos, grant.qos))
    return more("QOS", record.qos, grant.qos);
  if (!grant.partition.empty() && record.partition != grant.partition)
    return more("partition", record.partition, grant.partition);
  if (whole_nodes) return {};
  const std::int64_t rounded =
      std::int64_t{grant.cpus} + std::int64_t{grant.workers} * (kMaxThreadsPerCore - 1);
  if (record.cpus > rounded) return more("CPUs", record.cpus, grant.cpus);
  if (grant.memory_mib > 0 && record.memory_mib > grant.memory_mib)
    return more("MiB of memory", record.memory_mib, grant.memory_mib);
  return {};
}

}  // namespace swell::controller
