// SPDX-License-Identifier: BSD-3-Clause
// Of the keeper: a switch in chunks, of which the old epoch's memory goes as soon as nobody needs
// it.
#include <algorithm>
#include <fmt/format.h>

#include "runtime/keeper.h"

namespace swell::runtime {

namespace {

/// For a partner to fetch all of a rank's state, while the training stands.
constexpr std::chrono::seconds kSecureTime{600};

}  // namespace

/// Whether there will be a snapshot to go on from. REQUIRES: locked.
Result<void> Keeper::check_secure() const {
  if (program_ == nullptr) return Error("the program of this rank is gone");
  if (!program_->takes_snapshots)
    return Error("the program takes no snapshots (SWELL_SNAPSHOT_EVERY)");
  if (guard_.epoch != epoch_) return Error("it is not known who keeps this epoch's snapshots");
  return {};
}

/// Takes a snapshot of the step at which the program stands, and has the partner fetch it. From
/// then on the old epoch's memory may go.
Result<std::string> Keeper::secure() {
  Staged* staged = nullptr;
  std::shared_ptr<DeviceHand> hand;
  std::uint64_t step = 0;
  pid_t pid = 0;
  {
    std::lock_guard lock(mutex_);
    if (staged_ == nullptr || staged_->chunks == 0) return Error("no epoch is prepared in chunks");
    if (staged_->is_busy || staged_->is_secured || staged_->is_over) return Error(kCalledOff);
    if (staged_->prepare.old_rank < 0) {
      staged_->is_secured = true;
      return std::string();
    }
    if (program_ != nullptr ? !program_->is_quiesced : is_torn_)
      return Error("the program of this rank does not stand at a step");
    staged = staged_.get();
    staged->is_busy = true;
    step = program_ != nullptr ? program_->step : step_;
    if (program_ != nullptr) {
      hand = program_->hand;
      pid = program_->pid;
    }
  }
  // The program waits for the outcome of the switch, and starts no other.
  if (sender_.joinable()) sender_.join();
  auto snapshot = copy_state(step, pid, hand.get(), true);
  Result<void> good = snapshot ? Result<void>() : snapshot.error();
  Endpoint partner;
  {
    std::lock_guard lock(mutex_);
    partner = guard_.partner;
  }
  // The only shim of a job has no partner: without it there is no state, as at any other time.
  if (good.ok() && !partner.unix_socket.empty())
    if (auto sent = send_snapshot(*snapshot, partner, kSecureTime); !sent)
      good = sent.error().while_doing("the partner that is to keep this rank's state");
  std::lock_guard lock(mutex_);
  staged->is_busy = false;
  if (good.ok() && staged->is_over) good = Error(kCalledOff);
  if (good.ok()) staged->is_secured = true;
  else if (staged->is_over) drop_staged();
  changed_.notify_all();
  return good.ok() ? Result<std::string>(std::string()) : good.error();
}

/// Gives back what nobody needs once the chunks before have come to all ranks, and takes memory
/// for the next one. Returns what that fetches.
Result<Placement> Keeper::begin_chunk(Staged& staged) {
  const std::uint32_t chunk = staged.next_chunk;
  Placement its;
  {
    std::lock_guard lock(mutex_);
    staged.is_old_gone = true;
    if (chunk == 0) staged.used_bytes = arena_->used_bytes();
    for (const Release& each : staged.releases)
      if (each.chunk == chunk) arena_->release(each.at, each.bytes);
  }
  its.kept_bytes = chunk == 0 ? staged.placement.kept_bytes : 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> comes;  // from where to where
  Result<void> good;
  for (const Fetch& fetch : staged.placement.fetches) {
    std::uint64_t begin = UINT64_MAX, end = 0;
    for (const Run& run : fetch.runs) {
      begin = std::min(begin, run.to);
      end = std::max(end, run.to + run.bytes);
    }
    const bool in_arena = fetch.to == Memory::arena && begin < end;
    if (in_arena) comes.emplace_back(begin, end);
    if (fetch.chunk != chunk) continue;
    if (in_arena && good.ok()) good = arena_->populate(begin, end - begin);
    its.fetches.push_back(fetch);
  }
  if (chunk == 0 && good.ok()) good = populate_rest(staged.placement.fresh, std::move(comes));
  if (!good) return good.error();
  measure(staged);
  return its;
}

/// Takes memory for pages of `fresh` that nothing comes to, as for padding.
Result<void> Keeper::populate_rest(
    const std::vector<std::pair<std::uint64_t, std::uint64_t>>& fresh,
    std::vector<std::pair<std::uint64_t, std::uint64_t>> comes) const {
  std::sort(comes.begin(), comes.end());
  for (const auto& [at, bytes] : fresh) {
    std::uint64_t from = at;
    const std::uint64_t end = at + Extents::rounded(bytes);
    const auto fill = [&](std::uint64_t to) -> Result<void> {
      const std::uint64_t first = Extents::rounded(from);
      const std::uint64_t last = to / Extents::kPage * Extents::kPage;
      return first < last ? arena_->populate(first, last - first) : Result<void>();
    };
    for (auto one = std::lower_bound(comes.begin(), comes.end(), std::pair(at, std::uint64_t{0}));
         one != comes.end() && one->first < end; ++one) {
      if (auto good = fill(one->first); !good) return good;
      from = std::max(from, one->second);
    }
    if (auto good = fill(end); !good) return good;
  }
  return {};
}

/// Notes what the arena has taken beyond the larger of both states since the first chunk began.
void Keeper::measure(Staged& staged) const {
  const std::uint64_t used = arena_->used_bytes();
  staged.extra_bytes =
      std::max(staged.extra_bytes, used - std::min(used, staged.used_bytes + staged.growth_bytes));
}

/// Forgets what is held of the old epoch, of which some is gone; its program is told to leave.
/// REQUIRES: locked.
void Keeper::lose_state() {
  drop_table(std::exchange(table_, {}));
  has_state_ = false;
  is_torn_ = true;
  settle_programs(true);
  if (program_ != nullptr) step_ = program_->step;
  program_ = nullptr;
}

}  // namespace swell::runtime
