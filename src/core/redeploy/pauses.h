// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/redeploy/measured.h"
#include "core/result.h"

namespace swell::redeploy {

/// Cost of one change, and when it was made, in seconds since 1970. Costs that are older than
/// kKept_s no longer count: programs, storage and networks have changed since.
struct Dated {
  Cost cost;
  double at = 0;
  static constexpr double kKept_s = 7 * 86'400;
  bool counts(double now) const noexcept { return now - at <= kKept_s; }
  friend bool operator==(const Dated&, const Dated&) = default;
};

/// Measured costs of one training's changes of plan. Pure; seconds.
class Pauses {
 public:
  /// Adds the cost of a change made at `now`; only the last kKept of each way count.
  void changed(Measured way, Cost cost, double now);
  /// Sets the time from the programs' start to their first step. Returns false, and keeps the one
  /// before, where the two differ by less than a tenth.
  bool started(double seconds) noexcept;

  /// Returns what the next change is expected to cost: the median of the last ones of that way. For
  /// a restart before any: the time from start to first step. None: nothing was measured.
  std::optional<Cost> expected(Measured way, double now) const;
  /// Returns how the last change was made; none: there was none.
  std::optional<Measured> last_way() const noexcept { return last_way_; }
  /// Whether expected() is the time of a start.
  bool is_by_start(Measured way, double now) const noexcept;
  bool empty() const noexcept {
    return !last_way_ && start_s_ <= 0 && live_.empty() && restarts_.empty();
  }

  Json to_json() const;
  static Result<Pauses> from_json(const Json& json);
  friend bool operator==(const Pauses&, const Pauses&) = default;

  static constexpr std::size_t kKept = 5;

 private:
  std::deque<Dated>& of(Measured way) noexcept { return way == Measured::live ? live_ : restarts_; }
  const std::deque<Dated>& of(Measured way) const noexcept {
    return way == Measured::live ? live_ : restarts_;
  }

  std::deque<Dated> live_, restarts_;
  std::optional<Measured> last_way_;
  double start_s_ = 0;
};

/// The last changes of plan of a cluster's jobs. Each owner counts once for each way, so that
/// nobody alone decides what a change is expected to cost others.
class ClusterPauses {
 public:
  void changed(std::int64_t owner, Measured way, Cost cost, double now);
  /// Returns the median over the owners but `asking`; none: fewer than kMinOwners others have had a
  /// change of that way.
  std::optional<Cost> expected(Measured way, std::int64_t asking, double now) const;

  Json to_json() const;
  static Result<ClusterPauses> from_json(const Json& json);
  friend bool operator==(const ClusterPauses&, const ClusterPauses&) = default;

  static constexpr std::size_t kOwners = 64;  ///< the last ones to have had a change
  /// Number of owners whose median counts: two of fewer could make it what they like.
  static constexpr std::size_t kMinOwners = 3;

 private:
  struct Seen {
    std::int64_t owner = 0;
    Measured way = Measured::live;
    Dated dated;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  std::deque<Seen> seen_;  ///< oldest first
};

/// Returns what a change of plan is expected to cost a job of `owner` by measurements: the job's
/// own, then those of other owners. None: the model's (cost_of()) holds.
std::optional<Cost> expected_cost(const Pauses& own, const ClusterPauses& cluster, Measured way,
                                  std::int64_t owner, double now);

}  // namespace swell::redeploy
