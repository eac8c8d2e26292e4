// SPDX-License-Identifier: BSD-3-Clause
#include "core/cluster/gpu_type.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>

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
  // link saturation. NVLink figures are half of the vendors' two-way sums. Saturation sizes are
  // where the all-reduce curves of NVSwitch (64 MiB) and PCIe (8 MiB) machines flatten.
  static const std::vector<GpuType> types = {
      {"b200", 80, 2250, 2250, 4500, 180 * GiB, 8000 * GB, 900 * GB, 128 * MiB},
      {"h200", 66.9, 989.4, 989.4, 1978.9, 141 * GB, 4800 * GB, 450 * GB, 64 * MiB},
      {"h100", 66.9, 989.4, 989.4, 1978.9, 80 * GiB, 3350 * GB, 450 * GB, 64 * MiB},
      {"h20", 44, 148, 148, 296, 96 * GB, 4000 * GB, 450 * GB, 64 * MiB},
      {"h800", 66.9, 989.4, 989.4, 1978.9, 80 * GiB, 3350 * GB, 200 * GB, 64 * MiB},
      {"a100", 19.5, 312, 312, 0, 80 * GiB, 2039 * GB, 300 * GB, 64 * MiB},
      {"a100-40g", 19.5, 312, 312, 0, 40 * GiB, 1555 * GB, 300 * GB, 64 * MiB},
      {"a800", 19.5, 312, 312, 0, 80 * GiB, 2039 * GB, 200 * GB, 64 * MiB},
      {"v100", 15.7, 125, 0, 0, 32 * GiB, 900 * GB, 150 * GB, 32 * MiB},
      {"v100-16g", 15.7, 125, 0, 0, 16 * GiB, 900 * GB, 150 * GB, 32 * MiB},
      {"l40s", 91.6, 362, 362, 733, 48 * GiB, 864 * GB, 32 * GB, 8 * MiB},
      {"l40", 90.5, 181, 181, 362, 48 * GiB, 864 * GB, 32 * GB, 8 * MiB},
      {"l4", 30.3, 121, 121, 242, 24 * GiB, 300 * GB, 32 * GB, 8 * MiB},
      {"l20", 59.8, 119.5, 119.5, 239, 48 * GiB, 864 * GB, 32 * GB, 8 * MiB},
      {"a40", 37.4, 149.7, 149.7, 0, 48 * GiB, 696 * GB, 32 * GB, 8 * MiB},
      {"a30", 10.3, 165, 165, 0, 24 * GiB, 933 * GB, 100 * GB, 8 * MiB},
      {"a10", 31.2, 125, 125, 0, 24 * GiB, 600 * GB, 32 * GB, 8 * MiB},
      {"t4", 8.1, 65, 0, 0, 16 * GiB, 320 * GB, 16 * GB, 8 * MiB},
      {"p100", 9.5, 19, 0, 0, 16 * GiB, 732 * GB, 80 * GB, 8 * MiB},
      {"1080ti", 11.3, 11.3, 0, 0, 11 * GiB, 484 * GB, 16 * GB, 4 * MiB},
  };
  return types;
}

namespace {

/// Returns the words of a name in lower case. Separators are all characters except letters, digits
/// and the point of "1g.10gb".
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) || c == '.') words.back() += static_cast<char>(std::tolower(letter));
    else if (!words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// Reads a number of GB such as "80gb" or "40g"; returns nothing for other words.
std::optional<int> gigabytes(std::string_view word) {
  int value = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
  const std::string_view unit = word.substr(static_cast<std::size_t>(read.ptr - word.data()));
  if (read.ec != std::errc() || value < 1 || (unit != "gb" && unit != "g")) return std::nullopt;
  return value;
}

/// A MIG instance: "3g.40gb" has 3 of 7 compute slices, and 40 GB.
struct Mig {
  int slices = 0, memory_gb = 0;
};
std::optional<Mig> mig_of(std::string_view word) {
  const std::size_t point = word.find("g.");
  if (point != 1 || word[0] < '1' || word[0] > '7') return std::nullopt;
  const auto memory = gigabytes(word.substr(point + 2));
  if (!memory) return std::nullopt;
  return Mig{word[0] - '0', *memory};
}

const GpuType* in_catalogue(std::string_view name) {
  for (const GpuType& type : gpu_catalogue())
    if (type.name == name) return &type;
  return nullptr;
}

/// A product whose variants differ in memory, and the catalogue's name of the smaller one.
struct Variant {
  const char *product, *smaller;
  int below_gb;  ///< fewer GB in the name mean the smaller variant
};
constexpr Variant kVariants[] = {{"a100", "a100-40g", 80}, {"v100", "v100-16g", 32}};

/// Returns the share of `whole` that its MIG instance has. The instance reaches other GPUs only
/// through the host.
GpuType part_of(GpuType whole, const Mig& mig) {
  constexpr double kSlices = 7, kHost = 32 * GB, kHostSaturation = 8 * MiB;
  const double memory = std::min(mig.memory_gb * GB, whole.memory_bytes);
  const double speed = std::min(mig.slices / kSlices, 1.0);
  for (double* tflops :
       {&whole.fp32_tflops, &whole.fp16_tflops, &whole.bf16_tflops, &whole.fp8_tflops})
    *tflops *= speed;
  whole.hbm_bytes_per_s *= memory / whole.memory_bytes;
  whole.memory_bytes = memory;
  whole.link_bytes_per_s = std::min(whole.link_bytes_per_s, kHost);
  whole.link_saturation_bytes = kHostSaturation;
  return whole;
}

}  // namespace

std::optional<GpuType> find_gpu_type(std::string_view name) {
  const std::vector<std::string> words = words_of(name);
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : "-") + word;
  if (const GpuType* exact = in_catalogue(joined)) return *exact;
  const GpuType* product = nullptr;
  std::optional<int> memory;
  std::optional<Mig> mig;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (const auto read = mig_of(words[i])) mig = read;
    else if (const auto gb = gigabytes(words[i])) memory = gb;
    else if (product == nullptr) {
      product = in_catalogue(words[i]);
      if (product == nullptr && i + 1 < words.size())
        product = in_catalogue(words[i] + words[i + 1]);
      if (product == nullptr && words[i].starts_with("gtx"))
        product = in_catalogue(words[i].substr(3));
    }
  }
  if (product == nullptr) return std::nullopt;
  for (const Variant& variant : kVariants)
    if (product->name == variant.product && memory && *memory < variant.below_gb)
      product = in_catalogue(variant.smaller);
  if (!mig) return *product;
  GpuType part = part_of(*product, *mig);
  part.name = fmt::format("{}-{}g.{}gb", product->name, mig->slices, mig->memory_gb);
  return part;
}

}  // namespace swell::cluster
