// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: switches in chunks, which release the old generation's memory as soon as no
// rank needs it.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "runtime/keeper/keeper.h"

namespace swell::runtime {

namespace {

/// Time limit for a partner to fetch all of a rank's state, while the training stands still.
constexpr std::chrono::seconds kSecureTime{600};

}  // namespace

/// Checks that there will be a snapshot to continue from.
Result<void> Keeper::check_secure() const {
  if (program_ == nullptr) return Error("the program of this rank is gone");
  if (!program_->takes_snapshots)
    return Error("the program takes no snapshots (SWELL_SNAPSHOT_EVERY)");
  if (guard_.generation != state_.generation())
    return Error("it is not known who keeps this generation's snapshots");
  return {};
}

/// Takes a snapshot of the step at which the program stands, and has the partner fetch it. After
/// that the old generation's memory may be released.
Result<std::string> Keeper::secure() {
  Staged* staged = nullptr;
  std::shared_ptr<DeviceProxy> proxy;
  std::uint64_t step = 0;
  pid_t pid = 0;
  {
    Lock lock(mutex_);
    if (staged_ == nullptr || staged_->chunks == 0)
      return Error("no generation is prepared in chunks");
    if (staged_->is_busy || staged_->is_secured || staged_->is_over) return called_off();
    if (staged_->prepare.old_rank < 0) {
      staged_->is_secured = true;
      return std::string();
    }
    if (program_ != nullptr ? !program_->is_quiesced : state_.is_torn())
      return Error("the program of this rank does not stand at a step");
    staged = staged_.get();
    staged->is_busy = true;
    step = program_ != nullptr ? program_->step : state_.step();
    if (program_ != nullptr) {
      proxy = program_->proxy;
      pid = program_->pid;
    }
  }
  // No other snapshot can begin, because the program waits for the outcome of the switch.
  if (sender_.joinable()) sender_.join();
  auto snapshot = copy_state(step, pid, proxy.get(), true);
  Result<void> good = snapshot ? Result<void>() : snapshot.error();
  Endpoint partner;
  {
    Lock lock(mutex_);
    partner = guard_.partner;
  }
  // The only shim of a job has no partner; if that shim is lost, the state is lost, as at any other
  // time.
  if (good.ok() && !partner.unix_socket.empty())
    if (auto sent = send_snapshot(*snapshot, partner, kSecureTime); !sent)
      good = sent.error().while_doing("the partner that is to keep this rank's state");
  Lock lock(mutex_);
  staged->is_busy = false;
  if (good.ok() && staged->is_over) good = called_off();
  if (good.ok()) staged->is_secured = true;
  else if (staged->is_over) drop_staged();
  changed_.notify_all();
  return good.ok() ? Result<std::string>(std::string()) : good.error();
}

/// Forgets the plan to move everything at once; the new program frees the GPU memory that it took
/// for that plan.
Result<void> Keeper::let_go_before(Staged& staged, DeviceProxy* proxy) {
  const std::unique_ptr<Staged> before = std::move(staged.before);
  if (before == nullptr) return {};
  before->fetcher.reset();
  for (const SlabSize& size : before->placement.fresh_slabs)
    if (auto good = proxy != nullptr ? proxy->unmap(size.slab) : Result<void>(); !good) return good;
  return {};
}

/// Releases what no rank needs after the previous chunks have arrived everywhere, and takes memory
/// for the next chunk. Returns what the chunk fetches.
Result<Placement> Keeper::begin_chunk(Staged& staged) {
  const std::uint32_t chunk = staged.next_chunk;
  Placement its;
  {
    Lock lock(mutex_);
    staged.is_old_gone = true;
    if (chunk == 0) {
      staged.used_bytes = arena_->used_bytes();
      note_gpu(staged);
    }
    for (const Release& each : staged.releases)
      if (each.chunk == chunk && each.slab == 0) arena_->release(each.at, each.bytes);
  }
  if (auto good = release_slabs(staged, chunk); !good) return good.error();
  its.kept_bytes = chunk == 0 ? staged.placement.kept_bytes : 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> comes;  // ranges to be filled
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
  if (good.ok()) good = take_slabs(staged, chunk);
  if (!good) return good.error();
  measure(staged);
  return its;
}

/// Releases slabs that no rank needs after the previous chunks: programs that copied from them have
/// unmapped them, and the old program does it now.
Result<void> Keeper::release_slabs(const Staged& staged, std::uint32_t chunk) {
  for (const Release& each : staged.releases) {
    if (each.chunk != chunk || each.slab == 0) continue;
    std::shared_ptr<DeviceProxy> proxy;
    {
      Lock lock(mutex_);
      if (program_ != nullptr) proxy = program_->proxy;
    }
    const auto gone = proxy != nullptr ? proxy->unmap(each.slab) : Result<void>();
    Lock lock(mutex_);
    // A program that has died maps nothing.
    if (!gone && program_ != nullptr && !program_->channel.has_left())
      return gone.error().while_doing("giving back memory of a GPU");
    store_.slabs().release(each.slab);
  }
  return {};
}

/// Has the new program allocate the slabs that this chunk is the first to fill; with the first
/// chunk also the slabs that receive no data.
Result<void> Keeper::take_slabs(const Staged& staged, std::uint32_t chunk) {
  std::map<std::uint64_t, std::uint32_t> first;
  for (const Fetch& fetch : staged.placement.fetches)
    if (fetch.to == Memory::device && !fetch.runs.empty()) {  // all runs belong to one tensor
      const std::uint64_t slab = DevicePlace::slab(fetch.runs.front().to);
      const auto at = first.try_emplace(slab, fetch.chunk).first;
      at->second = std::min(at->second, fetch.chunk);
    }
  std::vector<SlabSize> fresh;
  for (const SlabSize& size : staged.placement.fresh_slabs)
    if (const auto at = first.find(size.slab); chunk == (at != first.end() ? at->second : 0))
      fresh.push_back(size);
  if (fresh.empty()) return {};
  std::shared_ptr<DeviceProxy> proxy;
  {
    Lock lock(mutex_);
    if (staged.program != nullptr) proxy = staged.program->proxy;
  }
  if (proxy == nullptr) return Error("the program of the new generation has died");
  return make_slabs(*proxy, fresh, {});
}

/// Notes the larger of both states on the new program's GPU. Returns by how much the new one is
/// larger. REQUIRES: nothing has been released.
std::uint64_t Keeper::note_gpu(Staged& staged) const {
  const Placement& placement = staged.placement;
  std::uint64_t next = 0;
  for (const SlabSize& size : placement.fresh_slabs) next += size.bytes;
  for (const std::uint64_t number : placement.kept_slabs)
    if (const Slabs::Slab* slab = store_.slabs().find(number); slab != nullptr) next += slab->bytes;
  const std::uint64_t held = store_.slabs().held_bytes(placement.gpu);
  staged.larger_on_gpu = std::max(next, held);
  return staged.larger_on_gpu - held;
}

/// Takes memory for pages of `fresh` that receive no data, such as padding.
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

/// Notes the memory taken since the first chunk beyond the larger of both states, in the arena or
/// on the GPU.
void Keeper::measure(Staged& staged) const {
  const std::uint64_t used = arena_->used_bytes();
  Lock lock(mutex_);
  const std::uint64_t on_gpu =
      store_.slabs().held_bytes(staged.placement.gpu) + staged.fetcher->extra_bytes();
  staged.extra_bytes =
      std::max({staged.extra_bytes, used - std::min(used, staged.used_bytes + staged.growth_bytes),
                on_gpu - std::min(on_gpu, staged.larger_on_gpu)});
}

/// Forgets the old generation, part of which is gone; its program is told to exit.
void Keeper::lose_state() {
  drop_table(state_.lose(program_ != nullptr ? std::optional(program_->step) : std::nullopt));
  settle_programs(true);
  program_ = nullptr;
}

}  // namespace swell::runtime
