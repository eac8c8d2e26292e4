// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "control/messages.h"

namespace swell::controller {

/// The profiles that a job's program reports, until they are taken or refused; the profile that is
/// used is in JobTraining. Times are seconds on the controller's clock. Only ReportReader writes
/// it.
class JobReports {
 public:
  /// Keeps a report; the one before is replaced.
  void receive(control::Profile report, double now) {
    waiting_ = std::move(report);
    came_ = now;
  }
  /// Notes that the report which waits is believed, whatever was refused before.
  void believe() noexcept {
    refused_.clear();
    refused_since_.reset();
  }
  /// Notes that the report which waits is not used. `is_false`: it cannot be true.
  void refuse(std::string why, bool is_false, double now) {
    waiting_.reset();
    refused_ = std::move(why);
    if (is_false && !refused_since_) refused_since_ = now;
  }
  /// Forgets the report which waits: it is of no more use.
  void drop() noexcept { waiting_.reset(); }

  /// Returns the report that is neither taken nor refused yet.
  const std::optional<control::Profile>& waiting() const noexcept { return waiting_; }
  /// When the last report came.
  double came() const noexcept { return came_; }
  /// Why the last report is not used, for the owner; empty: it is.
  const std::string& refused() const noexcept { return refused_; }
  /// When one was refused as false that none believed followed.
  std::optional<double> refused_since() const noexcept { return refused_since_; }

 private:
  std::optional<control::Profile> waiting_;
  double came_ = 0;
  std::string refused_;
  std::optional<double> refused_since_;
};

}  // namespace swell::controller
