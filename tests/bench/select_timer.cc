// SPDX-License-Identifier: GPL-2.0-or-later
// A select plugin for tests/bench/select: stands in front of another select_cons_tres.so, `next.so` in its own
// folder, and notes in `times` there how long each select_p_job_test() took: mode, result, nanoseconds. The
// thread's own time: whatever else the host does while it waits is left out.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <dlfcn.h>
#include <string>

#include "plugins/select/forward.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#define EXPORT __attribute__((visibility("default")))

namespace {

using JobTest = int (*)(void*, void*, std::uint32_t, std::uint32_t, std::uint32_t, std::uint16_t, void*, void**, void*, void*);
JobTest next_job_test = nullptr;
int (*next_init)() = nullptr;
int (*next_fini)() = nullptr;
std::FILE* times = nullptr;

long long own_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace

extern "C" {

extern const char plugin_name[] EXPORT;
extern const char plugin_type[] EXPORT;
extern const std::uint32_t plugin_version EXPORT;
extern const std::uint32_t plugin_id EXPORT;
const char plugin_name[] = "Swell's stopwatch for select/cons_tres";
const char plugin_type[] = "select/cons_tres";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
const std::uint32_t plugin_id = 109;

EXPORT int init(void) noexcept {
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(init), &self);
  const std::string path = self.dli_fname, folder = path.substr(0, path.rfind('/'));
  void* const next = dlopen((folder + "/next.so").c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (next == nullptr) return SLURM_ERROR;
  next_job_test = reinterpret_cast<JobTest>(dlsym(next, "select_p_job_test"));
  next_init = reinterpret_cast<int (*)()>(dlsym(next, "init"));
  next_fini = reinterpret_cast<int (*)()>(dlsym(next, "fini"));
  swell::select::forward_to(next);
  if (dlsym(RTLD_DEFAULT, "idle_node_bitmap") != nullptr) times = std::fopen((folder + "/times").c_str(), "a");
  return next_init != nullptr ? next_init() : SLURM_SUCCESS;
}

EXPORT int fini(void) noexcept {
  if (times != nullptr) std::fclose(times);
  times = nullptr;
  return next_fini != nullptr ? next_fini() : SLURM_SUCCESS;
}

EXPORT int select_p_job_test(void* job, void* nodes, std::uint32_t least, std::uint32_t most, std::uint32_t wanted, std::uint16_t mode,
                             void* candidates, void** to_preempt, void* exclusions, void* will_run) noexcept {
  const long long begin = own_time_ns();
  const int result = next_job_test(job, nodes, least, most, wanted, mode, candidates, to_preempt, exclusions, will_run);
  if (times != nullptr) std::fprintf(times, "%u %d %lld\n", mode, result, own_time_ns() - begin);
  return result;
}

}  // extern "C"
