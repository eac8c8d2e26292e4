// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/compute_mode.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>

#include "core/nvml_api.h"
#include "core/slurm_text/lists.h"

namespace swell {

namespace {

constexpr unsigned kMaxGpus = 64;

struct Close {
  void operator()(void* library) const noexcept { dlclose(library); }
};

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::vector<int> one_program_gpus() {
  std::vector<int> found;
  const std::unique_ptr<void, Close> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!library) return found;
  const auto init = find<nvml::Init>(library.get(), "nvmlInit_v2");
  const auto shutdown = find<nvml::Init>(library.get(), "nvmlShutdown");
  const auto count_of = find<nvml::DeviceGetCount>(library.get(), "nvmlDeviceGetCount_v2");
  const auto device_of =
      find<nvml::DeviceGetHandleByIndex>(library.get(), "nvmlDeviceGetHandleByIndex_v2");
  const auto mode_of = find<nvml::DeviceGetComputeMode>(library.get(), "nvmlDeviceGetComputeMode");
  if (!init || !shutdown || !count_of || !device_of || !mode_of || init() != nvml::kSuccess)
    return found;
  unsigned count = 0;
  if (count_of(&count) != nvml::kSuccess) count = 0;
  for (unsigned i = 0; i < count && i < kMaxGpus; ++i) {
    nvml::Device device = nullptr;
    int mode = 0;
    if (device_of(i, &device) == nvml::kSuccess && mode_of(device, &mode) == nvml::kSuccess &&
        (mode == nvml::kExclusiveProcess || mode == nvml::kProhibited))
      found.push_back(static_cast<int>(i));
  }
  shutdown();
  return found;
}

std::string one_program_text(const std::vector<int>& gpus) {
  if (gpus.empty()) return {};
  return fmt::format(
      "GPU{} {} {} in compute mode EXCLUSIVE_PROCESS, which refuses the second "
      "program of a live switch",
      gpus.size() == 1 ? "" : "s", slurm_text::list_of_indices(gpus),
      gpus.size() == 1 ? "is" : "are");
}

}  // namespace swell
