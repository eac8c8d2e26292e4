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

/// A user's request by `--elastic[=key=value,...]`. Made from the option's text by the SPANK
/// plugin and again by job_submit/swell, which records the canonical text in AdminComment; read by
/// the controller and by swellrun.
struct ElasticSpec {
  /// `max=16`: at most 16 GPUs in all; `max=4x`: at most four times the basic demand. At most one
  /// of them is set; neither: as many as pay.
  std::optional<int> max_gpus;
  std::optional<double> max_factor;
  /// `min=4`: consents to start and to run with so few GPUs, where it asks for more.
  std::optional<int> min_gpus;
  /// `sizes=8/16/32`: the totals that the program can run with, rising; empty: any.
  std::vector<int> sizes;
  /// `step=4`: totals of the basic demand and any number of times 4 more; 0: any. Not beside sizes.
  int step = 0;
  /// `types=h100/a100`: acceptable GPU types of expansions, and with `table` of the basic demand;
  /// empty: the type of the basic demand.
  std::vector<std::string> types;
  Consistency consistency = Consistency::relaxed;
  Mode mode = Mode::restart;
  /// `grace=60`: seconds that the job needs to give GPUs back.
  int grace_s = 30;
  /// `stay=600`: seconds that it is not grown after a growth or a reclaim; the site's own time
  /// (GrowthInterval) holds where it is longer.
  int stay_s = 0;
  /// `grow=120`: seconds that one growth may take, from the offer on; 0: Swell's own limits.
  int grow_s = 0;
  /// `deadline=6h` or `deadline=2026-12-01T08:00`: what keeps it is lent first.
  std::optional<Deadline> deadline;
  /// `steps=20000`: the training's steps in all; 0: not said.
  std::int64_t steps = 0;
  /// `table=gpt.json`: the file of speeds that the SPANK plugin reads (SpeedTable); empty: none.
  std::string table;

  /// Reads the option's value; empty text gives the defaults. The error is one sentence that names
  /// the key and what is allowed.
  static Result<ElasticSpec> parse(std::string_view text);

  /// The text that parse() reads back to the same spec, every key in a fixed order; no spaces.
  std::string text() const;

  /// A job's `min` is at least its basic demand over this.
  static constexpr int kMaxLowering = 8;
  /// Returns the total that a job with `basic_gpus` may be owed of the `wanted` that it was
  /// submitted for: at most kMaxLowering times as many, since users can change a job with scontrol
  /// after its submission.
  static int owed_at_most(int wanted, int basic_gpus) noexcept;

  /// Limit of GPUs where there is none.
  static constexpr int kNoLimit = 1'000'000;

  bool has_max() const noexcept { return max_gpus || max_factor; }
  /// Returns the max number of GPUs that the job may have in all, for a basic demand of
  /// `basic_gpus`. Without `max=` that is kNoLimit where the job is `planned` (its profile or data
  /// sheets say how many pay), else policy::kUnplannedFactor times the basic demand.
  int max_total(int basic_gpus, bool planned) const;

  /// The totals that `sizes` names or `step` gives, rising; empty: any. Those of a step end at
  /// `limit`, but for the basic demand, which is always among them.
  std::vector<int> totals(int basic_gpus, int limit) const;

  /// Checks the spec against the basic demand. Errors: no GPUs, `max` below it, `sizes` without it,
  /// `min` above it or far below, or not a number of steps away.
  Result<void> check_basic(int basic_gpus) const;

  friend bool operator==(const ElasticSpec&, const ElasticSpec&) = default;
};

/// The totals that both the user and the program allow, rising, with the basic demand among them;
/// empty: any. Either list may be empty, for any.
std::vector<int> common_sizes(const std::vector<int>& asked, const std::vector<int>& program,
                              int basic_gpus);

}  // namespace swell::control
