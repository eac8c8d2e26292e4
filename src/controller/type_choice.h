// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/elastic_spec.h"
#include "control/speed_table.h"
#include "controller/admission.h"
#include "controller/gpu_queue.h"
#include "slurm/records.h"

namespace swell::controller {

/// A prediction for a waiting job on one GPU type.
struct TypeOffer {
  std::string type;
  double start_s = 0;           ///< from now
  double samples_per_s = 0;     ///< by the job's table
  std::optional<double> end_s;  ///< from now; nothing: its work is not known
  planner::ScaleSource source = planner::ScaleSource::unknown;
};

/// The type on which a waiting job is predicted to end first.
struct TypeChoice {
  std::vector<TypeOffer> offers;  ///< the best one first
  double gain_s = 0;              ///< over the type that it asks for
  const TypeOffer& best() const noexcept { return offers.front(); }
  /// "4 h100: idle now, done in 4.4 h; 4 a100: starts in 2 h, done in 7.1 h".
  std::string words(int gpus) const;
};

/// Compares the types that a job with types= and table= accepts: those of types= and the one that
/// it asks for. Its work is that of steps=, or else what the type that it asks for does in its time
/// limit. Pure but for the lists that `queue` remembers. The error says why the type stays as it
/// is.
Result<TypeChoice> choose_type(const slurm::JobRecord& job, const control::ElasticSpec& spec,
                               const control::SpeedTable& table, GpuQueue& queue);

/// Whether a job that waits already should move: it gains at least a minute, and a twentieth of the
/// time until its end.
bool pays_to_move(const TypeChoice& choice) noexcept;

/// Has an admitted submission ask for the best type, and says so in its notice and its tag.
/// Reserves in `queue` what it is predicted to get. Nothing changes for submissions without types=
/// and table=. REQUIRES: it was admitted, and is elastic.
void choose_type(const SubmitRequest& request, Admission& admission, GpuQueue& queue);

/// Refuses a deadline that not even the fastest row of `table` keeps which the job may have, with
/// the earliest possible end. Nothing is checked without a deadline, steps or a table. `gpu_types`:
/// those that the cluster has; none: not known.
Result<void> check_deadline(const control::ElasticSpec& spec, const control::SpeedTable& table,
                            const std::string& type, int basic_gpus, std::time_t now,
                            const std::set<std::string>& gpu_types);

/// "4.4 h", "12 min", "40 s".
std::string duration_words(double seconds);

}  // namespace swell::controller
