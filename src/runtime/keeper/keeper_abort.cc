// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: aborts a generation that was prepared and will not begin.
#include "base/mutex.h"
#include "runtime/keeper/keeper.h"

namespace swell::runtime {

/// Forgets the prepared generation; its program continues to wait.
std::unique_ptr<Keeper::Staged> Keeper::unstage() {
  std::unique_ptr<Staged> staged = std::move(staged_);
  drop_table(staged->placement.table);
  store_.slabs().sweep();
  store_.sweep();  // memory that was taken for a tensor without a place in the table
  return staged;
}

void Keeper::drop_staged() {
  const std::unique_ptr<Staged> staged = unstage();
  if (staged->program != nullptr) refuse_waiting(*staged->program);
  if (staged->is_old_gone) lose_state();
  else settle_programs(false);
  release_torn();
  changed_.notify_all();
}

/// Marks the staged generation as failed, because the new program is gone. The thread that works
/// with the staged generation drops it; if other shims may have released memory that the old
/// generation needs, the coordinator decides. REQUIRES: the state has not been moved.
void Keeper::spoil_staged() {
  if (staged_->is_busy || staged_->is_secured) staged_->is_over = true;
  else drop_staged();
}

std::string Keeper::abort_now(std::string_view body) {
  ByteReader reader(body);
  const bool is_old_gone = !body.empty() && reader.get<std::uint8_t>() != 0;
  Lock lock(mutex_);
  if (staged_ != nullptr && staged_->is_busy) {
    staged_->is_over = true;
    changed_.wait(lock,
                  [&]() SWELL_REQUIRES(mutex_) { return staged_ == nullptr || !staged_->is_busy; });
  }
  if (staged_ != nullptr) {
    staged_->is_old_gone = staged_->is_old_gone || is_old_gone;
    drop_staged();
  } else if (is_old_gone) {
    lose_state();
  }
  if (agreed_ && agreed_->request == 0) settle_programs(false);
  while (Peer* peer = waiting_program()) refuse_waiting(*peer);
  return {};
}

}  // namespace swell::runtime
