// SPDX-License-Identifier: GPL-2.0-or-later
// Compares predicted with measured redeployments: Tenplex's times of device-to-device moves, as a
// CSV of system,hardware,model,change,seconds,source with changes like "DP (4 2 1)->(4 2 2)" (TP,
// PP, DP). They exclude restarting the training, so the compared value is how much longer a larger
// model takes than the smallest. usage: redeployment FILE. Last line: JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/cluster/presets.h"
#include "core/redeploy/redeployment.h"

using namespace swell;

namespace {

struct Degrees {
  int tp, pp, dp;
};

/// Returns Tenplex's 16 GPUs: 4 machines of 4 A6000 with 100 Gbit/s.
cluster::Cluster tenplex_cluster() {
  cluster::GpuType a6000 = *cluster::find_gpu_type("a40");  // the same chip
  a6000.link_bytes_per_s = 25e9;
  return cluster::uniform_cluster("tenplex", a6000, 4, 4, 12.5e9);
}

plan::Layout layout_of(const Degrees& degrees, int layers) {
  plan::Layout layout{8, {}};
  int gpu = 0;
  for (int i = 0; i < degrees.pp; ++i) {
    plan::StageLayout stage{layers / degrees.pp, degrees.tp, {}};
    // A TP group of 8 spans two machines there. Here a group must be on one node, so half of it
    // represents it.
    const int on_node = std::min(degrees.tp, 4);
    for (int j = 0; j < degrees.dp; ++j, gpu += degrees.tp)
      stage.groups.push_back({gpu / 4 % 4, 0, 1, ((plan::GpuMask{1} << on_node) - 1) << (gpu % 4)});
    stage.tp = on_node;
    layout.stages.push_back(stage);
  }
  return layout;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: redeployment FILE\n");
    return 2;
  }
  std::ifstream in(argv[1]);
  if (!in) {
    std::fprintf(stderr, "redeployment: %s cannot be read\n", argv[1]);
    return 1;
  }
  const cluster::Cluster cluster = tenplex_cluster();
  std::vector<double> errors;
  std::map<std::string, std::pair<double, double>> smallest;  // by change: measured, predicted
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string system, hardware, name, change, seconds;
    std::getline(fields, system, ',');
    std::getline(fields, hardware, ',');
    std::getline(fields, name, ',');
    std::getline(fields, change, ',');
    std::getline(fields, seconds, ',');
    Degrees a{}, b{};
    char kind[8] = "";
    double billions = 0;
    if (system != "Tenplex" || std::sscanf(name.c_str(), "GPT-3 %lfB", &billions) != 1 ||
        std::sscanf(change.c_str(), "%7s (%d %d %d)->(%d %d %d)", kind, &a.tp, &a.pp, &a.dp, &b.tp,
                    &b.pp, &b.dp) != 7)
      continue;
    if (b.tp > 4) continue;  // Swell's layouts cannot have a TP group over two machines
    models::Model model;
    model.layers = 32;
    perf::Coefficients coefficients;
    coefficients.param_optim_bytes =
        billions * 1e9 * 16 / model.layers;  // Adam, half precision: 16 bytes a parameter
    const auto cost = redeploy::cost_of(redeploy::Method::device_to_device, coefficients,
                                        layout_of(a, 32), layout_of(b, 32), cluster);
    const double measured = std::stod(seconds);
    const auto [first, is_first] = smallest.try_emplace(change, measured, cost.pause_s);
    if (is_first) continue;
    const double more = measured - first->second.first,
                 predicted = cost.pause_s - first->second.second;
    std::printf("%-12s %-24s measured %5.1f s more, predicted %5.1f s more\n", name.c_str(),
                change.c_str(), more, predicted);
    errors.push_back(std::abs(predicted - more) / measured);
  }
  if (errors.empty()) {
    std::fprintf(stderr, "redeployment: %s has no row of Tenplex with two plans\n", argv[1]);
    return 1;
  }
  double sum = 0;
  for (double error : errors) sum += error;
  std::printf(
      "{\"bench\": \"redeployment\", \"rows\": %zu, \"mean_error\": %.3f, \"worst_error\": %.3f}\n",
      errors.size(), sum / static_cast<double>(errors.size()),
      *std::max_element(errors.begin(), errors.end()));
  return 0;
}
