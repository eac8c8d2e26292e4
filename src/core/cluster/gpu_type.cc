// SPDX-License-Identifier: BSD-3-Clause
#include "core/cluster/gpu_type.h"

#include <algorithm>
#include <cctype>

namespace swell::cluster {

namespace {

constexpr double GB = 1e9;
constexpr double GiB = 1024.0 * 1024.0 * 1024.0;
constexpr double MiB = 1024.0 * 1024.0;

}  // namespace

double GpuType::tflops(Precision precision) const noexcept {
  switch (precision) {
    case Precision::fp8:
      if (fp8_tflops > 0) return fp8_tflops;
      [[fallthrough]];
    case Precision::bf16:
      if (bf16_tflops > 0) return bf16_tflops;
      [[fallthrough]];
    case Precision::fp16:
      if (fp16_tflops > 0) return fp16_tflops;
      [[fallthrough]];
    case Precision::fp32: break;
  }
  return fp32_tflops;
}

const std::vector<GpuType>& gpu_catalogue() {
  // Columns: name; fp32, fp16, bf16, fp8 TFLOPS; memory; memory bandwidth; link, one direction;
  // link saturation. NVLink figures are half of the vendors' two-way sums. The saturation sizes are
  // where the all-reduce curves of NVSwitch (64 MiB) and PCIe (8 MiB) machines flatten.
  static const std::vector<GpuType> types = {
      {"b200", 80, 2250, 2250, 4500, 180 * GiB, 8000 * GB, 900 * GB, 128 * MiB},
      {"h200", 66.9, 989.4, 989.4, 1978.9, 141 * GB, 4800 * GB, 450 * GB, 64 * MiB},
      {"h100", 66.9, 989.4, 989.4, 1978.9, 80 * GiB, 3350 * GB, 450 * GB, 64 * MiB},
      {"a100", 19.5, 312, 312, 0, 80 * GiB, 2039 * GB, 300 * GB, 64 * MiB},
      {"a100-40g", 19.5, 312, 312, 0, 40 * GiB, 1555 * GB, 300 * GB, 64 * MiB},
      {"v100", 15.7, 125, 0, 0, 32 * GiB, 900 * GB, 150 * GB, 32 * MiB},
      {"l20", 59.8, 119.5, 119.5, 239, 48 * GiB, 864 * GB, 32 * GB, 8 * MiB},
      {"a40", 37.4, 149.7, 149.7, 0, 48 * GiB, 696 * GB, 32 * GB, 8 * MiB},
      {"a10", 31.2, 125, 125, 0, 24 * GiB, 600 * GB, 32 * GB, 8 * MiB},
      {"1080ti", 11.3, 11.3, 0, 0, 11 * GiB, 484 * GB, 16 * GB, 4 * MiB},
  };
  return types;
}

std::optional<GpuType> find_gpu_type(std::string_view name) {
  auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  for (const GpuType& type : gpu_catalogue())
    if (std::equal(name.begin(), name.end(), type.name.begin(), type.name.end(), same)) return type;
  return std::nullopt;
}

}  // namespace swell::cluster
