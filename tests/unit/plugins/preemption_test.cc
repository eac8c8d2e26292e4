// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/preemption.h"

#include <criterion/criterion.h>

#include <algorithm>
#include <deque>
#include <map>

using namespace swell::select;

namespace {

/// A list of jobs that are known by their ids, and the controller's order.
struct World {
  std::map<std::uint32_t, int> jobs;  ///< the addresses are Slurm's records
  std::deque<void*> list;
  std::vector<std::uint32_t> order;
};
World* world = nullptr;

int count(Candidates*) { return static_cast<int>(world->list.size()); }
void* pop(Candidates*) {
  void* const first = world->list.front();
  world->list.pop_front();
  return first;
}
void* append(Candidates*, void* job) {
  world->list.push_back(job);
  return job;
}
void* find_job(std::uint32_t id) {
  const auto found = world->jobs.find(id);
  return found != world->jobs.end() ? &found->second : nullptr;
}
std::size_t reclaim_order(std::uint32_t* ids, std::size_t room) {
  std::copy_n(world->order.begin(), std::min(room, world->order.size()), ids);
  return world->order.size();
}
Preemption::Order controller() { return reclaim_order; }
Preemption::Order no_controller() { return nullptr; }
const CandidateLists fake{count, pop, append, find_job};

using Ids = std::vector<std::uint32_t>;

/// Sorts candidates that come in this order, where the controller gives companions up in that one.
Ids sorted(const Ids& candidates, const Ids& order, Preemption::Order (*from)() = controller) {
  World here;
  world = &here;
  for (std::uint32_t id : candidates) here.jobs[id] = static_cast<int>(id);
  for (std::uint32_t id : candidates) here.list.push_back(&here.jobs[id]);
  here.order = order;
  Preemption(fake, from).sort(reinterpret_cast<Candidates*>(&here));
  Ids after;
  for (void* job : here.list) after.push_back(static_cast<std::uint32_t>(*static_cast<int*>(job)));
  return after;
}

}  // namespace

Test(preemption, companions_go_in_the_controllers_order) {
  cr_assert_eq(sorted({11, 12, 13}, {13, 11, 12}), (Ids{13, 11, 12}));
}

Test(preemption, other_jobs_stay_where_they_are) {
  cr_assert_eq(sorted({1, 11, 2, 12, 13, 3}, {13, 12, 11}), (Ids{1, 13, 2, 12, 11, 3}));
}

Test(preemption, companions_that_are_no_candidates_or_have_ended_change_nothing) {
  cr_assert_eq(sorted({11, 5, 12}, {99, 12, 98, 11}), (Ids{12, 5, 11}));
}

Test(preemption, without_a_controller_or_its_order_all_stay) {
  cr_assert_eq(sorted({12, 11}, {11, 12}, no_controller), (Ids{12, 11}));
  cr_assert_eq(sorted({12, 11}, {}), (Ids{12, 11}));
  cr_assert_eq(sorted({12}, {12, 11}), (Ids{12}));
  Preemption(fake, controller).sort(nullptr);
}

Test(preemption, more_companions_than_there_was_room_for) {
  Ids candidates, order;
  for (std::uint32_t id = 1; id <= 5000; ++id) candidates.push_back(id);
  order.assign(candidates.rbegin(), candidates.rend());
  cr_assert_eq(sorted(candidates, order), order);
}
