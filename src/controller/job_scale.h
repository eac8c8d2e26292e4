// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/scale_tables.h"
#include "core/policy/view.h"

namespace swell::controller {

/// Makes the scale tables that people are shown; pure but for the tables that it remembers.
class JobScales {
 public:
  /// `filter`: of the policy that decides.
  explicit JobScales(const planner::RowFilter& filter);
  /// From the job's own GPUs on: over those that it is lent, then over those that are idle in its
  /// partition. Without rows where the job cannot be planned for; they are brief.
  planner::NamedTable of(const policy::ElasticJobView& job, const policy::ClusterView& view) const;

 private:
  policy::ScaleTables tables_;
  planner::RowFilter filter_;
};

}  // namespace swell::controller
