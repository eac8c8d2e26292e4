// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <vector>

#include "core/policy/rivals/allocation_set.h"

namespace swell::policy {

/// GPUs promised to jobs with deadlines from now on: ElasticFlow's minimum satisfactory shares.
/// Copy the object to try something.
class Reservations {
 public:
  /// `free`: GPUs by type that may be promised.
  Reservations(double now_s, std::vector<int> free) : segments_{{now_s, std::move(free)}} {}

  /// Promises GPUs to a job until `samples` are done: at each time the largest step of `ladder`
  /// that is not promised to others, up to a maximum that is as small as possible. `ladder`:
  /// rising, of one type. Returns the job's step now, -1 if it starts later. Returns nothing and
  /// promises nothing if no step ends before `deadline_s`.
  std::optional<int> promise(const std::vector<Configuration>& ladder, double samples,
                             double deadline_s);

  struct Segment {
    double from_s = 0;
    std::vector<int> free;  ///< by type, until the next segment
  };
  const std::vector<Segment>& segments() const noexcept { return segments_; }

 private:
  void split(double at_s);
  std::vector<Segment> segments_;  ///< rising; the last one has no end
};

}  // namespace swell::policy
