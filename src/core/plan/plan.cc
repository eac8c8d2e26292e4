// SPDX-License-Identifier: BSD-3-Clause
#include "core/plan/plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <string_view>
#include <tuple>

#include "core/cluster/cluster.h"
#include "core/count_of.h"
#include "core/models/model.h"
#include "core/plan/max_passes.h"
#include "core/schedule/named.h"
#include "core/schedule/text.h"

namespace swell::plan {

namespace {

constexpr int kMaxCount = 1 << 20;
constexpr std::size_t kMaxGroups = 65'536;  ///< of all stages together
constexpr std::size_t kMaxName = 256;       ///< bytes of a node's or a type's name in a table
constexpr std::size_t kMaxChunks = 1024;    ///< chunks of a stage
/// Units of a chunk: all layers, and the units that add_ends() adds.
constexpr int kMaxUnits = 2 * kMaxCount;
/// Plans with more groups are written by runs of equal ones, or as tables.
constexpr std::size_t kWrittenOut = 64;
constexpr std::size_t kLeastShared = 6;  ///< minimum of shared bytes that two numbers replace
constexpr long kLeastRun = 4;            ///< minimum number of equal numbers that a pair replaces

/// Equal groups in their order: on each of `nodes`, one for every `tp` GPUs.
struct Run {
  std::vector<std::string> nodes;
  TpGroup all;  ///< its GPUs are those of all groups of one node; its node is unused
};

Result<std::vector<std::string>> read_nodes(const Json& json) {
  if (!json.has("nodes")) {
    auto node = json.string_at("node");
    if (!node) return node.error();
    return std::vector{*std::move(node)};
  }
  const Json nodes = json.at("nodes");
  if (!is_array(nodes) || nodes.size() == 0) return Error("\"nodes\" must be a list of names");
  std::vector<std::string> names;
  for (const Json& name : nodes.items()) {
    if (!is_string(name))
      return Error(fmt::format("\"nodes\" holds {}; it must hold names", name.dump()));
    names.emplace_back(json_string_value(name.get()));
  }
  return names;
}

/// Reads a group. In a run, its GPUs are those of all groups of a node.
Result<TpGroup> read_group(const Json& json) {
  TpGroup group;
  auto type = json.string_at("gpu_type");
  if (!type) return type.error();
  auto batch = json.integer_at("local_batch", 0, kMaxCount);
  if (!batch) return batch.error();
  const Json gpus = json.at("gpus");
  if (!is_array(gpus)) return Error("\"gpus\" must be a list of GPU indexes");
  if (gpus.size() > cluster::kMaxGpusPerNode)
    return Error(fmt::format("\"gpus\" lists {}; a node has at most {}",
                             count_of(gpus.size(), "GPU"), cluster::kMaxGpusPerNode));
  for (const Json& gpu : gpus.items()) {
    if (!is_integer(gpu) || json_integer_value(gpu.get()) < 0 ||
        json_integer_value(gpu.get()) >= cluster::kMaxGpusPerNode)
      return Error(fmt::format("\"gpus\" holds {}; a GPU index is from 0 to {}", gpu.dump(),
                               cluster::kMaxGpusPerNode - 1));
    group.gpus.push_back(static_cast<int>(json_integer_value(gpu.get())));
  }
  group.gpu_type = *type;
  group.local_batch = static_cast<int>(*batch);
  return group;
}

Error too_many_groups() {
  return Error(fmt::format("a plan has at most {}", count_of(kMaxGroups, "group")));
}

/// Reads a column of a table: whole numbers from 0 to `max`, or pairs of a number and its count.
/// The column may have at most `most` numbers in total.
Result<std::vector<int>> read_column(const Json& json, const char* key, int max, std::size_t most) {
  const Json column = json.at(key);
  if (!is_array(column)) return Error(fmt::format("\"{}\" must be a list of numbers", key));
  std::vector<int> values;
  for (const Json& item : column.items()) {
    const bool pair = is_array(item) && item.size() == 2;
    const Json number = pair ? item.at(std::size_t{0}) : item;
    const Json times = pair ? item.at(std::size_t{1}) : Json(1);
    const json_int_t value = json_integer_value(number.get());
    const json_int_t count = json_integer_value(times.get());
    if (!is_integer(number) || !is_integer(times) || value < 0 || value > max || count < 1)
      return Error(
          fmt::format("\"{}\" holds {}; it must hold numbers from 0 to {}, or [NUMBER, TIMES]", key,
                      item.dump(), max));
    if (count > static_cast<json_int_t>(most - values.size()))
      return Error(fmt::format("\"{}\" has more than {}", key, count_of(most, "number")));
    values.insert(values.end(), static_cast<std::size_t>(count), static_cast<int>(value));
  }
  return values;
}

/// Reads the names of a table. [N, TEXT, M] stands for the first N bytes of the name before, TEXT,
/// and its last M bytes.
Result<std::vector<std::string>> read_names(const Json& json, const char* key) {
  const Json list = json.at(key);
  if (!is_array(list) || list.size() == 0)
    return Error(fmt::format("\"{}\" must be a list of names", key));
  std::vector<std::string> names;
  for (const Json& item : list.items()) {
    const std::string_view before = names.empty() ? std::string_view() : names.back();
    const bool parts = is_array(item) && item.size() == 3;
    const Json text = parts ? item.at(std::size_t{1}) : item;
    const auto shared = [&](std::size_t at) {
      return parts && is_integer(item.at(at)) ? json_integer_value(item.at(at).get())
             : parts                          ? -1
                                              : 0;
    };
    const json_int_t first = shared(0), last = shared(2);
    const auto most = static_cast<json_int_t>(before.size());
    if (!is_string(text) || first < 0 || last < 0 || first > most || last > most - first)
      return Error(
          fmt::format("\"{}\" holds {}; it must hold names, or [FIRST BYTES OF THE LAST "
                      "NAME, TEXT, LAST BYTES OF IT]",
                      key, item.dump()));
    std::string name(before.substr(0, static_cast<std::size_t>(first)));
    name += json_string_value(text.get());
    name += before.substr(before.size() - static_cast<std::size_t>(last));
    if (name.size() > kMaxName)
      return Error(fmt::format("\"{}\" holds a name of {} bytes; at most {} are read", key,
                               name.size(), kMaxName));
    names.push_back(std::move(name));
  }
  return names;
}

/// Reads a table of groups. Each column has one number for each group; "gpus" has `tp` numbers.
Result<void> read_table(const Json& json, int tp, std::size_t room, std::vector<TpGroup>& groups) {
  const auto names = read_names(json, "names"), types = read_names(json, "types");
  if (!names) return names.error();
  if (!types) return types.error();
  const auto nodes = read_column(json, "node", static_cast<int>(names->size()) - 1, room);
  if (!nodes) return nodes.error();
  const std::size_t count = nodes->size(), degree = static_cast<std::size_t>(tp);
  const auto kinds = read_column(json, "gpu_type", static_cast<int>(types->size()) - 1, count);
  const auto batches = read_column(json, "local_batch", kMaxCount, count);
  const auto gpus = read_column(json, "gpus", cluster::kMaxGpusPerNode - 1, count * degree);
  for (const auto* column : {&kinds, &batches, &gpus})
    if (!*column) return column->error();
  if (kinds->size() != count || batches->size() != count || gpus->size() != count * degree)
    return Error(fmt::format(
        "\"node\" has {}, \"gpu_type\" {}, \"local_batch\" {} and \"gpus\" {}; a table has as many "
        "of each, and tp={} times as many GPUs",
        count_of(count, "number"), kinds->size(), batches->size(), gpus->size(), tp));
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = gpus->begin() + static_cast<std::ptrdiff_t>(i * degree);
    groups.push_back({(*names)[static_cast<std::size_t>((*nodes)[i])],
                      (*types)[static_cast<std::size_t>((*kinds)[i])],
                      {first, first + tp},
                      (*batches)[i]});
  }
  return {};
}

/// Reads an item of "groups" (one group, a run or a table) into `groups`, at most `room` groups.
Result<void> read_groups(const Json& json, int tp, std::size_t room, std::vector<TpGroup>& groups) {
  if (json.has("names")) return read_table(json, tp, room, groups);
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
  if (nodes->size() * (gpus / degree) > room) return too_many_groups();
  for (const std::string& node : *nodes)
    for (auto gpu = all->gpus.begin(); gpu != all->gpus.end(); gpu += tp)
      groups.push_back({node, all->gpu_type, {gpu, gpu + tp}, all->local_batch});
  return {};
}

/// Returns the groups of a stage as runs: merges the groups of a node first, then equal nodes.
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

/// Returns whether all groups have `width` GPUs, TP x CP. Only then can they be written as runs or
/// a table, since the reader splits the GPUs by this number.
bool has_equal_degrees(const Stage& stage, int width) {
  return std::all_of(stage.groups.begin(), stage.groups.end(), [&](const TpGroup& group) {
    return group.gpus.size() == static_cast<std::size_t>(width);
  });
}

Json item(const TpGroup& group, const char* key, Json nodes) {
  return Json::object({{key, std::move(nodes)},
                       {"gpu_type", group.gpu_type},
                       {"gpus", array_of(group.gpus)},
                       {"local_batch", group.local_batch}});
}

/// Numbers names in the order of their first use.
class Names {
 public:
  int number_of(const std::string& name) {
    const auto [found, is_new] = numbers_.try_emplace(name, static_cast<int>(names_.size()));
    if (is_new) names_.push_back(name);
    return found->second;
  }
  /// Returns whether all names are short enough for read_names().
  bool are_short() const {
    return std::all_of(names_.begin(), names_.end(),
                       [](const std::string& name) { return name.size() <= kMaxName; });
  }
  /// Writes the form that read_names() reads. Shares parts of names only if they are ASCII, since
  /// bytes of other names are not characters.
  Json to_json() const {
    Json list = Json::array();
    std::string_view before;
    for (const std::string_view name : names_) {
      const auto alike = [&](auto its, auto end, auto other, auto others_end) {
        return static_cast<std::size_t>(std::mismatch(its, end, other, others_end).first - its);
      };
      const std::size_t first = alike(name.begin(), name.end(), before.begin(), before.end());
      const std::size_t last =
          alike(name.rbegin(), name.rend() - static_cast<std::ptrdiff_t>(first), before.rbegin(),
                before.rend() - static_cast<std::ptrdiff_t>(first));
      const bool ascii = std::all_of(name.begin(), name.end(),
                                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
      list.append(ascii && first + last >= kLeastShared
                      ? Json::array({first, name.substr(first, name.size() - first - last), last})
                      : Json(name));
      before = name;
    }
    return list;
  }

 private:
  std::map<std::string, int> numbers_;
  std::vector<std::string> names_;
};

/// Writes the form that read_column() reads.
Json column(const std::vector<int>& values) {
  Json list = Json::array();
  for (auto value = values.begin(); value != values.end();) {
    const auto end = std::find_if(value, values.end(), [&](int other) { return other != *value; });
    if (end - value >= kLeastRun) list.append(Json::array({*value, end - value}));
    else
      for (auto each = value; each != end; ++each) list.append(*each);
    value = end;
  }
  return list;
}

Json runs(const std::vector<TpGroup>& groups) {
  Json list = Json::array();
  for (const Run& run : runs_of(groups)) list.append(item(run.all, "nodes", array_of(run.nodes)));
  return list;
}

/// Writes the groups as one table; returns an empty list if read_table() would reject it.
Json table(const std::vector<TpGroup>& groups) {
  Names names, types;
  std::vector<int> nodes, kinds, batches, gpus;
  for (const TpGroup& group : groups) {
    nodes.push_back(names.number_of(group.node));
    kinds.push_back(types.number_of(group.gpu_type));
    batches.push_back(group.local_batch);
    gpus.insert(gpus.end(), group.gpus.begin(), group.gpus.end());
  }
  if (!names.are_short() || !types.are_short()) return Json::array();
  return Json::array({Json::object({{"names", names.to_json()},
                                    {"types", types.to_json()},
                                    {"node", column(nodes)},
                                    {"gpu_type", column(kinds)},
                                    {"local_batch", column(batches)},
                                    {"gpus", column(gpus)}})});
}

/// Writes each group by itself.
Json written_out(const std::vector<TpGroup>& groups) {
  Json list = Json::array();
  for (const TpGroup& group : groups) list.append(item(group, "node", group.node));
  return list;
}

/// Writes the groups by runs or as a table, whichever is shorter.
Json short_groups(const std::vector<TpGroup>& groups) {
  Json by_runs = runs(groups), as_table = table(groups);
  const bool shorter = as_table.size() > 0 && as_table.dump().size() < by_runs.dump().size();
  return shorter ? as_table : by_runs;
}

/// Writes a plan. `write` writes the groups of a stage if they all have TP x CP GPUs.
Json plan_json(const Plan& plan, Json (*write)(const std::vector<TpGroup>&)) {
  Json list = Json::array();
  for (const Stage& stage : plan.stages) {
    const bool is_plain = stage.groups.empty() || !has_equal_degrees(stage, stage.tp * plan.cp);
    const Json groups = (is_plain ? written_out : write)(stage.groups);
    Json written = Json::object({{"layers", stage.layers}, {"tp", stage.tp}, {"groups", groups}});
    if (!stage.chunks.empty()) written.set("chunks", array_of(stage.chunks));
    list.append(written);
  }
  Json json = Json::object({{"micro_batches", plan.micro_batches}, {"stages", list}});
  if (!plan.schedule.empty()) json.set("schedule", plan.schedule);
  if (plan.cp > 1) json.set("cp", plan.cp);
  if (plan.ep > 1) json.set("ep", plan.ep);
  return json;
}

Result<void> read_chunks(const Json& json, std::vector<int>& chunks) {
  if (!is_array(json) || json.size() == 0 || json.size() > kMaxChunks)
    return Error(fmt::format("\"chunks\" must be a list of 1 to {} numbers of units", kMaxChunks));
  for (const Json& item : json.items()) {
    if (!is_integer(item) || json_integer_value(item.get()) < 0 ||
        json_integer_value(item.get()) > kMaxUnits)
      return Error(fmt::format("\"chunks\" holds {}; a number of units is from 0 to {}",
                               item.dump(), kMaxUnits));
    chunks.push_back(static_cast<int>(json_integer_value(item.get())));
  }
  return {};
}

/// Returns chunk number `at` of the plan, in model order.
int& chunk_at(std::vector<Stage>& stages, std::size_t at) {
  return stages[at % stages.size()].chunks[at / stages.size()];
}

/// Converts chunks that only count layers into chunks of units.
void add_ends(std::vector<Stage>& stages) {
  long layers = 0, units = 0;
  for (const Stage& stage : stages) {
    layers += stage.layers;
    units += stage.units();
    if (stage.chunks.size() != stages.front().chunks.size()) return;  // check_chunks() reports this
  }
  if (units != layers || units == 0) return;
  std::size_t first = 0, last = stages.size() * stages.front().chunks.size() - 1;
  while (chunk_at(stages, first) == 0) ++first;
  while (chunk_at(stages, last) == 0) --last;
  ++chunk_at(stages, first);
  ++chunk_at(stages, last);
}

/// Reads a stage of at most `room` groups, each of TP x `cp` GPUs.
Result<Stage> read_stage(const Json& json, int cp, std::size_t room) {
  Stage stage;
  auto layers = json.integer_at("layers", 0, kMaxCount);
  if (!layers) return layers.error();
  auto tp = json.integer_at("tp", 1, cluster::kMaxGpusPerNode);
  if (!tp) return tp.error();
  stage.layers = static_cast<int>(*layers);
  stage.tp = static_cast<int>(*tp);
  const int width = stage.tp * cp;
  if (width > cluster::kMaxGpusPerNode)
    return Error(fmt::format("TP {} x CP {} make groups of {}; a node has at most {}", stage.tp, cp,
                             count_of(width, "GPU"), cluster::kMaxGpusPerNode));
  if (json.has("chunks"))
    if (auto read = read_chunks(json.at("chunks"), stage.chunks); !read) return read.error();
  const Json groups = json.at("groups");
  if (!is_array(groups)) return Error("\"groups\" must be a list of TP groups");
  for (const Json& item : groups.items()) {
    if (stage.groups.size() >= room) return too_many_groups();
    if (auto read = read_groups(item, width, room - stage.groups.size(), stage.groups); !read)
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
  if (cp > 1 || ep > 1)
    text += fmt::format(",{}{}", cp > 1 ? fmt::format(" cp{}", cp) : "",
                        ep > 1 ? fmt::format(" ep{}", ep) : "");
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
  if (!is_object(json)) return Error("a plan is a JSON object");
  Plan plan;
  auto micro_batches = json.integer_at("micro_batches", 1, kMaxCount);
  if (!micro_batches) return micro_batches.error();
  plan.micro_batches = static_cast<int>(*micro_batches);
  for (const auto& [key, degree, most] :
       {std::tuple{"cp", &plan.cp, models::kMostCp}, std::tuple{"ep", &plan.ep, models::kMostEp}}) {
    if (!json.has(key)) continue;
    auto read = json.integer_at(key, 1, most);
    if (!read) return read.error();
    *degree = static_cast<int>(*read);
  }
  const Json stages = json.at("stages");
  if (!is_array(stages)) return Error("\"stages\" must be a list of stages");
  std::size_t room = kMaxGroups;
  for (const Json& item : stages.items()) {
    auto stage = read_stage(item, plan.cp, room);
    if (!stage) return stage.error().while_doing(fmt::format("stage {}", plan.stages.size()));
    room -= stage->groups.size();
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
  std::size_t count = 0;
  for (const Stage& stage : stages) count += stage.groups.size();
  if (count <= kWrittenOut) return plan_json(*this, written_out);
  Json by_runs = plan_json(*this, runs);
  return by_runs.dump().size() <= kMaxPlan ? by_runs : plan_json(*this, short_groups);
}

}  // namespace swell::plan
