// SPDX-License-Identifier: GPL-2.0-or-later
// sched/swell: Slurm's symbols and nothing else. What they do stands in base_scheduler.h (the stock
// scheduler) and controller/host.h (elasticity). Built twice: heterogeneous jobs need the words
// SchedulerType=sched/backfill, so there is a plugin of that name too (SWELL_SHADOW), which loads
// the next one of its name.
#include <cstdint>
#include <string>

#include "controller/host.h"
#include "plugins/sched/base_scheduler.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

#define EXPORT __attribute__((visibility("default")))

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
  // Without the base scheduler no job would start: that is worth stopping slurmctld for, at once
  // and with the reason, as Slurm does for a scheduler that cannot be loaded.
  if (const char* problem = swell::sched::load_base(swell::controller::base_scheduler().c_str())) {
    slurm_error("swell: %s", problem);
    return SLURM_ERROR;
  }
  swell::controller::start_controller(sink);
  return SLURM_SUCCESS;
}

EXPORT void fini(void) noexcept {
  swell::controller::stop_controller();
  swell::sched::unload_base();
}

EXPORT int sched_p_reconfig(void) noexcept {
  swell::controller::wake_controller();
  return swell::sched::reconfigure_base();
}

}  // extern "C"
