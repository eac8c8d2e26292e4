// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/compute_mode.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <unistd.h>

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

/// Returns whether NVIDIA's MPS, through which programs share GPUs, runs on this node.
bool has_mps() {
  const char* set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = set != nullptr && *set != '\0' ? set : "/tmp/nvidia-mps";
  return access((folder + "/control").c_str(), F_OK) == 0;
}

}  // namespace

OneProgramGpus one_program_gpus(std::string_view own) {
  const std::unique_ptr<void, Close> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!library) return {};
  const auto init = find<nvml::Init>(library.get(), "nvmlInit_v2");
  const auto shutdown = find<nvml::Init>(library.get(), "nvmlShutdown");
  const auto count_of = find<nvml::DeviceGetCount>(library.get(), "nvmlDeviceGetCount_v2");
  const auto device_of =
      find<nvml::DeviceGetHandleByIndex>(library.get(), "nvmlDeviceGetHandleByIndex_v2");
  const auto mode_of = find<nvml::DeviceGetComputeMode>(library.get(), "nvmlDeviceGetComputeMode");
  const auto minor_of = find<nvml::DeviceGetMinorNumber>(library.get(), "nvmlDeviceGetMinorNumber");
  if (!init || !shutdown || !count_of || !device_of || !mode_of || init() != nvml::kSuccess)
    return {};
  const std::vector<int> wanted = slurm_text::expand_indices(own, kMaxGpus);
  OneProgramGpus all, among_own;
  bool has_own = false;
  unsigned count = 0;
  if (count_of(&count) != nvml::kSuccess) count = 0;
  for (unsigned i = 0; i < count && i < kMaxGpus; ++i) {
    nvml::Device device = nullptr;
    int mode = 0;
    // The driver refuses the handle of a GPU that the job's cgroup excludes.
    if (device_of(i, &device) != nvml::kSuccess) continue;
    unsigned minor = i;  // Slurm numbers GPUs by their device files
    if (minor_of != nullptr && minor_of(device, &minor) != nvml::kSuccess) minor = i;
    const bool is_own =
        std::find(wanted.begin(), wanted.end(), static_cast<int>(minor)) != wanted.end();
    has_own = has_own || is_own;
    if (mode_of(device, &mode) != nvml::kSuccess) continue;
    for (OneProgramGpus* found : {&all, is_own ? &among_own : nullptr}) {
      if (found == nullptr) continue;
      if (mode == nvml::kExclusiveProcess) found->exclusive.push_back(static_cast<int>(i));
      if (mode == nvml::kProhibited) found->prohibited.push_back(static_cast<int>(i));
    }
  }
  shutdown();
  OneProgramGpus found = has_own ? among_own : all;
  if (has_mps()) found.exclusive.clear();
  return found;
}

OneProgramGpus one_program_gpus_within(double limit_s, const std::string& own) {
  // The thread may outlive this call, so it owns the promise that it writes to.
  auto promise = std::make_shared<std::promise<OneProgramGpus>>();
  std::future<OneProgramGpus> found = promise->get_future();
  try {
    std::thread([promise, own] { promise->set_value(one_program_gpus(own)); }).detach();
  } catch (const std::system_error&) { return {}; }
  if (found.wait_for(std::chrono::duration<double>(limit_s)) != std::future_status::ready)
    return {};
  return found.get();
}

std::string one_program_text(const OneProgramGpus& gpus) {
  std::string text;
  const auto add = [&](const std::vector<int>& some, const char* mode, const char* refuses) {
    if (some.empty()) return;
    text +=
        fmt::format("{}GPU{} {} {} in compute mode {}, which refuses {}", text.empty() ? "" : "; ",
                    some.size() == 1 ? "" : "s", slurm_text::list_of_indices(some),
                    some.size() == 1 ? "is" : "are", mode, refuses);
  };
  add(gpus.exclusive, "EXCLUSIVE_PROCESS", "the second program of a live switch");
  add(gpus.prohibited, "PROHIBITED", "every program");
  return text;
}

}  // namespace swell
