// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <slurm/slurm.h>

namespace swell::job_submit {

/// Names the members by which a companion asks for more, or for something else, than its grant can
/// say: everything that decides resources, place, time, cost or preemption must be as
/// slurm_init_job_desc_msg() left it, unless admission compares it with the offer. Members that
/// this version of Slurm lacks are passed over.
/// @return the names, separated by ", "; empty where there is none.
std::string members_beyond_an_offer(const job_desc_msg_t& job);

/// Where a member of job_desc_msg_t that is known here stands in it; for the test that none was
/// forgotten.
struct KnownMember {
  std::string name;
  std::size_t begin = 0, end = 0;
};
std::vector<KnownMember> known_members();

}  // namespace swell::job_submit
