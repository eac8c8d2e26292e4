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

/// Cost of one change, and its time in seconds since 1970. Costs older than kKept_s no longer
/// count: programs, storage and networks may have changed since.
struct Dated {
  Cost cost;
  double at = 0;
  static constexpr double kKept_s = 7 * 86'400;
  bool counts(double now) const noexcept { return now - at <= kKept_s; }
  friend bool operator==(const Dated&, const Dated&) = default;
};

/// Measured costs of one training's changes of plan. Times are in seconds; methods are pure.
class Pauses {
 public:
  /// Adds the cost of a change made at `now`. Only the last kKept costs of each way count.
  void changed(Measured way, Cost cost, double now);
  /// Raises the pause of the last change to the training time that it cost.
  /// Returns its cost and its time; nothing if no change is known.
  std::optional<Dated> lost(double seconds) noexcept;
  /// Sets the time from the programs' start to their first step. Returns false and keeps the old
  /// time if the two differ by less than a tenth.
  bool started(double seconds) noexcept;

  /// Returns the expected cost of the next change: the median of the last ones made in the same
  /// way. For a restart without earlier ones, returns the time from start to first step. Nothing if
  /// neither was measured.
  std::optional<Cost> expected(Measured way, double now) const;
  /// Returns the way of the last change; nothing if there was none.
  std::optional<Measured> last_way() const noexcept { return last_way_; }
  /// Returns whether expected() uses the time of a start.
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

/// The last changes of plan of a cluster's jobs. Each owner counts once for each way, so that no
/// single owner determines the cost expected for others.
class ClusterPauses {
 public:
  void changed(std::int64_t owner, Measured way, Cost cost, double now);
  /// Returns the median over all owners except `asking`; nothing if fewer than kMinOwners other
  /// owners have made a change in this way.
  std::optional<Cost> expected(Measured way, std::int64_t asking, double now) const;

  Json to_json() const;
  static Result<ClusterPauses> from_json(const Json& json);
  friend bool operator==(const ClusterPauses&, const ClusterPauses&) = default;

  static constexpr std::size_t kOwners = 64;  ///< owners of the latest changes
  /// Minimum number of owners for a median: with fewer, two owners could set it to any value.
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

/// Returns the measured cost expected for a change of plan of a job of `owner`: from the job's own
/// changes, else from other owners' changes. Nothing if there are no measurements; then cost_of()
/// applies.
std::optional<Cost> expected_cost(const Pauses& own, const ClusterPauses& cluster, Measured way,
                                  std::int64_t owner, double now);

}  // namespace swell::redeploy
