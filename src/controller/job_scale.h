// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/policy/lending/scale_tables.h"
#include "core/policy/view.h"

namespace swell::controller {

/// The best plan that was found for a number of GPUs that a job could have.
struct ScalePoint {
  int gpus = 0;
  double samples_per_s = 0;  ///< predicted
  double modelled = 0;       ///< the same by the layers alone, see planner::ScaleRow
  double peak_bytes = 0;     ///< of the fullest GPU, predicted
  std::string plan;          ///< for people
  /// The rule by which the policy leaves it out.
  planner::RowRule omitted = planner::RowRule::none;
  friend bool operator==(const ScalePoint&, const ScalePoint&) = default;
};

/// Makes the scale tables that people are shown; pure but for the tables that it remembers.
class JobScales {
 public:
  /// `filter`: of the policy that decides.
  explicit JobScales(const planner::RowFilter& filter);
  /// From the job's own GPUs on: over those that it is lent, then over those that are idle in its
  /// partition. Empty where the job cannot be planned for.
  std::vector<ScalePoint> of(const policy::ElasticJobView& job,
                             const policy::ClusterView& view) const;

 private:
  policy::ScaleTables tables_;
  planner::RowFilter filter_;
};

/// JSON array of {"gpus","samples_per_s","modelled_samples_per_s","peak_bytes","plan"}, and
/// "omitted" with the rule's name where the policy leaves the row out.
Json to_json(const std::vector<ScalePoint>& points);

}  // namespace swell::controller
