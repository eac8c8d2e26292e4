// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/preemption.h"

#include <algorithm>
#include <dlfcn.h>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace swell::select {

namespace {

constexpr std::size_t kFirstRoom = 256;

}  // namespace

bool CandidateLists::look_up() noexcept {
  bool all = true;
  auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
    all = all && function != nullptr;
  };
  find(count, "slurm_list_count");
  find(pop, "slurm_list_pop");
  find(append, "slurm_list_append");
  find(find_job, "find_job_record");
  return all;
}

Preemption::Order controllers_order() noexcept {
  static Preemption::Order known = nullptr;  // the library is never unloaded
  if (known != nullptr) return known;
  if (void* const library = dlopen("libswell-controller.so", RTLD_LAZY | RTLD_NOLOAD))
    known = reinterpret_cast<Preemption::Order>(dlsym(library, "swell_reclaim_order"));
  return known;
}

void Preemption::sort(Candidates* candidates) {
  if (candidates == nullptr || api_.count(candidates) < 2) return;
  const Order order = order_();
  if (order == nullptr) return;
  if (ids_.empty()) ids_.resize(kFirstRoom);
  std::size_t known = order(ids_.data(), ids_.size());
  if (known > ids_.size()) {
    ids_.resize(known + known / 2);
    known = std::min(order(ids_.data(), ids_.size()), ids_.size());
  }
  if (known < 2) return;
  std::unordered_map<void*, std::size_t> ranks;
  for (std::size_t i = 0; i < known; ++i)
    if (void* const job = api_.find_job(ids_[i])) ranks.emplace(job, i);

  std::vector<void*> jobs(static_cast<std::size_t>(api_.count(candidates)));
  std::vector<std::size_t> places;  // positions of companions in the list
  std::vector<std::pair<std::size_t, void*>> companions;
  places.reserve(jobs.size());
  companions.reserve(jobs.size());
  // Nothing below allocates memory: no job may get lost between its removal and its return.
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i] = api_.pop(candidates);
    const auto rank = ranks.find(jobs[i]);
    if (rank == ranks.end()) continue;
    places.push_back(i);
    companions.emplace_back(rank->second, jobs[i]);
  }
  std::sort(companions.begin(), companions.end());
  for (std::size_t i = 0; i < places.size(); ++i) jobs[places[i]] = companions[i].second;
  for (void* job : jobs) api_.append(candidates, job);
}

}  // namespace swell::select
