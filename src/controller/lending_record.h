// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <utility>

namespace swell::controller {

/// Record of the GPUs that a job was lent since its start, for people.
class LendingRecord {
 public:
  LendingRecord() = default;
  /// Begins with what the job's tag says.
  LendingRecord(int grants, int reclaims, std::string taken_back)
      : grants_(grants), reclaims_(reclaims), taken_back_(std::move(taken_back)) {}

  /// Counts a companion that has begun.
  void count_grant() noexcept { ++grants_; }
  /// Counts a companion that was taken back and is gone.
  void count_reclaim() noexcept { ++reclaims_; }
  /// Notes why lent GPUs go back, or are gone.
  void take_back(std::string why) { taken_back_ = std::move(why); }

  int grants() const noexcept { return grants_; }
  int reclaims() const noexcept { return reclaims_; }
  /// Why lent GPUs were taken back last; empty: none were.
  const std::string& taken_back() const noexcept { return taken_back_; }

 private:
  int grants_ = 0, reclaims_ = 0;
  std::string taken_back_;
};

}  // namespace swell::controller
