// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>

#include <slurm/slurm.h>

#include "controller/admission.h"
#include "core/result.h"

namespace swell::job_submit {

/// Returns the part of Slurm's submission that matters to Swell.
controller::SubmitRequest read(const job_desc_msg_t& job, std::uint32_t uid);

/// Writes the decision into the submission.
void apply(const controller::Admission& admission, job_desc_msg_t& job);

/// Returns the part of a change that matters to Swell.
controller::ChangeRequest read_change(const job_desc_msg_t& job, std::uint32_t uid);

/// Returns a copy that Slurm may free.
char* slurm_text(const std::string& text);

/// Replaces the text that a change writes into AdminComment.
void write_admin_comment(const std::string& text, job_desc_msg_t& job);

}  // namespace swell::job_submit
