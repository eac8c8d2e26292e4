// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

namespace swell::sim::judge {

/// What the judge's devices and wires are like. Not the performance model's coefficients: rates and
/// sizes, from which the judge counts out every operation.
struct DeviceSpeed {
  double forward_layers_per_s = 1;   ///< transformer layers of one sample a second, alone on the GPU
  double backward_layers_per_s = 1;
  double optimizer_layers_per_s = 1; ///< whole layers updated a second
};

struct Hardware {
  std::vector<DeviceSpeed> devices;  ///< by the cluster's GPU type
  double activation_bytes = 0;       ///< one sample's tensor between two layers
  double gradient_bytes = 0;         ///< of one layer
  /// Share of the gradient traffic that may run while the last backward pass computes; the rest
  /// waits for its end (the last bucket, and what contends for the GPU's memory).
  double overlapped_share = 0.7;
};

}  // namespace swell::sim::judge
