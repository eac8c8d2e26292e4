// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/swell.h"
#include "support/views.h"

// Views on which Swell's tests let it decide, all at 10000 s.
namespace swell_views {

using namespace swell;
using namespace swell::policy;
using namespace support;

inline Decisions decide(const ClusterView& view) { return Swell().decide(view); }

/// Two like jobs of 1 GPU on one node, where one is lent the 6 others, and a second node that is
/// full.
inline ClusterView one_has_all(double first_started_s, double second_started_s) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  view.now_s = 10000;
  view.jobs.reserve(2);
  ElasticJobView& first = add_job(view, 1, 0, 1);
  ElasticJobView& second = add_job(view, 2, 0, 1);
  first.max_gpus = second.max_gpus = 8;
  first.started_s = first_started_s;
  second.started_s = second_started_s;
  for (JobId id = 11; id <= 13; ++id) lend(view, first, id, 0, 2);
  profile(first, small_model(), light_coefficients());
  profile(second, small_model(), light_coefficients());
  return view;
}

/// Two like jobs of `gpus` GPUs each on one node, of whose other GPUs all but two are idle;
/// it is 10000 s.
inline ClusterView two_alike(double first_started_s, double second_started_s, int gpus = 2) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  view.now_s = 10000;
  view.jobs.reserve(2);
  for (JobId id : {1, 2}) {
    ElasticJobView& job = add_job(view, id, 0, gpus);
    job.started_s = id == 1 ? first_started_s : second_started_s;
    profile(job, small_model(), light_coefficients());
  }
  take(view, 0, {2, 16, 16000});
  return view;
}

}  // namespace swell_views
