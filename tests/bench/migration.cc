// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how long the migration plan of 1,024 ranks and 20,000 tensors takes on one core. Each
// tensor is on all replicas and shards of its stage, which has 128 ranks at first. Three changes:
// one node of 8 GPUs joins (the most common change), TP 8 becomes TP 4, and optimizer state goes
// from TP shards to ZeRO ranges. Then the same in chunks, as each rank prepares it, with the
// default bound, for state in host memory and on GPUs; when TP 8 becomes TP 4 the new state does
// not fit beside the old one. Last line: JSON of the slowest.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "runtime/keeper/chunks.h"
#include "runtime/plan/placement.h"

using namespace swell;
using namespace swell::runtime;

namespace {

constexpr int kTensors = 20'000;
constexpr int kGpus = 8;  // GPUs of a node

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Shapes {
  int pp, dp, tp;
  bool zero = false;
  int extra_groups = 0;  ///< TP groups that join the last stage
};

/// Makes four shapes of tensors, cut along their first dimension, in layers spread evenly over the
/// stages. Every third tensor is optimizer state.
std::vector<RankState> make(const Shapes& shapes) {
  std::vector<RankState> ranks;
  std::vector<std::vector<std::size_t>> stage_ranks(static_cast<std::size_t>(shapes.pp));
  for (int stage = 0; stage < shapes.pp; ++stage) {
    const int groups = shapes.dp + (stage == shapes.pp - 1 ? shapes.extra_groups : 0);
    for (int i = 0; i < groups * shapes.tp; ++i) {
      const int gpu = static_cast<int>(ranks.size());
      stage_ranks[static_cast<std::size_t>(stage)].push_back(ranks.size());
      ranks.push_back({{gpu / kGpus, gpu % kGpus}, {}});
    }
  }
  const Shape all_shapes[] = {{4096, 4096}, {16384, 4096}, {4096}, {12288, 4096}};
  for (int t = 0; t < kTensors; ++t) {
    const Shape& shape = all_shapes[t % 4];
    char name[32];
    std::snprintf(name, sizeof name, "tensor%05d", t);
    const TensorInfo info{name,        t / 12, t % 3 == 2 ? Kind::moment : Kind::parameter,
                          DType::bf16, shape,  false};
    const auto& holders =
        stage_ranks[static_cast<std::size_t>(static_cast<long>(t) * shapes.pp / kTensors)];
    for (std::size_t i = 0; i < holders.size(); ++i) {
      Shape begin(shape.size(), 0), end = shape;
      const auto tp = static_cast<std::int64_t>(i) % shapes.tp;
      begin[0] = shape[0] * tp / shapes.tp;
      end[0] = shape[0] * (tp + 1) / shapes.tp;
      Part part = Part::block(begin, end);
      if (shapes.zero && t % 3 == 2) {
        const auto groups = static_cast<std::int64_t>(holders.size()) / shapes.tp;
        const std::int64_t width = (part.elements() + groups - 1) / groups,
                           from = static_cast<std::int64_t>(i) / shapes.tp * width;
        if (from >= part.elements()) continue;
        part = Part::range(begin, end, from, from + width);
      }
      ranks[holders[i]].entries.push_back({info, std::move(part), "", 0, -1});
    }
  }
  return ranks;
}

/// Returns the message that tells a rank both plans. Old ranks hold their state from the start of
/// their arenas, in the order of declaration.
Prepare prepare_of(std::vector<RankState> from, std::vector<RankState> to) {
  Prepare plan;
  plan.in_chunks = true;
  plan.max_extra_bytes = std::uint64_t{2} << 30;
  plan.old_rank = plan.new_rank = 0;
  for (RankState& rank : from) {
    std::vector<Held> table;
    std::uint64_t at = 0;
    for (Entry& entry : rank.entries) {
      const std::uint64_t bytes = Extents::rounded(static_cast<std::uint64_t>(entry.bytes()));
      table.push_back({std::move(entry), Memory::arena, at});
      at += bytes;
    }
    plan.from.push_back({rank.gpu, {}, plan.roster.add(table), false});
  }
  for (std::size_t i = 0; i < to.size(); ++i)
    plan.to.push_back({to[i].gpu, i < from.size() ? static_cast<std::int32_t>(i) : -1,
                       plan.roster.add(to[i].entries)});
  return plan;
}

/// Puts the state on GPUs, in slabs as a keeper fills them.
void put_on_gpus(Prepare& plan) {
  Roster roster;
  for (std::size_t i = 0; i < plan.from.size(); ++i) {
    OldRank& rank = plan.from[i];
    const std::string gpu = "GPU " + std::to_string(i);
    Slabs slabs;
    std::vector<Held> table = plan.roster.held(rank.table);
    for (Held& held : table) {
      held.entry.device = 0;
      held.memory = Memory::device;
      held.at = slabs.take(gpu, held.bytes());
    }
    rank.table = roster.add(table);
    for (const SlabSize& slab : slabs.seal(std::uint64_t{2} << 20))
      rank.memory.slabs.push_back({slab.slab, slab.bytes, gpu});
  }
  for (std::size_t i = 0; i < plan.to.size(); ++i) {
    std::vector<Entry> entries = plan.roster.entries(plan.to[i].table);
    for (Entry& entry : entries) entry.device = 0;
    plan.to[i].table = roster.add(entries);
    plan.to[i].memory = {"GPU " + std::to_string(i), std::uint64_t{2} << 20, Slabs::kSlabBytes, {}};
  }
  plan.roster = std::move(roster);
}

/// Plans in chunks and prints the result. Returns the time taken; negative if planning failed.
double plan_in_chunks(const char* where, const Prepare& prepare, const World& from, const World& to,
                      const cluster::Cluster& cluster) {
  const double began = cpu_s();
  const auto chunks = plan_chunks(prepare, from, to, cluster);
  const double chunks_s = cpu_s() - began;
  if (!chunks) {
    std::fprintf(stderr, "%s\n", chunks.error().message().c_str());
    return -1;
  }
  std::printf("%-18s in chunks, %s: %u of them, of at most %.2f GB beside the state: %.3f s\n", "",
              where, chunks->count,
              static_cast<double>(
                  *std::max_element(chunks->extra_bytes.begin(), chunks->extra_bytes.end())) /
                  1e9,
              chunks_s);
  return chunks_s;
}

}  // namespace

int main() {
  std::vector<cluster::Node> nodes;
  for (int i = 0; i < 130; ++i)
    nodes.push_back({"n" + std::to_string(i), i / 16, std::vector<int>(kGpus, 0), 5e10});
  const auto cluster =
      cluster::Cluster::make("bench", {*cluster::find_gpu_type("h100")}, std::move(nodes), {0.5})
          .value();
  const struct {
    const char* name;
    Shapes from, to;
  } cases[] = {
      {"one node joins", {8, 16, 8}, {8, 16, 8, false, 1}},
      {"TP 8 becomes TP 4", {8, 16, 8}, {8, 32, 4}},
      {"to ZeRO", {8, 16, 8}, {8, 16, 8, true}},
  };
  double slowest = 0, slowest_chunks = 0;
  std::size_t largest = 0;
  for (const auto& one : cases) {
    Prepare prepare = prepare_of(make(one.from), make(one.to));
    double began = cpu_s();
    const std::string message = write(prepare);
    const double write_s = cpu_s() - began;
    began = cpu_s();
    const bool is_read = read_prepare(message).ok();
    const double read_s = cpu_s() - began;
    if (!is_read) {
      std::fprintf(stderr, "what a shim is told cannot be read\n");
      return 1;
    }
    std::printf("%-18s a shim is told %.1f MB: written in %.3f s, read in %.3f s\n", one.name,
                static_cast<double>(message.size()) / 1e6, write_s, read_s);
    largest = std::max(largest, message.size());
    began = cpu_s();
    const auto from = old_world(prepare), to = new_world(prepare);
    if (!from || !to) {
      std::fprintf(stderr, "%s\n", (from ? to : from).error().message().c_str());
      return 1;
    }
    const double worlds_s = cpu_s() - began;
    began = cpu_s();
    const auto plan = plan_migration(*from, *to, cluster);
    const double plan_s = cpu_s() - began;
    if (!plan) {
      std::fprintf(stderr, "%s\n", plan.error().message().c_str());
      return 1;
    }
    const MigrationSummary& summary = plan->summary();
    std::printf(
        "%-18s %zu ranks: both worlds %.3f s, plan %.3f s; of %.0f GB %.1f %% move, %.1f %% over the network, busiest link %.2f s\n",
        one.name, to->ranks().size(), worlds_s, plan_s,
        static_cast<double>(summary.total_bytes()) / 1e9,
        100.0 * static_cast<double>(summary.moved_bytes()) /
            static_cast<double>(summary.total_bytes()),
        100.0 * static_cast<double>(summary.network_bytes()) /
            static_cast<double>(summary.total_bytes()),
        summary.busiest_link_s);
    slowest = std::max(slowest, plan_s);
    const double on_host_s = plan_in_chunks("in host memory", prepare, *from, *to, cluster);
    put_on_gpus(prepare);
    const double on_gpus_s = plan_in_chunks("on GPUs", prepare, *from, *to, cluster);
    if (on_host_s < 0 || on_gpus_s < 0) return 1;
    slowest_chunks = std::max({slowest_chunks, on_host_s, on_gpus_s});
  }
  std::printf(
      "{\"ranks\": 1024, \"tensors\": %d, \"slowest_plan_s\": %.3f, \"slowest_chunks_s\": %.3f, \"prepare_bytes\": %zu, \"goal_s\": 1}\n",
      kTensors, slowest, slowest_chunks, largest);
  return slowest <= 1 && slowest_chunks <= 1 ? 0 : 1;
}
