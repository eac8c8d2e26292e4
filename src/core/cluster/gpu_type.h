// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell::cluster {

/// Number formats for which a GPU type has a speed.
enum class Precision { fp32, fp16, bf16, fp8 };

/// A kind of GPU. Speeds are the vendor's dense peaks, without sparsity.
struct GpuType {
  std::string name;        ///< lower case, as in Slurm's gres type: "h100", "a100-40g"
  double fp32_tflops = 0;  ///< 10^12 floating point operations a second
  double fp16_tflops = 0;
  double bf16_tflops = 0;            ///< 0: not supported
  double fp8_tflops = 0;             ///< 0: not supported
  double memory_bytes = 0;           ///< total memory that programs may allocate
  double hbm_bytes_per_s = 0;        ///< device memory bandwidth
  double link_bytes_per_s = 0;       ///< to a GPU of the same node, one direction (NVLink or PCIe)
  double link_saturation_bytes = 0;  ///< message size from which the link runs at full speed

  /// Returns the peak TFLOPS for `precision`; if the type lacks it, for the next wider format that
  /// it has.
  double tflops(Precision precision) const noexcept;
  friend bool operator==(const GpuType&, const GpuType&) = default;
};

/// Returns all built-in types.
const std::vector<GpuType>& gpu_catalogue();

/// Returns the catalogue's entry for `name`, ignoring case. The name may be the catalogue's, the
/// driver's or that of Slurm's gres ("NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3",
/// "a100-sxm4-40gb"). For a MIG instance ("a100_3g.20gb", "nvidia_h100_80gb_hbm3_1g.10gb") returns
/// its share of the GPU. Returns nothing if the name contains no product of the catalogue.
std::optional<GpuType> find_gpu_type(std::string_view name);

}  // namespace swell::cluster
