// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "controller/cluster_views.h"
#include "controller/history_requests.h"
#include "controller/loop_state.h"
#include "controller/type_mover.h"
#include "controller/type_switcher.h"

namespace swell::controller {

/// Answers the swell command: requests of owners for their jobs, and questions of anybody.
class OwnerRequests {
 public:
  OwnerRequests(LoopState& loop, ClusterViews& views, const TypeMover& types,
                const TypeSwitcher& switcher, HistoryRequests& history)
      : loop_(loop), views_(views), types_(types), switcher_(switcher), history_(history) {}

  /// Does what is asked, or refuses it with a reason, and closes the connection. A question for the
  /// history is answered later, from its thread. REQUIRES: the connection speaks for no job.
  void handle(const control::Server::Event& event, const control::Ask& ask, double now);

 private:
  void answer_metrics(control::ConnectionId connection);
  Result<control::Answer> answer(ElasticJob& job, const control::Ask& ask, double now);
  Result<control::Answer> replan(ElasticJob& job, const control::Ask& ask, double now);
  control::Answer why(const ElasticJob& job, double now);

  LoopState& loop_;
  ClusterViews& views_;
  const TypeMover& types_;
  const TypeSwitcher& switcher_;
  HistoryRequests& history_;
};

}  // namespace swell::controller
