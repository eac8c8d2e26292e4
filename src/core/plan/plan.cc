// SPDX-License-Identifier: BSD-3-Clause
#include "core/plan/plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cluster/cluster.h"
#include "core/count_of.h"
#include "core/models/model.h"
#include "core/plan/max_passes.h"
#include "core/schedule/named.h"
#include "core/schedule/text.h"

namespace swell::plan {

namespace {

constexpr int kMaxCount = 1 << 20;
constexpr std::size_t kMaxGroups = 65'536;  ///< of a stage
constexpr std::size_t kMaxChunks = 1024;    ///< of a stage
constexpr int kMaxUnits = 2 * kMaxCount;    ///< of a chunk: all layers, and what add_ends() adds
/// A stage of more groups is written by runs of equal ones.
constexpr std::size_t kWrittenOut = 64;

/// Equal groups in their order: on each of `nodes`, one for each `tp` of the GPUs.
struct Run {
  std::vector<std::string> nodes;
  TpGroup all;  ///< its GPUs: those of one node, of all its groups; its node: unused
};

Result<std::vector<std::string>> read_nodes(const Json& json) {
  if (!json.has("nodes")) {
    auto node = json.string_at("node");
    if (!node) return node.error();
    return std::vector{*std::move(node)};
  }
  const Json nodes = json.at("nodes");
  if (!nodes.is_array() || nodes.size() == 0) return Error("\"nodes\" must be a list of names");
  std::vector<std::string> names;
  for (const Json& name : nodes.items()) {
    if (!name.is_string())
      return Error(fmt::format("\"nodes\" holds {}; it must hold names", name.dump()));
    names.emplace_back(json_string_value(name.get()));
  }
  return names;
}

/// The GPUs of the read group are those of all groups of a node.
Result<TpGroup> read_group(const Json& json) {
  TpGroup group;
  auto type = json.string_at("gpu_type");
  if (!type) return type.error();
  auto batch = json.integer_at("local_batch", 0, kMaxCount);
  if (!batch) return batch.error();
  const Json gpus = json.at("gpus");
  if (!gpus.is_array()) return Error("\"gpus\" must be a list of GPU indexes");
  if (gpus.size() > cluster::kMaxGpusPerNode)
    return Error(fmt::format("\"gpus\" lists {}; a node has at most {}",
                             count_of(gpus.size(), "GPU"), cluster::kMaxGpusPerNode));
  for (const Json& gpu : gpus.items()) {
    if (!gpu.is_integer() || json_integer_value(gpu.get()) < 0 ||
        json_integer_value(gpu.get()) >= cluster::kMaxGpusPerNode)
      return Error(fmt::format("\"gpus\" holds {}; a GPU index is from 0 to {}", gpu.dump(),
                               cluster::kMaxGpusPerNode - 1));
    group.gpus.push_back(static_cast<int>(json_integer_value(gpu.get())));
  }
  group.gpu_type = *type;
  group.local_batch = static_cast<int>(*batch);
  return group;
}

/// Reads an item of "groups", one group or a run of them, into `groups`.
Result<void> read_groups(const Json& json, int tp, std::vector<TpGroup>& groups) {
  auto nodes = read_nodes(json);
  if (!nodes) return nodes.error();
  auto all = read_group(json);
  if (!all) return all.error();
  if (!json.has("nodes")) {
    all->node = std::move(nodes->front());
    groups.push_back(*std::move(all));
    return {};
  }
  const std::size_t degree = static_cast<std::size_t>(tp), gpus = all->gpus.size();
  if (gpus == 0 || gpus % degree != 0)
    return Error(fmt::format("\"gpus\" lists {} of each node; a multiple of tp={} is needed",
                             count_of(gpus, "GPU"), tp));
  if (groups.size() + nodes->size() * (gpus / degree) > kMaxGroups)
    return Error(fmt::format("a stage has at most {}", count_of(kMaxGroups, "group")));
  for (const std::string& node : *nodes)
    for (auto gpu = all->gpus.begin(); gpu != all->gpus.end(); gpu += tp)
      groups.push_back({node, all->gpu_type, {gpu, gpu + tp}, all->local_batch});
  return {};
}

/// Returns the groups of a stage as runs: first those of a node together, then equal nodes.
std::vector<Run> runs_of(const std::vector<TpGroup>& groups) {
  std::vector<Run> by_node, runs;
  for (const TpGroup& group : groups) {
    if (!by_node.empty() && by_node.back().nodes.front() == group.node &&
        by_node.back().all.gpu_type == group.gpu_type &&
        by_node.back().all.local_batch == group.local_batch &&
        by_node.back().all.gpus.size() + group.gpus.size() <= cluster::kMaxGpusPerNode)
      by_node.back().all.gpus.insert(by_node.back().all.gpus.end(), group.gpus.begin(),
                                     group.gpus.end());
    else by_node.push_back({{group.node}, {"", group.gpu_type, group.gpus, group.local_batch}});
  }
  for (Run& run : by_node)
    if (!runs.empty() && runs.back().all == run.all)
      runs.back().nodes.push_back(std::move(run.nodes.front()));
    else runs.push_back(std::move(run));
  return runs;
}

/// Only groups of `tp` GPUs each can be written by runs, since it is `tp` that parts a run again.
bool written_by_runs(const Stage& stage) {
  return stage.groups.size() > kWrittenOut &&
         std::all_of(stage.groups.begin(), stage.groups.end(), [&](const TpGroup& group) {
           return group.gpus.size() == static_cast<std::size_t>(stage.tp);
         });
}

Json item(const TpGroup& group, const char* key, Json nodes) {
  return Json::object({{key, std::move(nodes)},
                       {"gpu_type", group.gpu_type},
                       {"gpus", Json::array_of(group.gpus)},
                       {"local_batch", group.local_batch}});
}

Result<void> read_chunks(const Json& json, std::vector<int>& chunks) {
  if (!json.is_array() || json.size() == 0 || json.size() > kMaxChunks)
    return Error(fmt::format("\"chunks\" must be a list of 1 to {} numbers of units", kMaxChunks));
  for (const Json& item : json.items()) {
    if (!item.is_integer() || json_integer_value(item.get()) < 0 ||
        json_integer_value(item.get()) > kMaxUnits)
      return Error(fmt::format("\"chunks\" holds {}; a number of units is from 0 to {}",
                               item.dump(), kMaxUnits));
    chunks.push_back(static_cast<int>(json_integer_value(item.get())));
  }
  return {};
}

/// Chunk number `at` of the plan, in model order.
int& chunk_at(std::vector<Stage>& stages, std::size_t at) {
  return stages[at % stages.size()].chunks[at / stages.size()];
}

/// Turns chunks that count layers alone into chunks of units.
void add_ends(std::vector<Stage>& stages) {
  long layers = 0, units = 0;
  for (const Stage& stage : stages) {
    layers += stage.layers;
    units += stage.units();
    if (stage.chunks.size() != stages.front().chunks.size()) return;  // check_chunks() says it
  }
  if (units != layers || units == 0) return;
  std::size_t first = 0, last = stages.size() * stages.front().chunks.size() - 1;
  while (chunk_at(stages, first) == 0) ++first;
  while (chunk_at(stages, last) == 0) --last;
  ++chunk_at(stages, first);
  ++chunk_at(stages, last);
}

Result<Stage> read_stage(const Json& json) {
  Stage stage;
  auto layers = json.integer_at("layers", 0, kMaxCount);
  if (!layers) return layers.error();
  auto tp = json.integer_at("tp", 1, cluster::kMaxGpusPerNode);
  if (!tp) return tp.error();
  stage.layers = static_cast<int>(*layers);
  stage.tp = static_cast<int>(*tp);
  if (json.has("chunks"))
    if (auto read = read_chunks(json.at("chunks"), stage.chunks); !read) return read.error();
  const Json groups = json.at("groups");
  if (!groups.is_array()) return Error("\"groups\" must be a list of TP groups");
  for (const Json& item : groups.items()) {
    if (stage.groups.size() >= kMaxGroups)
      return Error(fmt::format("a stage has at most {}", count_of(kMaxGroups, "group")));
    if (auto read = read_groups(item, stage.tp, stage.groups); !read)
      return read.error().while_doing(fmt::format("group {}", stage.groups.size()));
  }
  return stage;
}

}  // namespace

long Stage::units() const noexcept {
  long sum = 0;
  for (const int chunk : chunks) sum += chunk;
  return sum;
}

Result<void> Plan::check_chunks() const {
  long layers = 0, units = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    if (stage.chunks.size() != stages.front().chunks.size())
      return Error(fmt::format("stage {} lists {}, stage 0 {}; all stages have the same number", i,
                               count_of(stage.chunks.size(), "chunk"),
                               stages.front().chunks.size()));
    for (const int chunk : stage.chunks)
      if (chunk < 0)
        return Error(
            fmt::format("stage {} has a chunk of {}; 0 is the least", i, count_of(chunk, "unit")));
    layers += stage.layers;
    units += stage.units();
    if (has_chunks() && stage.units() == 0)
      return Error(
          fmt::format("stage {} has no unit in any chunk; give it one, or leave it out", i));
  }
  if (!has_chunks()) return {};
  if (units < layers + 2 || (units - layers) % 2 != 0)
    return Error(fmt::format(
        "its chunks have {}; {} with embedding and head are {}, and each MTP head adds 2",
        count_of(units, "unit"), count_of(layers, "layer"), layers + 2));
  if (const long heads = (units - layers - 2) / 2; heads > models::kMostMtpHeads)
    return Error(fmt::format("its chunks have {}, which are {} beside {}; at most {} are possible",
                             count_of(units, "unit"), count_of(heads, "MTP head"),
                             count_of(layers, "layer"),
                             count_of(models::kMostMtpHeads, "MTP head")));
  if (static_cast<long>(stages.front().chunks.size()) > units)
    return Error(fmt::format("each stage lists {}; there are {}, and no more chunks are possible",
                             count_of(stages.front().chunks.size(), "chunk"),
                             count_of(units, "unit")));
  std::vector<long> found(stages.size(), 0);  // layers by stage: units 1 to `layers` of the model
  long next = 0;
  for (std::size_t chunk = 0; chunk < stages.front().chunks.size(); ++chunk)
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const long end = next + stages[i].chunks[chunk];
      found[i] += std::max(0L, std::min(end, layers + 1) - std::max(next, 1L));
      next = end;
    }
  for (std::size_t i = 0; i < stages.size(); ++i)
    if (found[i] != stages[i].layers)
      return Error(fmt::format("stage {} says {}, its chunks have {}; make them equal", i,
                               count_of(stages[i].layers, "layer"), found[i]));
  return {};
}

void Plan::drop_plain_chunks() {
  for (const Stage& stage : stages) {
    const int ends = (&stage == &stages.front() ? 1 : 0) + (&stage == &stages.back() ? 1 : 0);
    if (stage.chunks != std::vector{stage.layers + ends}) return;
  }
  for (Stage& stage : stages) stage.chunks.clear();
}

int Plan::gpu_count() const noexcept {
  int sum = 0;
  for (const Stage& stage : stages)
    for (const TpGroup& group : stage.groups) sum += static_cast<int>(group.gpus.size());
  return sum;
}

int Plan::micro_batch_samples() const noexcept {
  int sum = 0;
  if (stages.empty()) return 0;
  for (const TpGroup& group : stages.front().groups) sum += group.local_batch;
  return sum;
}

std::string Plan::summary() const {
  std::string text;
  for (const Stage& stage : stages)
    text += fmt::format("{}{}L{}{} dp{} tp{}", text.empty() ? "" : " | ", stage.layers,
                        stage.chunks.empty() ? "" : " in ", fmt::join(stage.chunks, "+"),
                        stage.dp(), stage.tp);
  if (schedule.empty()) return text;
  const auto& names = schedule::names();
  const bool has_name = std::find(names.begin(), names.end(), schedule) != names.end();
  return text + ", " + (has_name ? schedule : "a schedule of its own");
}

Result<void> Plan::check_schedule() const {
  if (schedule.empty()) return {};
  if (schedule.size() > schedule::kMaxText)
    return Error(
        fmt::format("\"schedule\" has {} bytes; at most {} are read, so repeat groups (*N)",
                    schedule.size(), schedule::kMaxText));
  const schedule::Shape shape{
      pp(), has_chunks() ? static_cast<int>(stages.front().chunks.size()) : 1, micro_batches};
  if (const long passes = static_cast<long>(shape.stages) * shape.chunks * shape.micro_batches;
      passes > kMaxPasses)
    return Error(fmt::format(
        "\"schedule\": {} of {} make {} of {}; at most {} are read, so use fewer chunks or micro-batches",
        count_of(shape.stages, "stage"), count_of(shape.chunks, "chunk"), count_of(passes, "pass"),
        count_of(shape.micro_batches, "micro-batch"), kMaxPasses));
  if (auto good = schedule::check_shape(shape); !good)
    return good.error().while_doing("\"schedule\"");
  const auto read = schedule::schedule_for(schedule, shape);
  return read ? Result<void>() : read.error().while_doing("\"schedule\"");
}

Result<Plan> Plan::from_json(const Json& json) {
  if (!json.is_object()) return Error("a plan is a JSON object");
  Plan plan;
  auto micro_batches = json.integer_at("micro_batches", 1, kMaxCount);
  if (!micro_batches) return micro_batches.error();
  plan.micro_batches = static_cast<int>(*micro_batches);
  const Json stages = json.at("stages");
  if (!stages.is_array()) return Error("\"stages\" must be a list of stages");
  for (const Json& item : stages.items()) {
    auto stage = read_stage(item);
    if (!stage) return stage.error().while_doing(fmt::format("stage {}", plan.stages.size()));
    plan.stages.push_back(*std::move(stage));
  }
  if (!plan.stages.empty()) add_ends(plan.stages);
  if (auto good = plan.check_chunks(); !good) return good.error();
  if (!json.has("schedule")) return plan;
  auto schedule = json.string_at("schedule");
  if (!schedule) return schedule.error();
  plan.schedule = *std::move(schedule);
  if (auto good = plan.check_schedule(); !good) return good.error();
  return plan;
}

Result<Plan> Plan::parse(std::string_view text) {
  auto json = Json::parse(text);
  if (!json) return json.error();
  return from_json(*json);
}

Json Plan::to_json() const {
  Json list = Json::array();
  for (const Stage& stage : stages) {
    Json groups = Json::array();
    if (written_by_runs(stage))
      for (const Run& run : runs_of(stage.groups))
        groups.append(item(run.all, "nodes", Json::array_of(run.nodes)));
    else
      for (const TpGroup& group : stage.groups) groups.append(item(group, "node", group.node));
    Json written = Json::object({{"layers", stage.layers}, {"tp", stage.tp}, {"groups", groups}});
    if (!stage.chunks.empty()) written.set("chunks", Json::array_of(stage.chunks));
    list.append(written);
  }
  Json json = Json::object({{"micro_batches", micro_batches}, {"stages", list}});
  if (!schedule.empty()) json.set("schedule", schedule);
  return json;
}

}  // namespace swell::plan
