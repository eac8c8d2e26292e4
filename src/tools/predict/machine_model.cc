// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/machine_model.h"

#include <algorithm>
#include <cmath>

#include "core/models/transformer.h"
#include "core/perf/equations.h"
#include "core/perf/roofline.h"

namespace swell::predict {

namespace {

constexpr int kVocab = 51200;  // GPT-2's, padded as Megatron does
constexpr double kHalf = 2;    // bytes of fp16

// All-reduces of a layer: two forward and two backward; a repeated forward pass adds two.
constexpr int kAllreduces = 4;
constexpr int kRepeatedAllreduces = 2;

/// Returns the time of all passes of a layer in forward passes: forward, backward (counts twice),
/// and repeated parts.
double passes(const std::string& recompute) {
  if (recompute == "full") return 4;
  // Selective recomputation only repeats attention scores.
  return recompute == "selective" ? 3.1 : 3;
}

int allreduces(const std::string& recompute) {
  return kAllreduces + (recompute == "full" ? kRepeatedAllreduces : 0);
}

/// Returns the time under two limits that mostly overlap: exact if one is far below the other.
double both_limits(double a, double b) { return std::sqrt(a * a + b * b); }

models::Model model_of(const TrainingRun& run) {
  models::Model model;
  model.layers = run.layers;
  model.hidden = run.hidden;
  model.heads = model.kv_heads = run.heads;
  model.ffn = 4 * run.hidden;
  model.vocab = kVocab;
  model.sequence = run.seq;
  return model;
}

}  // namespace

const std::array<Machine::Expected, Machine::kCount>& Machine::expected() {
  static const std::array<Expected, kCount> known = {{
      // Share of peak speed that a layer's matrix products reach.
      {"gemm_share", 0.70, 0.2},
      // Host time to launch a layer's 180 kernels, forward and backward, 16 us each.
      {"layer_launch_s", 3e-3, 0.3},
      // Wait for each further GPU in one step of an all-reduce.
      {"sync_s", 15e-6, 0.5},
      // Factor on the time of the output projection and its loss.
      {"head_factor", 1.0, 0.8},
      // Network bandwidth of a node in bytes a second: 85 % of 4 x 200 Gbit/s.
      {"node_network", 85e9, 0.2},
      // Bytes that Adam's update moves for each parameter, in full precision.
      {"optimizer_bytes", 40, 0.3},
  }};
  return known;
}

Machine Machine::expected_values() {
  Machine machine{};
  for (std::size_t i = 0; i < kCount; ++i) machine.value[i] = expected()[i].value;
  return machine;
}

double MachineModel::allreduce_s(int gpus, double bytes) const {
  const auto seconds =
      measured_.seconds(gpu_.name, cluster::Collective::all_reduce, {gpus, 1, 1, 1}, bytes);
  return seconds ? *seconds
                 : perf::allreduce_s(perf::tp_transmission_bytes(bytes, 1, gpus),
                                     gpu_.link_bytes_per_s);
}

double MachineModel::tp_allreduce_s(const TrainingRun& run, const Machine& machine) const {
  if (run.tp <= 1) return 0;
  const double bytes = kHalf * run.micro_batch * run.seq * run.hidden;
  if (run.tp <= gpus_per_node_) return allreduce_s(run.tp, bytes);
  // Over several nodes: an all-reduce within each node, then one between them.
  const double between = 2 * bytes * (1 - static_cast<double>(gpus_per_node_) / run.tp);
  return allreduce_s(gpus_per_node_, bytes) + between / machine.value[Machine::node_network];
}

double MachineModel::forward_s(const std::vector<models::Operator>& operators,
                               const TrainingRun& run, const Machine& machine) const {
  perf::Attainable reached;
  reached.matmul = machine.value[Machine::gemm_share];
  const perf::ForwardTime time = perf::forward_s(operators, gpu_, run.micro_batch, reached);
  return run.micro_batch * (time.whole_s + time.split_s / run.tp);
}

double MachineModel::layer_s(const TrainingRun& run, const Machine& machine, double scale) const {
  const double again = passes(run.recompute), tp = run.tp;
  const double device =
      scale * again *
      forward_s(models::layer_operators(model_of(run), models::Scores::stored), run, machine);
  const int reduces = allreduces(run.recompute);
  const double commu = reduces * tp_allreduce_s(run, machine);
  // Two ring phases of TP - 1 steps; each step waits for the slowest GPU.
  const double launch = machine.value[Machine::layer_launch_s] * again / 4 +
                        reduces * 2 * (tp - 1) * machine.value[Machine::sync_s];
  return both_limits(device + commu, launch);
}

double MachineModel::head_s(const TrainingRun& run, const Machine& machine, double scale) const {
  return scale * machine.value[Machine::head_factor] * (1 + perf::kBackwardPasses) *
         forward_s(models::head_operators(model_of(run)), run, machine);
}

double MachineModel::gradient_sync_s(const TrainingRun& run, const Machine& machine,
                                     double bytes) const {
  if (run.dp <= 1) return 0;
  if (run.gpus <= gpus_per_node_) return allreduce_s(run.dp, bytes);
  // The rings of all TP ranks of a node share its network cards.
  const double sharing = std::min(run.tp, gpus_per_node_);
  return sharing * bytes * 2 * (1 - 1.0 / run.dp) / machine.value[Machine::node_network];
}

double MachineModel::iteration_s(const TrainingRun& run, const Machine& machine,
                                 double scale) const {
  const double again = passes(run.recompute);
  const double layers = static_cast<double>(run.layers) / run.pp * layer_s(run, machine, scale);
  const double layer_parameters = 12.0 * run.hidden * run.hidden * run.layers / run.pp;
  const double parameters =
      (layer_parameters + kVocab * run.hidden) / run.tp;  // including the embedding
  perf::PipelineSum sum;
  for (int i = 0; i < run.pp; ++i) {
    perf::StageTimes stage;
    const double comp = layers + (i == run.pp - 1 ? head_s(run, machine, scale) : 0);
    stage.fwd = comp / again;
    stage.bwd = comp - stage.fwd;
    // The data were measured with Megatron-DeepSpeed, which reduces after the last backward pass,
    // so nothing overlaps.
    stage.commu_extra = gradient_sync_s(run, machine, kHalf * parameters);
    stage.optim = perf::memory_s(machine.value[Machine::optimizer_bytes] * parameters, gpu_);
    sum.add(stage);
  }
  return sum.finish(run.micro_batches()).total();
}

}  // namespace swell::predict
