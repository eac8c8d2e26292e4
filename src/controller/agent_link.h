// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>

#include "control/server.h"

namespace swell::controller {

/// The connection of a job's agent. Times are seconds on the controller's clock. Only
/// AgentMessages connects and loses it.
class AgentLink {
 public:
  void connect(control::ConnectionId connection, double now) noexcept {
    connection_ = connection;
    seen_ = since_ = now;
  }
  /// Notes that a message came.
  void hear(double now) noexcept { seen_ = now; }
  void lose(double now) noexcept {
    connection_.reset();
    seen_ = now;
  }
  /// Begins to wait for an agent now, unless one is connected.
  void await(double now) noexcept {
    if (!connection_) seen_ = now;
  }
  /// Notes that the job's output has a line that swellrun is missing.
  void tell_missing() noexcept { is_told_missing_ = true; }

  bool is_connected() const noexcept { return connection_.has_value(); }
  bool is(control::ConnectionId connection) const noexcept { return connection_ == connection; }
  /// REQUIRES: is_connected().
  control::ConnectionId connection() const noexcept { return *connection_; }
  /// When it was heard or lost last, or awaited.
  double seen() const noexcept { return seen_; }
  /// When it connected last; 0: it never did.
  double since() const noexcept { return since_; }
  bool is_told_missing() const noexcept { return is_told_missing_; }

 private:
  std::optional<control::ConnectionId> connection_;
  double seen_ = 0, since_ = 0;
  bool is_told_missing_ = false;
};

}  // namespace swell::controller
