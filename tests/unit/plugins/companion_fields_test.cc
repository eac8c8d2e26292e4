// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/job_submit/companion_fields.h"

#include <algorithm>
#include <criterion/criterion.h>

using namespace swell::job_submit;

namespace {

job_desc_msg_t untouched() {
  job_desc_msg_t job;
  slurm_init_job_desc_msg(&job);
  return job;
}

/// As salloc of 24.11 writes it; 22.05 has no such member.
template <typename Description>
void no_reserved_ports(Description& job) {
  if constexpr (requires { job.resv_port_cnt; }) job.resv_port_cnt = NO_VAL16;
}

char text[] = "x";

}  // namespace

Test(companion_fields, a_submission_that_nobody_touched_asks_for_nothing_more) {
  cr_assert_eq(members_beyond_an_offer(untouched()), std::string());
}

Test(companion_fields, empty_values_of_other_versions_sallocs_ask_for_nothing) {
  job_desc_msg_t job = untouched();
  no_reserved_ports(job);
  cr_assert_eq(members_beyond_an_offer(job), std::string());
}

Test(companion_fields, names_what_no_offer_has) {
  struct {
    void (*change)(job_desc_msg_t&);
    const char* name;
  } const cases[] = {
      {[](job_desc_msg_t& j) { j.shared = 0; }, "shared"},
      {[](job_desc_msg_t& j) { j.cpus_per_tres = text; }, "cpus_per_tres"},
      {[](job_desc_msg_t& j) { j.mem_per_tres = text; }, "mem_per_tres"},
      {[](job_desc_msg_t& j) { j.tres_bind = text; }, "tres_bind"},
      {[](job_desc_msg_t& j) { j.tres_freq = text; }, "tres_freq"},
      {[](job_desc_msg_t& j) { j.licenses = text; }, "licenses"},
      {[](job_desc_msg_t& j) { j.reservation = text; }, "reservation"},
      {[](job_desc_msg_t& j) { j.features = text; }, "features"},
      {[](job_desc_msg_t& j) { j.cluster_features = text; }, "cluster_features"},
      {[](job_desc_msg_t& j) { j.burst_buffer = text; }, "burst_buffer"},
      {[](job_desc_msg_t& j) { j.dependency = text; }, "dependency"},
      {[](job_desc_msg_t& j) { j.exc_nodes = text; }, "exc_nodes"},
      {[](job_desc_msg_t& j) { j.wckey = text; }, "wckey"},
      {[](job_desc_msg_t& j) { j.network = text; }, "network"},
      {[](job_desc_msg_t& j) { j.core_spec = 0; }, "core_spec"},
      {[](job_desc_msg_t& j) { j.threads_per_core = 1; }, "threads_per_core"},
      {[](job_desc_msg_t& j) { j.contiguous = 1; }, "contiguous"},
      {[](job_desc_msg_t& j) { j.overcommit = 1; }, "overcommit"},
      {[](job_desc_msg_t& j) { j.ntasks_per_node = 8; }, "ntasks_per_node"},
      {[](job_desc_msg_t& j) { j.max_cpus = 64; }, "max_cpus"},
      {[](job_desc_msg_t& j) { j.begin_time = 1; }, "begin_time"},
      {[](job_desc_msg_t& j) { j.deadline = 1; }, "deadline"},
      {[](job_desc_msg_t& j) { j.nice = 1; }, "nice"},
      {[](job_desc_msg_t& j) { j.reboot = 1; }, "reboot"},
      {[](job_desc_msg_t& j) { j.x11 = 1; }, "x11"},
      {[](job_desc_msg_t& j) { j.bitflags = SPREAD_JOB; }, "bitflags"},
  };
  for (const auto& each : cases) {
    job_desc_msg_t job = untouched();
    each.change(job);
    const std::string named = members_beyond_an_offer(job);
    cr_assert(named.starts_with(each.name) && named.find(',') == named.npos, "%s: \"%s\"",
              each.name, named.c_str());
  }
}

Test(companion_fields, every_member_of_this_slurms_submission_is_known) {
  std::vector<KnownMember> members = known_members();
  std::sort(members.begin(), members.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::size_t end = 0;
  std::string before = "the beginning";
  members.push_back({"the end", sizeof(job_desc_msg_t), sizeof(job_desc_msg_t)});
  for (const KnownMember& member : members) {
    // Bytes between two members can only be padding: fewer than the next one's alignment.
    const std::size_t size = member.end - member.begin;
    const std::size_t alignment =
        std::min(size == 0 ? alignof(job_desc_msg_t) : size, alignof(job_desc_msg_t));
    cr_assert_lt(member.begin - end, alignment, "%zu bytes between %s and %s are not known",
                 member.begin - end, before.c_str(), member.name.c_str());
    end = member.end;
    before = member.name;
  }
}
