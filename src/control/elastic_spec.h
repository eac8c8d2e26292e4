// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/deadline.h"
#include "core/result.h"

namespace swell::control {

enum class Consistency { exact, relaxed };
enum class Mode { live, restart };

/// A user's request: `--elastic[=key=value,...]`. The SPANK plugin and job_submit/swell parse the
/// option's text; job_submit/swell records the canonical text in AdminComment, which the controller
/// and swellrun read.
struct ElasticSpec {
  /// `max=16`: at most 16 GPUs in all; `max=4x`: at most four times the basic demand. At most one
  /// of them is set; neither: as many GPUs as bring a gain.
  std::optional<int> max_gpus;
  std::optional<double> max_factor;
  /// `min=4`: the job may start and run with 4 GPUs, although it asks for more.
  std::optional<int> min_gpus;
  /// `sizes=8/16/32`: the totals that the program can run with, rising; empty: any.
  std::vector<int> sizes;
  /// `step=4`: totals are the basic demand plus a multiple of 4; 0: any. Excludes `sizes`.
  int step = 0;
  /// `types=h100/a100`: acceptable GPU types of expansions, and with `table` of the basic demand;
  /// empty: the type of the basic demand.
  std::vector<std::string> types;
  Consistency consistency = Consistency::relaxed;
  Mode mode = Mode::restart;
  /// `grace=60`: seconds that the job needs to return GPUs.
  int grace_s = 30;
  /// `stay=600`: seconds after a growth or a reclaim in which the job is not grown; the site's
  /// GrowthInterval applies if it is longer.
  int stay_s = 0;
  /// `grow=120`: seconds that one growth may take, from the offer on; 0: Swell's own limits.
  int grow_s = 0;
  /// `switch=requeue`: while it runs, the job may be moved to another type of `types` by a
  /// checkpoint and a requeue.
  bool switches_type = false;
  /// `deadline=6h` or `deadline=2026-12-01T08:00`: GPUs that are needed to keep it are lent first.
  std::optional<Deadline> deadline;
  /// `steps=20000`: total number of steps of the training; 0: not given.
  std::int64_t steps = 0;
  /// `table=gpt.json`: the file of speeds that the SPANK plugin reads (SpeedTable); empty: none.
  std::string table;

  /// Reads the option's value; empty text gives the defaults. The error is one sentence that names
  /// the key and what is allowed.
  static Result<ElasticSpec> parse(std::string_view text);

  /// Returns a text that parse() reads back to the same spec: keys in a fixed order, no spaces.
  std::string text() const;

  /// A job's `min` is at least its basic demand divided by this.
  static constexpr int kMaxLowering = 8;
  /// Returns the maximum number of GPUs that may be owed to a job with `basic_gpus`, of the
  /// `wanted` GPUs in its submission: at most kMaxLowering * basic_gpus, since users can change a
  /// job with scontrol after its submission.
  static int owed_at_most(int wanted, int basic_gpus) noexcept;

  /// Stands for "no limit" on the number of GPUs.
  static constexpr int kNoLimit = 1'000'000;

  bool has_max() const noexcept { return max_gpus || max_factor; }
  /// Returns the maximum total of the job's GPUs for a basic demand of `basic_gpus`. Without `max=`
  /// it is kNoLimit if the job is `planned` (its profile or data sheets say how many bring a gain),
  /// else policy::kUnplannedFactor times the basic demand.
  int max_total(int basic_gpus, bool planned) const;

  /// Returns the totals that `sizes` or `step` allows, in rising order; empty: any. Totals by
  /// `step` end at `limit`; the basic demand is always among them.
  std::vector<int> totals(int basic_gpus, int limit) const;

  /// Returns an error if the spec does not suit the basic demand: no GPUs, `max` below it, `sizes`
  /// without it, or `min` above it, far below it, not a number of steps away or not in `sizes`.
  Result<void> check_basic(int basic_gpus) const;

  friend bool operator==(const ElasticSpec&, const ElasticSpec&) = default;
};

/// Returns the totals that both the user and the program allow, in rising order, with the basic
/// demand among them; empty: any. An empty list on either side allows any.
std::vector<int> common_sizes(const std::vector<int>& asked, const std::vector<int>& program,
                              int basic_gpus);

}  // namespace swell::control
