// SPDX-License-Identifier: GPL-2.0-or-later
// A select plugin for tests/bench/select. It calls Swell's plugin, `swell.so` in its own folder,
// and the `cons_tres.so` there, to which Swell's plugin forwards. Both answer each
// select_p_job_test() in random order, from the same state of slurmctld. `times` gets the mode, the
// result, and the nanoseconds of cons_tres and of Swell, in processor time of the thread, so that
// other work of the host does not count. Swell's answer is returned.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <dlfcn.h>
#include <random>
#include <string>

#include "plugins/select/bitmaps.h"
#include "plugins/select/forward.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#define EXPORT __attribute__((visibility("default")))

namespace {

using swell::select::Bitmap;
using JobTest = int (*)(void*, Bitmap*, std::uint32_t, std::uint32_t, std::uint32_t, std::uint16_t,
                        void*, void**, void*, void*);
JobTest cons_tres_job_test = nullptr, swell_job_test = nullptr;
int (*swell_init)() = nullptr;
int (*swell_fini)() = nullptr;
std::FILE* times = nullptr;
swell::select::Bitmaps bitmaps;
std::mt19937 dice(1);

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
  void* const swell = dlopen((folder + "/swell.so").c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (swell == nullptr) return SLURM_ERROR;
  swell_job_test = reinterpret_cast<JobTest>(dlsym(swell, "select_p_job_test"));
  swell_init = reinterpret_cast<int (*)()>(dlsym(swell, "init"));
  swell_fini = reinterpret_cast<int (*)()>(dlsym(swell, "fini"));
  swell::select::forward_to(swell);
  if (const int made = swell_init(); made != SLURM_SUCCESS) return made;
  if (dlsym(RTLD_DEFAULT, "idle_node_bitmap") == nullptr)
    return SLURM_SUCCESS;  // a client, not slurmctld
  // The instance that Swell has loaded: another one would have its own state, without the jobs.
  void* const cons_tres =
      dlopen((folder + "/cons_tres.so").c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (cons_tres == nullptr || bitmaps.look_up() != nullptr) return SLURM_ERROR;
  cons_tres_job_test = reinterpret_cast<JobTest>(dlsym(cons_tres, "select_p_job_test"));
  times = std::fopen((folder + "/times").c_str(), "a");
  return times != nullptr ? SLURM_SUCCESS : SLURM_ERROR;
}

EXPORT int fini(void) noexcept {
  if (times != nullptr) std::fclose(times);
  times = nullptr;
  return swell_fini != nullptr ? swell_fini() : SLURM_SUCCESS;
}

EXPORT int select_p_job_test(void* job, Bitmap* nodes, std::uint32_t min, std::uint32_t max,
                             std::uint32_t wanted, std::uint16_t mode, void* candidates,
                             void** to_preempt, void* exclusions, void* will_run) noexcept {
  if (times == nullptr)
    return swell_job_test(job, nodes, min, max, wanted, mode, candidates, to_preempt, exclusions,
                          will_run);
  Bitmap* asked = bitmaps.copy(nodes);
  int result = SLURM_ERROR;
  const auto time = [&](JobTest job_test) {
    bitmaps.assign(nodes, asked);
    const long long begin = own_time_ns();
    result =
        job_test(job, nodes, min, max, wanted, mode, candidates, to_preempt, exclusions, will_run);
    return own_time_ns() - begin;
  };
  long long alone = 0, through = 0;
  if (dice() % 2 == 0) {
    alone = time(cons_tres_job_test);
    through = time(swell_job_test);
  } else {
    through = time(swell_job_test);
    alone = time(cons_tres_job_test);
    time(swell_job_test);
  }
  bitmaps.free(&asked);
  std::fprintf(times, "%u %d %lld %lld\n", mode, result, alone, through);
  return result;
}

}  // extern "C"
