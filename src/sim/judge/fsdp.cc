// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/fsdp.h"

#include <algorithm>

#include "sim/judge/collectives.h"
#include "sim/judge/compute.h"

namespace swell::sim::judge {

double fsdp_iteration_s(const FsdpRun& run, const Software& software, const cluster::GpuType& gpu,
                        double slowness) {
  const Device device{gpu, 1, slowness};
  const Passes layer = layer_passes(run.model, software, device, run.micro_batch, 0);
  Passes others = head_passes(run.model, software, device, run.micro_batch);
  others += embedding_passes(software);
  const double bytes = 2 * parameters_of_layer(run.model);
  const double gather = gather_s(run.nodes, run.gpus_per_node, bytes, gpu.link_bytes_per_s,
                                 run.node_network_bytes_per_s);
  // The network and the device each do one thing at a time; layer i + 1 is gathered while layer i
  // computes.
  double wire = gather, device_s = 0;
  for (int i = 0; i < run.model.layers; ++i) {
    device_s = std::max(device_s, wire) + layer.forward_s;
    wire += gather;
  }
  device_s += others.forward_s + others.backward_s;
  wire = std::max(wire, device_s - gather);
  for (int i = 0; i < run.model.layers; ++i) {
    device_s = std::max(device_s, wire) + layer.backward_s;
    wire = std::max(wire + gather, device_s) +
           gather;  // the next layer's parameters, then these gradients
  }
  const double pass = std::max(device_s, wire);
  const int ranks = run.nodes * run.gpus_per_node;
  const double parameters =
      run.model.layers * parameters_of_layer(run.model) + parameters_of_embedding(run.model);
  return run.accumulated * pass + update_s(parameters / ranks, software, gpu);
}

}  // namespace swell::sim::judge
