// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/deferred_events.h"

#include <criterion/criterion.h>

using namespace swell::launcher;

namespace {

/// Defers each lost worker again, once, and counts what it handles.
struct Handler {
  DeferredEvents& events;
  std::vector<int>& handled;
  void operator()(const event::Lost& event) const {
    handled.push_back(event.worker.node);
    if (event.worker.node < 10) events.add(event::Lost{{event.worker.node + 10, 0}});
  }
  void operator()(const event::Exited& event) const { handled.push_back(100 + *event.generation); }
  template <typename T>
  void operator()(const T&) const {}
};

}  // namespace

Test(deferred_events, are_handled_in_order_and_those_added_meanwhile_the_next_time) {
  DeferredEvents events;
  std::vector<int> handled;
  events.add(event::Lost{{1, 0}});
  events.add(event::Exited{{2, 0}, {}, 7});
  events.drain(Handler{events, handled});
  cr_assert(handled == std::vector<int>({1, 107}));
  events.drain(Handler{events, handled});
  cr_assert(handled == std::vector<int>({1, 107, 11}));
  events.add(event::Lost{{3, 0}});
  events.clear();
  events.drain(Handler{events, handled});
  cr_assert_eq(handled.size(), 3u);
}
