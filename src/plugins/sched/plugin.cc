// SPDX-License-Identifier: GPL-2.0-or-later
// sched/swell: only Slurm's symbols. The logic is in base_scheduler.h (the stock scheduler) and
// controller/host.h (elasticity). Built twice: heterogeneous jobs need
// SchedulerType=sched/backfill, so there is also a plugin of that name (SWELL_SHADOW), which loads
// the next plugin of its name.
#include <cstdint>
#include <string>

#include "controller/host.h"
#include "plugins/guarded.h"
#include "plugins/sched/base_scheduler.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

#define EXPORT __attribute__((visibility("default")))

using swell::plugins::guarded;

extern "C" {

extern const char plugin_name[] EXPORT;
extern const char plugin_type[] EXPORT;
extern const uint32_t plugin_version EXPORT;
const char plugin_name[] = "Swell: elastic training jobs beside the base scheduler";
#ifdef SWELL_SHADOW
const char plugin_type[] = "sched/backfill";
#else
const char plugin_type[] = "sched/swell";
#endif
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

EXPORT int init(void) noexcept {
  const swell::controller::LogSink sink{[](const char* text) { slurm_info("%s", text); },
                                        [](const char* text) { slurm_error("%s", text); }};
  // Without the base scheduler no job would start. So slurmctld stops at once and gives the reason,
  // as it does if a scheduler cannot be loaded.
  const int loaded = guarded("init", SLURM_ERROR, [] {
    const std::string type = swell::controller::base_scheduler();
    const std::string problem = swell::sched::load_base(type);
    if (problem.empty()) return SLURM_SUCCESS;
    slurm_error("swell: %s", problem.c_str());
    return SLURM_ERROR;
  });
  if (loaded == SLURM_SUCCESS) swell::controller::start_controller(sink);
  return loaded;
}

EXPORT void fini(void) noexcept {
  swell::controller::stop_controller();
  guarded("fini", SLURM_ERROR, [] {
    swell::sched::unload_base();
    return SLURM_SUCCESS;
  });
}

EXPORT int sched_p_reconfig(void) noexcept {
  swell::controller::wake_controller();
  return guarded("reconfigure", SLURM_ERROR, [] { return swell::sched::reconfigure_base(); });
}

}  // extern "C"
