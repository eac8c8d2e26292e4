// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: requests of the coordinator, from the first generation on.
#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <map>

#include "base/mutex.h"
#include "runtime/keeper/keeper.h"

namespace swell::runtime {

namespace {

/// Counts bytes in the arena and on the GPU, or in the arena alone; shared memory counts once.
std::uint64_t kept_bytes_of(const std::vector<Held>& table, bool on_gpu = true) {
  std::map<std::pair<Memory, std::uint64_t>, std::uint64_t> parts;
  for (const Held& held : table)
    if (held.memory == Memory::arena || (on_gpu && held.memory == Memory::device))
      parts[{held.memory, held.at}] = static_cast<std::uint64_t>(held.entry.bytes());
  std::uint64_t sum = 0;
  for (const auto& [where, bytes] : parts) sum += Extents::rounded(bytes);
  return sum;
}

}  // namespace

Result<std::string> Keeper::wait_ready(std::string_view body) {
  ByteReader reader(body);
  const auto limit = std::chrono::milliseconds(reader.get<std::uint32_t>());
  if (!reader.done()) return Error("wait_ready needs a time");
  Lock lock(mutex_);
  Peer* peer = nullptr;
  // If no program trains, new programs begin, whatever an earlier program has declined.
  const bool trains = program_ != nullptr;
  const auto why_declined = [&]() SWELL_REQUIRES(mutex_) -> const Error* {
    if (trains && next_ && next_->declined) return &*next_->declined;
    for (const auto& each : peers_)
      if (trains && each->declined && !each->channel.has_left()) return &*each->declined;
    return nullptr;
  };
  changed_.wait_for(lock, limit, [&]() SWELL_REQUIRES(mutex_) {
    return stopping_ || (peer = waiting_program()) != nullptr || why_declined() != nullptr;
  });
  if (const Error* why = peer == nullptr ? why_declined() : nullptr) return *why;
  if (peer == nullptr)
    return Error(fmt::format("no program was ready within {} ms", limit.count()));
  return write(peer->entries);
}

Result<std::string> Keeper::begin(std::string_view body) {
  ByteReader reader(body);
  const auto generation = reader.get<std::uint64_t>();
  if (!reader.done() || generation == 0)
    return Error("a generation begins with its number, 1 or more");
  Lock lock(mutex_);
  wait_for_memory(lock);
  Peer* peer = waiting_program();
  if (peer == nullptr) return Error("no program waits to begin");
  if (staged_ != nullptr) return Error("a generation is being prepared; abort it first");
  if (program_ != nullptr) return Error("a program trains here already");
  // State of an earlier program is torn, or belongs to another job's start: the new program
  // initializes its own.
  drop_table(state_.clear());
  const std::shared_ptr<DeviceProxy> proxy = peer->proxy;
  for (const Entry& entry : peer->entries) {
    Held held{entry, memory_of(entry), own_place_of(entry)};
    if (!is_own(held.memory)) {
      const std::vector<Held>& before = state_.table();
      const auto same = std::find_if(before.begin(), before.end(), [&](const Held& other) {
        return other.memory == held.memory && other.entry.tensor.name == entry.alias_of &&
               other.entry.part == entry.part;
      });
      if (same != before.end()) {
        held.at = same->at;
      } else if (held.memory == Memory::device) {
        held.at = store_.slabs().take(proxy->gpu(), static_cast<std::uint64_t>(entry.bytes()),
                                      options_.slab_bytes);
      } else {
        const auto at = store_.take(static_cast<std::uint64_t>(entry.bytes()));
        if (!at) return at.error().while_doing("tensor " + entry.tensor.name);
        held.at = *at;
      }
      use(held);
    }
    state_.add(std::move(held));
  }
  if (proxy != nullptr) {
    const auto fresh = store_.slabs().seal(proxy->granularity());
    // Without the lock: it may take long, and others ask this shim meanwhile.
    lock.unlock();
    const auto good = make_slabs(*proxy, fresh, {});
    if (good.ok()) ask_for_nccl(*proxy);
    lock.lock();
    if (!good) return good.error();
    if (waiting_program() != peer || peer->proxy != proxy || staged_ != nullptr)
      return Error("the program that was to begin is gone");
  }
  state_.begin(generation);
  hand_over(*peer, 0, true);
  return std::string();
}

Result<std::string> Keeper::prepare(Peer& peer, std::string_view body) {
  auto read = read_prepare(body);
  if (!read) return read.error();
  auto staged = std::make_unique<Staged>();
  staged->prepare = std::move(*read);
  const Prepare& plan = staged->prepare;
  const auto json = Json::parse(plan.cluster);
  if (!json) return json.error().while_doing("the cluster");
  const auto cluster = cluster::Cluster::from_json(*json);
  if (!cluster) return cluster.error().while_doing("the cluster");
  const auto from = old_world(plan);
  if (!from) return from.error().while_doing("the old plan");
  const auto to = new_world(plan);
  if (!to) return to.error().while_doing("the new plan");
  MigrationOptions options;
  for (const OldRank& rank : plan.from) options.leaving.push_back(rank.leaves);
  std::vector<Move> moves;
  if (plan.in_chunks) {
    auto chunks = plan_chunks(plan, *from, *to, *cluster, options);
    if (!chunks) return chunks.error();
    staged->digest = chunks->digest;
    staged->chunks = chunks->count;
    if (plan.old_rank >= 0)
      staged->releases = std::move(chunks->releases[static_cast<std::size_t>(plan.old_rank)]);
    if (plan.new_rank >= 0) {
      const auto rank = static_cast<std::size_t>(plan.new_rank);
      moves = std::move(chunks->moves[rank]);
      staged->placement.extra_bytes = chunks->extra_bytes[rank];
    }
  } else {
    const auto migration = plan_migration(*from, *to, *cluster, std::move(options));
    if (!migration) return migration.error();
    staged->digest = migration->digest();
    if (plan.new_rank >= 0) moves = migration->needs_of(static_cast<std::uint32_t>(plan.new_rank));
  }

  const std::uint64_t digest = staged->digest, bound = plan.max_extra_bytes;
  std::shared_ptr<DeviceProxy> proxy, old_proxy;
  std::uint64_t growth_on_gpu = 0;
  Staged* at_work = nullptr;
  const auto extra_bytes = stage(peer, std::move(staged), *from, *to, moves);
  if (!extra_bytes) return extra_bytes.error();
  if (*extra_bytes > bound) return write(Prepared{digest, *extra_bytes});
  {
    Lock lock(mutex_);
    at_work = staged_.get();
    if (staged_->program != nullptr) proxy = staged_->program->proxy;
    if (program_ != nullptr) old_proxy = program_->proxy;
    if (proxy != nullptr) growth_on_gpu = note_gpu(*staged_);
  }
  // Without the lock: the shims that are asked may be asking this one.
  Staged& own = *at_work;
  Fetcher::Self from_here = self();
  if (own.placement.extra_bytes + kBounce <= own.prepare.max_extra_bytes)
    from_here.old_proxy = std::move(old_proxy);
  Result<void> good = let_go_before(own, proxy.get());
  if (proxy != nullptr) {
    if (good.ok())
      good =
          make_slabs(*proxy, own.chunks == 0 ? own.placement.fresh_slabs : std::vector<SlabSize>(),
                     own.placement.kept_slabs);
    if (good.ok()) ask_for_nccl(*proxy);
    from_here.proxy = std::move(proxy);
    from_here.next_slab = [this] {
      Lock lock(mutex_);
      return store_.slabs().next_number();
    };
  }
  auto fetcher = good.ok() ? Fetcher::open(from_here, own.prepare, own.placement.fetches)
                           : Result<Fetcher>(good.error());
  if (!fetcher) good = fetcher.error();
  // Take memory while the training goes on, so that only the copy remains for the pause.
  for (const auto& [at, bytes] : own.placement.fresh)
    if (good.ok() && own.chunks == 0) good = arena_->populate(at, bytes);
  Lock lock(mutex_);
  own.is_busy = false;
  changed_.notify_all();
  if (good.ok() && own.is_over) good = called_off();
  if (!good && good.error().shortage() && own.chunks == 0 && !own.is_over) {
    // The program continues to wait: the switch may be tried again in chunks that fit the memory
    // left free by the new state.
    Shortage shortage = *good.error().shortage();
    shortage.free_bytes -= std::min(shortage.free_bytes, growth_on_gpu);
    unstage();
    return Error(good.error().message(), shortage);
  }
  if (!good) {
    drop_staged();
    return good.error();
  }
  own.fetcher = std::move(*fetcher);
  return write(
      Prepared{digest, own.placement.extra_bytes + own.fetcher->extra_bytes(), own.chunks});
}

/// Makes `staged` the generation that is being prepared, places its tensors, and marks it as busy,
/// so that it stays until that mark is removed. Returns the memory that it takes beside the state;
/// if that is above the bound, nothing is staged. Forgets what the same coordinator had prepared of
/// this generation before.
Result<std::uint64_t> Keeper::stage(Peer& coordinator, std::unique_ptr<Staged> staged,
                                    const World& from, const World& to,
                                    const std::vector<Move>& moves) {
  const Prepare& plan = staged->prepare;
  Lock lock(mutex_);
  wait_for_memory(lock);
  if (stopping_) return called_off();
  if (staged_ != nullptr && staged_->coordinator == &coordinator && plan.in_chunks &&
      staged_->prepare.generation == plan.generation && !staged_->prepare.in_chunks &&
      !staged_->is_busy && !staged_->is_moved)
    staged->before = unstage();
  if (staged_ != nullptr)
    return Error(fmt::format("generation {} is being prepared already; abort it first",
                             staged_->prepare.generation));
  if (agreed_)
    return Error(
        fmt::format("the program is about to stand at step {} for another reason", agreed_->step));
  if (plan.generation <= state_.generation())
    return Error(fmt::format("generation {} cannot follow generation {}", plan.generation,
                             state_.generation()));
  if (plan.old_rank >= 0 && !state_.is_held())
    return Error("this shim holds no state of the old plan");
  if (plan.in_chunks && plan.old_rank >= 0)
    if (auto good = check_secure(); !good) return good.error();
  staged->coordinator = &coordinator;
  if (plan.new_rank >= 0) {
    staged->program = waiting_program();
    if (staged->program == nullptr) return Error("no program waits here for the new plan");
    if (write(staged->program->entries) !=
        write(plan.roster.entries(plan.to[static_cast<std::size_t>(plan.new_rank)].table)))
      return Error("the new plan gives this rank other tensors than its program has declared");
    const GpuMemory& planned = plan.to[static_cast<std::size_t>(plan.new_rank)].memory;
    const DeviceProxy* proxy = staged->program->proxy.get();
    if (plan.in_chunks && !planned.gpu.empty() &&
        (proxy == nullptr || proxy->gpu() != planned.gpu ||
         proxy->granularity() != planned.granularity))
      return Error("the new plan gives this rank another GPU than its program has");
  }
  staged_ = std::move(staged);
  Placement& placement = staged_->placement;
  if (staged_->program != nullptr && staged_->program->proxy != nullptr) {
    placement.gpu = staged_->program->proxy->gpu();
    placement.granularity = staged_->program->proxy->granularity();
    placement.slab_bytes = options_.slab_bytes;
    if (plan.in_chunks)
      placement.slab_bytes = slab_bytes_in_chunks(
          plan.to[static_cast<std::size_t>(plan.new_rank)].memory, plan.max_extra_bytes);
  }
  Result<void> good;
  if (plan.new_rank >= 0) good = place_all(plan, from, to, moves, store_, placement);
  // Memory beyond the larger of both generations' states is extra; growth of a rank's state is not.
  const std::uint64_t held = kept_bytes_of(state_.table()), next = kept_bytes_of(placement.table);
  const std::uint64_t in_arena = kept_bytes_of(state_.table(), false),
                      next_in_arena = kept_bytes_of(placement.table, false);
  staged_->growth_bytes = std::max(in_arena, next_in_arena) - in_arena;
  if (staged_->chunks == 0) {
    placement.extra_bytes = staged_->extra_bytes =
        held + placement.fresh_bytes - std::max(held, next);
    // Without snapshots a switch in chunks has no other fallback, so the free memory of the GPU is
    // the bound.
    if (staged_->program != nullptr && !staged_->program->takes_snapshots) {
      std::uint64_t on_gpu = 0;
      for (const SlabSize& slab : placement.fresh_slabs) on_gpu += slab.bytes;
      placement.extra_bytes =
          in_arena + placement.fresh_bytes - on_gpu - std::max(in_arena, next_in_arena);
    }
    if (good.ok() && placement.extra_bytes > plan.max_extra_bytes) {
      const std::uint64_t needed = placement.extra_bytes;
      unstage();
      return needed;
    }
  }
  for (const Fetch& fetch : placement.fetches)
    (fetch.only_there ? staged_->progress.only_there : staged_->progress.rest) += fetch.bytes();
  if (!good) {
    drop_staged();
    return good.error();
  }
  staged_->is_busy = true;
  return placement.extra_bytes;
}

Result<std::string> Keeper::quiesce(std::string_view body) {
  ByteReader reader(body);
  const auto step = reader.get<std::uint64_t>();
  const auto limit = std::chrono::milliseconds(reader.get<std::uint32_t>());
  if (!reader.done() || step == 0) return Error("a stop needs a step, 1 or more, and a time");
  Lock lock(mutex_);
  if (staged_ == nullptr) return Error("no generation is prepared");
  if (staged_->prepare.old_rank < 0) return ByteWriter().put(kNoStep).put<std::uint8_t>(0).take();
  const auto stands = [](std::uint64_t at, bool is_late = false) {
    return ByteWriter().put(at).put<std::uint8_t>(is_late).take();
  };
  if (program_ == nullptr && state_.is_torn())
    return Error("the program of this rank died within a step; its state cannot be used");
  if (program_ == nullptr && state_.step() < step)
    return Error(fmt::format("the program of this rank died at step {}; the others are at {}",
                             state_.step(), step));
  if (program_ == nullptr) return stands(state_.step());
  Peer* program = program_;
  store_.page().stop_at = step;
  // The program may have passed the boundary before it was told. If ranks wait for each other, it
  // cannot reach the next boundary while others stand at this one.
  if (!program->is_quiesced && store_.page().step >= step) return stands(store_.page().step, true);
  // The program stands at an earlier boundary, which others have passed.
  if (program->is_quiesced && program->step < step) answer_quiesced(false);
  const bool over = changed_.wait_for(lock, limit, [&]() SWELL_REQUIRES(mutex_) {
    return stopping_ || staged_ == nullptr || program_ != program || program->is_quiesced;
  });
  if (program_ == program && program->is_quiesced) return stands(program->step);
  store_.page().stop_at = 0;
  if (!over)
    return Error(
        fmt::format("the program did not stop at step {} within {} ms", step, limit.count()));
  if (staged_ == nullptr || stopping_) return called_off();
  if (!state_.is_torn()) return stands(state_.step());
  return Error("the program of this rank died within a step; its state cannot be used");
}

Result<std::string> Keeper::move(std::string_view body) {
  ByteReader reader(body);
  const std::uint32_t chunk = body.empty() ? 0 : reader.get<std::uint32_t>();
  Staged* staged = nullptr;
  pid_t new_program = 0;
  {
    Lock lock(mutex_);
    if (staged_ == nullptr) return Error("no generation is prepared");
    if (staged_->is_busy || staged_->is_moved) return Error("the state has been moved already");
    if (!reader.done() || body.empty() != (staged_->chunks == 0) || chunk != staged_->next_chunk ||
        (staged_->chunks > 0 && !staged_->is_secured))
      return Error(fmt::format("chunk {} is not the next one", chunk));
    if (staged_->is_over) return called_off();
    staged = staged_.get();
    staged->is_busy = true;
    new_program = staged->program != nullptr ? staged->program->pid : 0;
  }
  // No other thread touches the staged generation while it moves: abort and the death of a program
  // wait for this thread, or ask it.
  const auto is_off = [&] {
    Lock lock(mutex_);
    return staged->is_over || stopping_;
  };
  std::atomic<int> blocks = 0;
  using Hold = Options::Hold;
  const auto wait_at = [&](Hold hold) { wait_while_held(hold, is_off); };
  Fetcher::Watch watch;
  watch.is_called_off = [&](const Fetch& fetch) {
    // Two threads fetch: when a third block is begun, one has arrived.
    if (++blocks == 3) wait_at(Hold::verified);
    if (!fetch.only_there) wait_at(Hold::rest);
    return is_off();
  };
  watch.has_come = [&](const Fetch& fetch) {
    Lock lock(mutex_);
    Progress& progress = staged->progress;
    (fetch.only_there ? progress.only_there : progress.rest) -= fetch.bytes();
    progress.come += fetch.bytes();
  };
  Result<Moved> moved = Moved();
  if (staged->chunks == 0) {
    moved =
        staged->fetcher->fetch_all(staged->placement, new_program, staged->prepare.verify, watch);
    if (moved.ok()) moved->extra_bytes = staged->extra_bytes + staged->fetcher->extra_bytes();
  } else if (auto its = begin_chunk(*staged); its.ok()) {
    if (chunk > 0) wait_at(Hold::chunk);
    moved = staged->fetcher->fetch_all(*its, new_program, staged->prepare.verify, watch);
    measure(*staged);
    if (moved.ok()) moved->extra_bytes = staged->extra_bytes;
    if (auto gone = staged->fetcher->let_go(chunk); moved.ok() && !gone) moved = gone.error();
  } else {
    moved = its.error();
  }
  Result<void> good = moved ? Result<void>() : moved.error();
  const bool is_last = chunk + 1 >= staged->chunks;
  // Do it while the program can still be told to unmap what it has read.
  if (is_last || !good) staged->fetcher.reset();
  Lock lock(mutex_);
  staged->is_busy = false;
  if (good.ok() && staged->is_over) good = called_off();
  // Its own thread may not have noticed yet.
  if (good.ok() && new_program != 0 &&
      (staged->program == nullptr || staged->program->channel.has_left()))
    good = Error("the program of the new generation has died");
  if (good.ok()) ++staged->next_chunk;
  if (good.ok()) staged->is_moved = is_last;
  else if (staged->is_over) drop_staged();
  changed_.notify_all();
  if (!good) return good.error();
  return write(*moved);
}

Result<std::string> Keeper::commit(std::string_view body) {
  ByteReader reader(body);
  const auto generation = reader.get<std::uint64_t>(), step = reader.get<std::uint64_t>();
  Lock lock(mutex_);
  if (!reader.done()) return Error("a commit needs the generation's number and its step");
  if (staged_ == nullptr && generation == state_.generation())
    return std::string();  // sent again by a coordinator that does not know
  if (staged_ == nullptr || staged_->prepare.generation != generation)
    return Error(fmt::format("generation {} is not prepared here", generation));
  if (!staged_->is_moved)
    return Error(fmt::format("the state of generation {} has not been moved", generation));
  const std::unique_ptr<Staged> staged = std::move(staged_);
  const std::vector<Held> old =
      state_.commit(generation, staged->placement.table, staged->prepare.new_rank >= 0, step);
  settle_programs(true);
  program_ = nullptr;
  if (staged->program != nullptr) hand_over(*staged->program, step, false);
  // The new generation trains already.
  free_later(old);
  return std::string();
}

}  // namespace swell::runtime
