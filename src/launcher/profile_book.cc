// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/profile_book.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "core/number.h"
#include "core/perf/profile_json.h"
#include "core/slurm_text/lists.h"
#include "profiler/assemble.h"

namespace swell::launcher {

namespace {

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

/// Returns nullopt if the digits are not a list of bytes.
std::optional<std::string> bytes_of_digits(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int high = value_of(digits[i]), low = value_of(digits[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

/// Returns NCCL's figures of one step, over all ranks.
Json nccl_json(const std::vector<profiler::PlacedRank>& ranks) {
  double operations = 0, bytes = 0, device_s = 0, overhead = 0;
  int steps = 0;
  for (const profiler::PlacedRank& rank : ranks) {
    const profiler::NcclFigures& seen = rank.profile.nccl;
    steps = std::max(steps, seen.steps);
    operations += seen.operations;
    bytes += seen.bytes;
    device_s = std::max(device_s, seen.device_s);
    overhead = std::max(overhead, seen.overhead);
  }
  return Json::object({{"sampled_steps", steps},
                       {"operations", operations},
                       {"bytes", bytes},
                       {"max_device_s", device_s},
                       {"sampling_overhead", overhead}});
}

/// Copies the schedule of `decided`, a plan as text, to `plan` if both split the model alike;
/// copies the chunks, too, if no rank reports any.
void take_over(plan::Plan& plan, const std::string& decided, bool says_chunks) {
  if (decided.empty()) return;
  auto read = plan::Plan::parse(decided);
  if (!read) return;
  read->drop_plain_chunks();
  const auto alike = [&](const plan::Stage& one, const plan::Stage& other) {
    return one.layers == other.layers && one.tp == other.tp && one.dp() == other.dp() &&
           (!says_chunks || one.chunks == other.chunks);
  };
  if (read->micro_batches != plan.micro_batches ||
      !std::equal(plan.stages.begin(), plan.stages.end(), read->stages.begin(), read->stages.end(),
                  alike))
    return;
  for (std::size_t i = 0; i < plan.stages.size(); ++i)
    plan.stages[i].chunks = read->stages[i].chunks;
  plan.schedule = read->schedule;
}

}  // namespace

std::optional<Json> bounded_profile(const Json& profile, std::size_t max_bytes) {
  Json kept = Json::object();
  for (const auto& [key, value] : members(profile))
    if (key != "generation" && key != "step_s" && key != "nccl") kept.set(key.c_str(), value);
  if (kept.dump().size() <= max_bytes) return kept;
  const auto plan = plan::Plan::from_json(profile.at("plan"));
  if (!plan) return std::nullopt;
  Json groups = Json::array();
  std::set<std::pair<std::int64_t, int>> seen;
  for (const Json& group : profile.at("groups").items()) {
    const auto stage = group.integer_at("stage", 0, plan->pp() - 1);
    if (!stage) return std::nullopt;
    const plan::Stage& its = plan->stages[static_cast<std::size_t>(*stage)];
    const auto number = group.integer_at("group", 0, its.dp() - 1);
    if (!number) return std::nullopt;
    const plan::TpGroup& one = its.groups[static_cast<std::size_t>(*number)];
    if (seen.emplace(*stage, one.local_batch).second) groups.append(group);
  }
  kept.set("groups", groups);
  if (kept.dump().size() <= max_bytes) return kept;
  Json without_nodes = Json::array();
  for (const Json& group : groups.items()) {
    Json one = Json::object({});
    for (const auto& [key, value] : members(group))
      if (key != "nodes") one.set(key.c_str(), value);
    without_nodes.append(one);
  }
  kept.set("groups", without_nodes);
  return kept.dump().size() <= max_bytes ? std::optional<Json>(kept) : std::nullopt;
}

std::string hex_digits(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

std::vector<int> gpus_of(const WorkerNode& node, int local, int gpus_per_worker) {
  const std::vector<int> all = slurm_text::expand_indices(node.gpu_list, cluster::kMaxGpusPerNode);
  std::vector<int> its;
  for (int i = local * gpus_per_worker; i < (local + 1) * gpus_per_worker; ++i)
    its.push_back(i < static_cast<int>(all.size()) ? all[static_cast<std::size_t>(i)] : i);
  return its;
}

Result<void> ProfileBook::add(int generation, WorkerId worker, std::string_view digits) {
  if (generation < generation_) return {};
  const auto bytes = bytes_of_digits(digits);
  if (!bytes) return Error("a worker's profile is not in hexadecimal digits");
  auto read = profiler::read_rank_profile(*bytes);
  if (!read) return read.error();
  if (generation > generation_) reported_.clear();
  generation_ = generation;
  reported_[worker] = *read;
  return {};
}

Result<std::optional<Json>> ProfileBook::profile(int generation, const std::vector<Member>& members,
                                                 const std::string& decided) const {
  std::optional<Json> none;
  if (generation != generation_ || members.empty()) return none;
  std::vector<profiler::PlacedRank> ranks;
  std::vector<profiler::RankProfile> profiles;
  double step_s = 0;
  for (const Member& member : members) {
    const auto found = reported_.find(member.worker);
    if (found == reported_.end()) return none;
    ranks.push_back({member.node, "", member.gpus, found->second});
    profiles.push_back(found->second);
    step_s = std::max(step_s, found->second.times.step_s);
  }
  auto plan = profiler::plan_of(ranks);
  if (!plan) return plan.error();
  const bool says_chunks = std::any_of(profiles.begin(), profiles.end(),
                                       [](const auto& each) { return !each.role.chunks.empty(); });
  take_over(*plan, decided, says_chunks);
  const auto profile = profiler::assemble(*plan, profiles);
  if (!profile) return profile.error();
  Json json = perf::to_json(*profile);
  json.set("generation", generation);
  json.set("step_s", step_s);
  if (std::any_of(profiles.begin(), profiles.end(),
                  [](const auto& each) { return each.nccl.steps > 0; }))
    json.set("nccl", nccl_json(ranks));
  return std::optional<Json>(json);
}

}  // namespace swell::launcher
