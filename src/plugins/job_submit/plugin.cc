// SPDX-License-Identifier: GPL-2.0-or-later
// job_submit/swell: only Slurm's symbols. submission.h reads and changes the submission,
// controller/admission.h decides. Runs under slurmctld's locks, so it only uses memory, and sends
// no RPC.
#include <cstdint>
#include <string>

#include "control/printable.h"
#include "controller/host.h"
#include "plugins/guarded.h"
#include "plugins/job_submit/submission.h"
#include "slurm/versions.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

#define EXPORT __attribute__((visibility("default")))

using swell::control::printable;
using swell::plugins::guarded;

extern "C" {

extern const char plugin_name[] EXPORT;
extern const char plugin_type[] EXPORT;
extern const uint32_t plugin_version EXPORT;
const char plugin_name[] = "Swell: validates --elastic and admits companions";
const char plugin_type[] = "job_submit/swell";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

EXPORT int init(void) noexcept {
  // Read the configuration now: submissions come before slurmctld has started the scheduler plugin
  // and its controller.
  using swell::controller::PlaceKnown;
  const PlaceKnown known = swell::controller::read_expansion_place();
  if (known == PlaceKnown::from_before)
    slurm_error(
        "swell: swell.conf beside slurm.conf names no ExpansionQOS or cannot be read: the one that it named last stays closed");
  if (known == PlaceKnown::not_at_all)
    slurm_error(
        "swell: swell.conf beside slurm.conf names no ExpansionQOS or cannot be read, and none is known from before: nothing is kept for companions");
  return SLURM_SUCCESS;
}
EXPORT void fini(void) noexcept {}

EXPORT int job_submit(job_desc_msg_t* job, uint32_t uid, char** message) noexcept {
  return guarded("job_submit", SLURM_ERROR, [&] {
    const auto request = swell::job_submit::read(*job, uid);
    const auto admission = swell::controller::admit_submission(request);
    if (admission) {
      swell::job_submit::apply(*admission, *job);
      if (!admission->notice.empty() && message != nullptr)
        *message =
            swell::job_submit::slurm_text(swell::control::printable_lines(admission->notice));
      return SLURM_SUCCESS;
    }
    const std::string reason = printable(admission.error().message());
    slurm_info("swell: refusing a submission of uid %u: %s", uid, reason.c_str());
    if (message != nullptr) *message = swell::job_submit::slurm_text(reason);
    // Slurm appends its own text for the code after ours, so the code must fit the request.
    if (!request.elastic) return static_cast<int>(ESLURM_ACCESS_DENIED);
    return static_cast<int>(request.is_het_component ? ESLURM_NOT_SUPPORTED : ESLURM_INVALID_GRES);
  });
}

EXPORT int job_modify(job_desc_msg_t* job, void*, uint32_t uid, char** message) noexcept {
  if constexpr (!swell::slurm::kModifyTakesMessage) message = nullptr;
  return guarded("job_modify", SLURM_ERROR, [&] {
    const auto change = swell::job_submit::read_change(*job, uid);
    const auto allowed = swell::controller::check_submitted_change(change);
    if (allowed) {
      if (const auto comment = swell::controller::comment_with_tag(change))
        swell::job_submit::write_admin_comment(*comment, *job);
      return SLURM_SUCCESS;
    }
    const std::string reason = printable(allowed.error().message());
    slurm_info("swell: refusing a change by uid %u: %s", uid, reason.c_str());
    if (message != nullptr) *message = swell::job_submit::slurm_text(reason);
    return static_cast<int>(ESLURM_ACCESS_DENIED);
  });
}

}  // extern "C"
