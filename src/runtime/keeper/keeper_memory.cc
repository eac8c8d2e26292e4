// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: frees the memory of a generation that is over.
#include "base/mutex.h"
#include "runtime/keeper/keeper.h"
#include "runtime/quiet_thread.h"

namespace swell::runtime {

void Keeper::drop_table(const std::vector<Held>& table) {
  std::vector<Pages> left;
  drop_table(table, left);
  store_.free(left);
}

/// Removes the tensors of `table`. Pages without other tensors are returned in `left`, still taken.
void Keeper::drop_table(const std::vector<Held>& table, std::vector<Pages>& left) {
  for (const Held& held : table)
    if (held.memory == Memory::device) store_.slabs().drop(held.at);
    else if (held.memory == Memory::arena) store_.drop(held.at, held.bytes(), left);
}

/// Frees the GPU after the training program ended within a step: its state is useless, and
/// restarted programs need the GPU before they begin. REQUIRES: nothing is staged.
void Keeper::release_torn() {
  if (program_ != nullptr || !state_.is_torn()) return;
  for (const SlabOf& slab : store_.slabs().held()) store_.slabs().release(slab.slab);
}

/// Frees the last generation's memory in a thread: gigabytes take seconds, for which the training
/// need not wait. Frees it at once if no thread can be started. REQUIRES: wait_for_memory()
/// was called since the last time.
void Keeper::free_later(const std::vector<Held>& table) {
  std::vector<Pages> left;
  drop_table(table, left);
  if (left.empty()) return;
  if (freeing_.joinable()) freeing_.join();  // the thread has finished
  is_freeing_ = true;
  auto thread = quiet_thread([this, left] {
    wait_while_held(Options::Hold::freeing, [this] {
      Lock lock(mutex_);
      return stopping_;
    });
    for (const Pages& each : left) arena_->release(each.at, each.bytes);
    Lock lock(mutex_);
    store_.give_back(left);
    is_freeing_ = false;
    changed_.notify_all();
  });
  if (thread) {
    freeing_ = std::move(*thread);
    return;
  }
  for (const Pages& each : left) arena_->release(each.at, each.bytes);
  store_.give_back(left);
  is_freeing_ = false;
}

/// Waits until the system has the memory that a commit freed: taking memory earlier would hold
/// both.
void Keeper::wait_for_memory(Lock& lock) const {
  changed_.wait(lock, [this]() SWELL_REQUIRES(mutex_) { return stopping_ || !is_freeing_; });
}

std::uint64_t Keeper::used_bytes() const {
  Lock lock(mutex_);
  wait_for_memory(lock);
  return arena_->used_bytes();
}

void Keeper::wait_while_held(Options::Hold hold, const std::function<bool()>& is_off) const {
  while (options_.holds && options_.holds(hold) && !is_off())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace swell::runtime
