// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "controller/admission.h"
#include "core/result.h"

/// The controller inside slurmctld: what sched/swell and job_submit/swell share. They link the same
/// shared library, so that what one grants the other can look up in memory.
namespace swell::controller {

#define SWELL_API __attribute__((visibility("default")))

/// Where messages for Slurm's log go: set by the plugins, which have Slurm's log functions.
struct LogSink {
  void (*info)(const char*) = nullptr;
  void (*error)(const char*) = nullptr;
};

/// Starts the controller's thread, once; it waits by itself until slurmctld answers. A bad
/// swell.conf leaves elasticity off. Returns at once and never fails its caller.
SWELL_API void start_controller(const LogSink& sink) noexcept;

/// Ends the thread: joins it where it ends within 2 s, and leaves it to itself where it waits for
/// an RPC, with everything that it uses. Safe to call when nothing was started.
SWELL_API void stop_controller() noexcept;

/// Something that may concern the controller has happened. Never blocks.
SWELL_API void wake_controller() noexcept;

/// Is a controller running that could have made grants?
SWELL_API bool elasticity_is_on() noexcept;

/// job_submit's question; in memory only. See admission.h.
SWELL_API Result<Admission> admit_submission(const SubmitRequest& request);

/// job_modify's question; in memory only. See admission.h.
SWELL_API Result<void> check_submitted_change(const ChangeRequest& request);

/// Returns what a change should write into AdminComment, so that a job keeps its tag; nothing: as
/// it is. In memory only. See tag_book.h.
SWELL_API std::optional<std::string> comment_with_tag(const ChangeRequest& request);

/// How the place of companions became known.
enum class PlaceKnown {
  from_conf,    ///< swell.conf names it
  from_before,  ///< swell.conf is away, cannot be read or names none: as it was named last
  not_at_all,   ///< and none was ever named: nothing is kept for companions
};

/// Reads which place is kept for companions from the swell.conf beside slurm.conf, and remembers it
/// in StateSaveLocation. Whatever the controller does, and before it runs, submissions to that
/// place are refused.
SWELL_API PlaceKnown read_expansion_place() noexcept;

/// Companions in the order in which the controller would take them back, at most `room` of them.
/// @return how many there are. For the select plugin, which finds this library by its name where it
/// is loaded already: hence a C name.
extern "C" SWELL_API std::size_t swell_reclaim_order(std::uint32_t* companions,
                                                     std::size_t room) noexcept;

/// BaseScheduler from the swell.conf beside slurm.conf; "sched/backfill" where that cannot be read.
SWELL_API std::string base_scheduler() noexcept;

}  // namespace swell::controller
