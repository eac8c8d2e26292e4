// SPDX-License-Identifier: GPL-2.0-or-later
// How long the migration plan of 1,024 ranks and 20,000 tensors takes on one core: each tensor on
// all replicas and shards of its stage, 128 ranks at first. Three changes: one node of 8 GPUs joins
// (as most do), TP 8 becomes TP 4, and optimizer state goes from TP shards to ZeRO ranges. Last
// line: JSON, of the slowest.
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "runtime/migration.h"

using namespace swell;
using namespace swell::runtime;

namespace {

constexpr int kTensors = 20'000;
constexpr int kGpus = 8;  // of a node

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

/// Four shapes of tensors, cut along their first dimension, in layers given evenly to the stages;
/// every third is optimizer state.
Result<World> make(const Shapes& shapes) {
  WorldBuilder builder;
  std::vector<std::vector<std::uint32_t>> stage_ranks(static_cast<std::size_t>(shapes.pp));
  int gpu = 0;
  for (int stage = 0; stage < shapes.pp; ++stage) {
    const int groups = shapes.dp + (stage == shapes.pp - 1 ? shapes.extra_groups : 0);
    for (int i = 0; i < groups * shapes.tp; ++i, ++gpu)
      stage_ranks[static_cast<std::size_t>(stage)].push_back(
          builder.add_rank({gpu / kGpus, gpu % kGpus}));
  }
  const Shape all_shapes[] = {{4096, 4096}, {16384, 4096}, {4096}, {12288, 4096}};
  for (int t = 0; t < kTensors; ++t) {
    const Shape& shape = all_shapes[t % 4];
    char name[32];
    std::snprintf(name, sizeof name, "tensor%05d", t);
    const auto tensor = builder.add_tensor(
        {name, t / 12, t % 3 == 2 ? Kind::moment : Kind::parameter, DType::bf16, shape, false});
    if (!tensor) return tensor.error();
    const auto& ranks =
        stage_ranks[static_cast<std::size_t>(static_cast<long>(t) * shapes.pp / kTensors)];
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Shape begin(shape.size(), 0), end = shape;
      const auto tp = static_cast<std::int64_t>(i) % shapes.tp;
      begin[0] = shape[0] * tp / shapes.tp;
      end[0] = shape[0] * (tp + 1) / shapes.tp;
      Part part = Part::block(begin, end);
      if (shapes.zero && t % 3 == 2) {
        const auto groups = static_cast<std::int64_t>(ranks.size()) / shapes.tp;
        const std::int64_t width = (part.elements() + groups - 1) / groups,
                           from = static_cast<std::int64_t>(i) / shapes.tp * width;
        if (from >= part.elements()) continue;
        part = Part::range(begin, end, from, from + width);
      }
      builder.hold(ranks[i], *tensor, builder.add_part(part));
    }
  }
  return std::move(builder).finish();
}

}  // namespace

int main() {
  std::vector<cluster::Node> nodes;
  for (int i = 0; i < 130; ++i)
    nodes.push_back({"n" + std::to_string(i), i / 16, std::vector<int>(kGpus, 0), 5e10});
  const auto cluster =
      cluster::Cluster::make("bench", {*cluster::find_gpu_type("h100")}, std::move(nodes), 0.5)
          .value();
  const struct {
    const char* name;
    Shapes from, to;
  } cases[] = {
      {"one node joins", {8, 16, 8}, {8, 16, 8, false, 1}},
      {"TP 8 becomes TP 4", {8, 16, 8}, {8, 32, 4}},
      {"to ZeRO", {8, 16, 8}, {8, 16, 8, true}},
  };
  double slowest = 0;
  for (const auto& one : cases) {
    double began = cpu_s();
    const auto from = make(one.from), to = make(one.to);
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
    slowest = plan_s > slowest ? plan_s : slowest;
  }
  std::printf("{\"ranks\": 1024, \"tensors\": %d, \"slowest_plan_s\": %.3f, \"goal_s\": 1}\n",
              kTensors, slowest);
  return slowest <= 1 ? 0 : 1;
}
