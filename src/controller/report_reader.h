// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "controller/cluster_views.h"
#include "controller/loop_state.h"

namespace swell::controller {

/// Reads what programs report of their training: profiles, and the models that their users name.
class ReportReader {
 public:
  ReportReader(LoopState& loop, ClusterViews& views) : loop_(loop), views_(views) {}

  /// Keeps a profile until read() takes or refuses it; the one before is replaced.
  void receive(ElasticJob& job, const control::Profile& profile, double now);
  /// Takes the user's description of the job's model; without an object there is none.
  void take_sheet(ElasticJob& job, const Json& model, double now);
  /// Takes or refuses the profiles that have come. One whose companions Slurm does not show yet
  /// is tried again for kReportKept_s.
  void read(double now);

 private:
  bool take_report(ElasticJob& job, double now);
  void check_table(ElasticJob& job);
  void keep_profile(const ElasticJob& job);

  LoopState& loop_;
  ClusterViews& views_;
};

}  // namespace swell::controller
