// SPDX-License-Identifier: GPL-2.0-or-later
// A shadow of select/cons_tres: only Slurm's symbols. It loads Slurm's own plugin of that name and
// forwards every call to it (forward.h), except select_p_job_test() (absence.h, narrowing.h).
// Every client and daemon loads a select plugin; outside slurmctld all calls are only forwarded.
#include <cstdint>
#include <string>

#include "plugins/guarded.h"
#include "plugins/select/absence.h"
#include "plugins/select/bitmaps.h"
#include "plugins/select/block_source.h"
#include "plugins/select/forward.h"
#include "plugins/select/narrowing.h"
#include "plugins/select/preemption.h"
#include "plugins/stock_plugin.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

#define EXPORT __attribute__((visibility("default")))

namespace {

using swell::plugins::guarded;
using swell::select::JobTest;

/// Prototype of cons_tres's function. From 24.05 on it has a tenth argument; older versions ignore
/// it.
using StockJobTest = int (*)(void*, void*, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint16_t, void*, void**, void*, void*);
StockJobTest stock_job_test = nullptr;
int (*stock_init)() = nullptr;
int (*stock_fini)() = nullptr;

swell::select::Bitmaps bitmaps;
swell::select::Narrowing* narrowing = nullptr;  ///< null: cons_tres decides alone
swell::select::Absence* absence = nullptr;      ///< null: cons_tres decides alone
swell::select::CandidateLists candidate_lists;
swell::select::Preemption* preemption = nullptr;  ///< null: the order of candidates does not change

int ask_stock(const JobTest& call) {
  return stock_job_test(call.job, call.nodes, call.min_nodes, call.max_nodes, call.wanted_nodes,
                        call.mode, call.preemption_candidates, call.to_preempt, call.exclusions,
                        call.will_run);
}

int ask_narrowing(const JobTest& call) {
  return narrowing->test(call, swell::select::current_blocks(),
                         swell::select::node_table_changes());
}

/// Loads Slurm's own plugin. Returns the reason if that fails; empty: it is loaded.
std::string load_stock() {
  const auto stock = swell::plugins::load_stock_plugin("select_cons_tres.so");
  if (stock.library == nullptr) return stock.problem;
  stock_job_test = reinterpret_cast<StockJobTest>(dlsym(stock.library, "select_p_job_test"));
  stock_init = reinterpret_cast<int (*)()>(dlsym(stock.library, "init"));
  stock_fini = reinterpret_cast<int (*)()>(dlsym(stock.library, "fini"));
  if (stock_job_test == nullptr) return stock.path + " has no select_p_job_test";
  swell::select::forward_to(stock.library);
  return {};
}

void start_narrowing() {
  if (dlsym(RTLD_DEFAULT, "idle_node_bitmap") == nullptr) return;  // a client, or another daemon
  if (const char* missing = bitmaps.look_up()) {
    slurm_error("swell: select: this slurmctld has no %s, so cons_tres decides alone", missing);
    return;
  }
  // Never destroyed: slurmctld may call it until it ends.
  static swell::select::Narrowing instance(bitmaps, ask_stock);
  narrowing = &instance;
  static swell::select::Absence present(bitmaps, ask_narrowing);
  absence = &present;
  if (candidate_lists.look_up()) {
    static swell::select::Preemption sorting(candidate_lists, swell::select::controllers_order);
    preemption = &sorting;
  } else {
    slurm_info(
        "swell: select: this slurmctld's lists cannot be sorted: preemption goes by its own order");
  }
  swell::select::start_block_source({[](const char* text) { slurm_info("%s", text); },
                                     [](const char* text) { slurm_error("%s", text); }});
}

}  // namespace

extern "C" {

extern const char plugin_name[] EXPORT;
extern const char plugin_type[] EXPORT;
extern const std::uint32_t plugin_version EXPORT;
extern const std::uint32_t plugin_id EXPORT;
const char plugin_name[] = "Swell: select/cons_tres, with jobs of several nodes close together";
const char plugin_type[] = "select/cons_tres";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
const std::uint32_t plugin_id = 109;  // the id of cons_tres, used in state files and messages

EXPORT int init(void) noexcept {
  // Without cons_tres nothing can be scheduled: slurmctld must stop, as for a missing select
  // plugin.
  const int loaded = guarded("select: loading Slurm's select_cons_tres.so", SLURM_ERROR, [] {
    const std::string problem = load_stock();
    if (problem.empty()) return SLURM_SUCCESS;
    slurm_error("swell: select: %s", problem.c_str());
    return SLURM_ERROR;
  });
  if (loaded != SLURM_SUCCESS) return loaded;
  if (stock_init != nullptr)
    if (const int result = stock_init(); result != SLURM_SUCCESS) return result;
  // After a failure here, cons_tres decides alone.
  return guarded("select: cons_tres decides alone", SLURM_SUCCESS, [] {
    start_narrowing();
    return SLURM_SUCCESS;
  });
}

EXPORT int fini(void) noexcept {
  absence = nullptr;
  narrowing = nullptr;
  preemption = nullptr;
  swell::select::stop_block_source();
  return stock_fini != nullptr ? stock_fini() : SLURM_SUCCESS;
}

/// Tells the controller, in the same slurmctld, whether candidates for preemption are sorted here.
EXPORT int swell_sorts_preemption(void) noexcept { return preemption != nullptr ? 1 : 0; }

EXPORT int select_p_job_test(void* job, void* nodes, std::uint32_t min_nodes,
                             std::uint32_t max_nodes, std::uint32_t wanted_nodes,
                             std::uint16_t mode, void* preemption_candidates, void** to_preempt,
                             void* exclusions
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
                             ,
                             void* will_run
#endif
                             ) noexcept {
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
  void* const will_run = nullptr;
#endif
  const JobTest call{job,
                     static_cast<swell::select::Bitmap*>(nodes),
                     min_nodes,
                     max_nodes,
                     wanted_nodes,
                     mode,
                     preemption_candidates,
                     to_preempt,
                     exclusions,
                     will_run};
  try {
    if (preemption != nullptr)
      preemption->sort(static_cast<swell::select::Candidates*>(preemption_candidates));
    if (absence != nullptr)
      return absence->test(call, swell::select::current_absent(),
                           swell::select::node_table_changes());
  } catch (...) {  // out of memory, before or between the calls of cons_tres
    static bool said = false;
    if (!said)
      slurm_error("swell: select: out of memory while placing a job; cons_tres decides alone");
    said = true;
  }
  return ask_stock(call);
}

}  // extern "C"
