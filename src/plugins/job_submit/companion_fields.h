// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <slurm/slurm.h>

namespace swell::job_submit {

/// Returns the names, separated by ", ", of the members by which a companion requests more than its
/// grant can say, or something else; empty if there are none. Every member that decides resources,
/// place, time, cost or preemption must be as slurm_init_job_desc_msg() left it, unless admission
/// compares it with the offer. Skips members that this version of Slurm does not have.
std::string members_beyond_an_offer(const job_desc_msg_t& job);

/// Position of a known member in job_desc_msg_t, for the test that none was forgotten.
struct KnownMember {
  std::string name;
  std::size_t begin = 0, end = 0;
};
std::vector<KnownMember> known_members();

}  // namespace swell::job_submit
