// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell::cluster {

/// Number formats whose speed a GPU type is known for.
enum class Precision { fp32, fp16, bf16, fp8 };

/// A kind of GPU. Speeds are the vendor's dense peaks, without sparsity.
struct GpuType {
  std::string name;        ///< lower case, as in Slurm's gres type: "h100", "a100-40g"
  double fp32_tflops = 0;  ///< 10^12 floating point operations a second
  double fp16_tflops = 0;
  double bf16_tflops = 0;            ///< 0: not supported
  double fp8_tflops = 0;             ///< 0: not supported
  double memory_bytes = 0;           ///< memory that programs may allocate, in all
  double hbm_bytes_per_s = 0;        ///< device memory bandwidth
  double link_bytes_per_s = 0;       ///< to a GPU of the same node, one direction (NVLink or PCIe)
  double link_saturation_bytes = 0;  ///< message size from which that link runs at full speed

  /// Peak TFLOPS for `precision`; where the type lacks it, that of the next wider format it has.
  double tflops(Precision precision) const noexcept;
  friend bool operator==(const GpuType&, const GpuType&) = default;
};

/// All types that Swell knows without being told.
const std::vector<GpuType>& gpu_catalogue();

/// Returns the catalogue's entry for `name`: its own name, that of the driver or of Slurm's gres
/// ("NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3", "a100-sxm4-40gb"), in any case. For a MIG
/// instance ("a100_3g.20gb", "nvidia_h100_80gb_hbm3_1g.10gb") the share of the GPU that it has.
/// Nothing where the name has no product of the catalogue.
std::optional<GpuType> find_gpu_type(std::string_view name);

}  // namespace swell::cluster
