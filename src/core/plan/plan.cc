// SPDX-License-Identifier: BSD-3-Clause
#include "core/plan/plan.h"

#include <fmt/format.h>

#include "core/cluster/cluster.h"

namespace swell::plan {

namespace {

constexpr int kMaxCount = 1 << 20;

Result<TpGroup> read_group(const Json& json) {
  TpGroup group;
  auto node = json.string_at("node");
  if (!node) return node.error();
  auto type = json.string_at("gpu_type");
  if (!type) return type.error();
  auto batch = json.integer_at("local_batch", 0, kMaxCount);
  if (!batch) return batch.error();
  const Json gpus = json.at("gpus");
  if (!gpus.is_array()) return Error("\"gpus\" must be a list of GPU indexes");
  if (gpus.size() > cluster::kMaxGpusPerNode)
    return Error(fmt::format("\"gpus\" lists {} GPUs; a node has at most {}", gpus.size(),
                             cluster::kMaxGpusPerNode));
  for (const Json& gpu : gpus.items()) {
    if (!gpu.is_integer() || json_integer_value(gpu.get()) < 0 ||
        json_integer_value(gpu.get()) >= cluster::kMaxGpusPerNode)
      return Error(fmt::format("\"gpus\" holds {}; a GPU index is from 0 to {}", gpu.dump(),
                               cluster::kMaxGpusPerNode - 1));
    group.gpus.push_back(static_cast<int>(json_integer_value(gpu.get())));
  }
  group.node = *node;
  group.gpu_type = *type;
  group.local_batch = static_cast<int>(*batch);
  return group;
}

Result<Stage> read_stage(const Json& json) {
  Stage stage;
  auto layers = json.integer_at("layers", 0, kMaxCount);
  if (!layers) return layers.error();
  auto tp = json.integer_at("tp", 1, cluster::kMaxGpusPerNode);
  if (!tp) return tp.error();
  stage.layers = static_cast<int>(*layers);
  stage.tp = static_cast<int>(*tp);
  const Json groups = json.at("groups");
  if (!groups.is_array()) return Error("\"groups\" must be a list of TP groups");
  for (const Json& item : groups.items()) {
    auto group = read_group(item);
    if (!group) return group.error().while_doing(fmt::format("group {}", stage.groups.size()));
    stage.groups.push_back(*std::move(group));
  }
  return stage;
}

}  // namespace

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
    text += fmt::format("{}{}L dp{} tp{}", text.empty() ? "" : " | ", stage.layers, stage.dp(),
                        stage.tp);
  return text;
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
    for (const TpGroup& group : stage.groups)
      groups.append(Json::object({{"node", group.node},
                                  {"gpu_type", group.gpu_type},
                                  {"gpus", Json::array_of(group.gpus)},
                                  {"local_batch", group.local_batch}}));
    list.append(Json::object({{"layers", stage.layers}, {"tp", stage.tp}, {"groups", groups}}));
  }
  return Json::object({{"micro_batches", micro_batches}, {"stages", list}});
}

}  // namespace swell::plan
