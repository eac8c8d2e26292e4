// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/roofline.h"

#include <cmath>
#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "core/models/catalogue.h"
#include "core/models/transformer.h"

using namespace swell;
using namespace swell::perf;
using models::Operator;
using models::OperatorKind;

namespace {

bool near(double a, double b) { return std::abs(a / b - 1) < 1e-9; }

/// 1 TFLOPS in half precision and 1 GB/s of memory.
cluster::GpuType simple_gpu() {
  cluster::GpuType gpu;
  gpu.name = "simple";
  gpu.bf16_tflops = 1;
  gpu.hbm_bytes_per_s = 1e9;
  return gpu;
}

}  // namespace

Test(roofline, operators_of_a_transformer_have_its_operations_and_parameters) {
  for (const models::CatalogueEntry& entry : models::catalogue()) {
    const models::Model& model = entry.model;
    for (const auto scores : {models::Scores::fused, models::Scores::stored}) {
      double flop = 0, parameters = 0;
      for (const Operator& one : models::layer_operators(model, scores)) {
        flop += one.flop;
        parameters += one.parameters;
      }
      cr_assert(near(flop, model.layer_forward_flop()), "%s", model.name.c_str());
      cr_assert(near(parameters, model.layer_parameters()), "%s", model.name.c_str());
    }
    double flop = 0, parameters = 0;
    for (const Operator& one : models::head_operators(model)) {
      flop += one.flop;
      parameters += one.parameters;
    }
    cr_assert(near(flop, model.head_forward_flop()));
    cr_assert(near(parameters, model.embedding_parameters()));
  }
}

Test(roofline, the_slower_of_speed_and_memory_counts) {
  const cluster::GpuType gpu = simple_gpu();
  Operator one;
  one.kind = OperatorKind::matmul;
  one.flop = 7e12;
  one.read_bytes = 1e9;
  one.write_bytes = 1e9;
  one.weight_bytes = 6e9;
  cr_assert(near(forward_s(one, gpu, 1), 10), "7 TFLOP at 0.7 of 1 TFLOPS; 8 GB at 0.8 of 1 GB/s");
  one.weight_bytes = 14e9;
  cr_assert(near(forward_s(one, gpu, 1), 20), "16 GB");
  cr_assert(near(forward_s(one, gpu, 14), 10), "weights once in 14 samples");
  one.kind = OperatorKind::attention;
  cr_assert(near(forward_s(one, gpu, 14), 14), "fused attention reaches half of peak");
  Attainable reached;
  reached.attention = 0.1;
  cr_assert(near(forward_s(one, gpu, 14, reached), 70));
}

Test(roofline, coefficients_count_norms_attention_and_memory) {
  const auto machines = cluster::preset("1x8-h100");
  cr_assert(machines.ok());
  const models::Model model = models::find_model("gpt2-1.3b")->model;
  const Coefficients plain = expected_coefficients(model, *machines);
  const double tokens = model.sequence, hidden = model.hidden;
  const double peak = 989.4e12, bandwidth = 0.8 * 3350e9;
  // Norms and residuals with their weights, once in four samples; transposes and activation; each
  // product and attention bound by speed.
  const double norms = 19 * tokens * hidden + 2 * 4 * hidden / 4;
  const double traffic = norms + (8 + 2 * (4 + 4)) * tokens * hidden;
  const double products = 24 * tokens * hidden * hidden / (0.7 * peak);
  const double attention = 4 * tokens * tokens * hidden / (0.5 * peak);
  const double layer = products + attention + traffic / bandwidth;
  const double head =
      2 * tokens * hidden * model.vocab / (0.7 * peak) + 20 * tokens * model.vocab / bandwidth;
  cr_assert(near(plain.types[0].comp_s, layer + head / model.layers),
            "A.2 counts the projection within the layers");
  cr_assert_eq(plain.types[0].backward, 2);
  cr_assert(near(plain.types[0].optim_s, 16 * model.layer_parameters() / bandwidth),
            "8 bytes a parameter are read and written");
  cr_assert_eq(plain.types[0].whole_s, 0);

  Coefficients second = plain;
  expect_launches(second, model, *machines);
  cr_assert(near(second.types[0].whole_s, norms / bandwidth));
  cr_assert(near(second.types[0].comp_s + second.types[0].whole_s, layer));
  cr_assert(near(second.head_layers, head / second.types[0].comp_s));
}
