// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: snapshots of its rank's state, and of other ranks whose partner it is.
#include <fmt/format.h>

#include "base/mutex.h"
#include "runtime/keeper/keeper.h"
#include "runtime/quiet_thread.h"

namespace swell::runtime {

namespace {

constexpr std::chrono::seconds kPartnerTime{60};
/// Time limit for the partner to fetch the snapshot of a leaving program, which may still write its
/// own files.
constexpr std::chrono::seconds kLeaveTime{5};

}  // namespace

Result<std::string> Keeper::set_guard(std::string_view body) {
  auto guard = read_guard(body);
  if (!guard) return guard.error();
  Lock lock(mutex_);
  guard_ = std::move(*guard);
  return std::string();
}

/// Copies the state of the program, which waits at a boundary for this. The partner fetches it
/// while the program trains on. A leaving program waits for the partner, because this shim may exit
/// too.
Result<std::string> Keeper::take_snapshot(Peer& peer, std::string_view body) {
  ByteReader reader(body);
  const auto step = reader.get<std::uint64_t>();
  if (!reader.done() || step == 0) return Error("a snapshot is of a step, 1 or more");
  // Wait for the previous one, so that ranks stay close. Only the training program starts a sender.
  if (sender_.joinable()) sender_.join();
  {
    Lock lock(mutex_);
    if (program_ != &peer || !state_.is_held())
      return Error("only the program that trains takes snapshots");
  }
  // The program waits for the answer, and this thread reads its messages.
  if (peer.proxy != nullptr) peer.proxy->tasks().open(true);
  auto snapshot = copy_state(step, peer.pid, peer.proxy.get(), false);
  if (peer.proxy != nullptr) peer.proxy->tasks().close();
  if (!snapshot) return snapshot.error();
  Lock lock(mutex_);
  if (guard_.partner.unix_socket.empty() || stopping_) return std::string();
  if (peer.leaves) {
    const Endpoint partner = guard_.partner;
    lock.unlock();
    static_cast<void>(send_snapshot(*snapshot, partner, kLeaveTime));
  } else {
    // If this snapshot cannot be sent, or no thread can be started for it, the next one may be. A
    // snapshot without a copy elsewhere is useful while this shim lives.
    auto thread = quiet_thread([this, snapshot = std::move(*snapshot), partner = guard_.partner] {
      static_cast<void>(send_snapshot(snapshot, partner, kPartnerTime));
    });
    if (thread) sender_ = std::move(*thread);
  }
  return std::string();
}

/// Copies the committed state, which no thread writes meanwhile, and keeps it as this rank's last
/// snapshot. `program` is the process for its own memory, `proxy` reaches what is on a GPU.
Result<Snapshot> Keeper::copy_state(std::uint64_t step, pid_t program, DeviceProxy* proxy,
                                    bool is_of_switch) {
  Snapshot snapshot;
  std::vector<Run> of_arena, of_program, of_device;
  {
    Lock lock(mutex_);
    wait_for_memory(lock);
    if (guard_.generation != state_.generation())
      return Error("it is not known yet who keeps this generation's snapshots");
    snapshot = {state_.generation(), step, guard_.rank, guard_.ranks, {}, is_of_switch};
    std::vector<Run> runs;
    std::vector<Memory> memories;
    auto copy = Snapshots::take_copy(store_, state_.table(), runs, &memories);
    if (!copy) return copy.error();
    snapshot.table = std::move(*copy);
    for (std::size_t i = 0; i < runs.size(); ++i)
      (memories[i] == Memory::arena ? of_arena
       : is_on_gpu(memories[i])     ? of_device
                                    : of_program)
          .push_back(runs[i]);
  }
  const Sink arena = Sink::arena(*arena_), memory = Sink::program(program);
  Result<void> good;
  for (const Run& run : of_arena)
    if (good.ok()) good = arena_->populate(run.to, run.bytes);
  for (const Run& run : of_arena)
    if (good.ok()) good = arena.write(run.to, arena_->data() + run.from, run.bytes);
  for (const Run& run : of_device)
    if (good.ok()) good = arena_->populate(run.to, run.bytes);
  if (good.ok() && !of_device.empty())
    good = proxy != nullptr ? proxy->to_arena(std::move(of_device))
                            : Result<void>(Error("the program of this rank is gone, and its GPU's "
                                                 "memory cannot be copied"));
  if (good.ok() && program == 0 && !of_program.empty())
    good = Error("the program of this rank is gone, and the state in its memory with it");
  for (const Run& run : of_program)
    if (good.ok()) good = memory.read(run.from, arena_->data() + run.to, run.bytes);
  Lock lock(mutex_);
  if (!good) {
    drop_table(snapshot.table);
    return good.error();
  }
  snapshots_.add(snapshot);
  return snapshot;
}

/// Has the partner fetch a snapshot.
Result<void> Keeper::send_snapshot(const Snapshot& snapshot, const Endpoint& partner,
                                   std::chrono::seconds limit) {
  auto found = partner.host == host_ ? Channel::connect_unix(partner.unix_socket)
                                     : Result<Channel>(Error("it is on another host"));
  // Also if its socket cannot be seen from here, for example because each job has its own /tmp.
  if (!found && !partner.tcp.empty())
    found = Channel::connect_tcp(partner.tcp, options_.key, within(std::chrono::seconds(10)));
  if (!found) return found.error();
  auto channel = std::make_shared<Channel>(std::move(*found));
  {
    Lock lock(mutex_);
    if (stopping_) return called_off();
    to_partner_ = channel;
  }
  const auto kept =
      ask(*channel, Op::keep,
          write(Kept{snapshot, {host_, options_.unix_socket, tcp_, 0, processes_}}), within(limit));
  return kept ? Result<void>() : kept.error();
}

/// Fetches another rank's snapshot from its keeper.
Result<std::string> Keeper::keep_snapshot(std::string_view body) {
  auto kept = read_kept(body);
  if (!kept) return kept.error();
  Snapshot& snapshot = kept->snapshot;
  Prepare plan;
  plan.from.push_back({{}, kept->source});
  Placement placement;
  {
    Lock lock(mutex_);
    wait_for_memory(lock);
    std::vector<Run> runs;
    auto copy = Snapshots::take_copy(store_, snapshot.table, runs);
    if (!copy) return copy.error();
    snapshot.table = std::move(*copy);
    for (const Run& run : runs) {
      placement.fresh.emplace_back(run.to, run.bytes);
      placement.fetches.push_back({0, Memory::arena, Memory::arena, {run}});
    }
  }
  const auto is_off = [this] {
    Lock guard(mutex_);
    return stopping_;
  };
  wait_while_held(Options::Hold::keeping, is_off);
  Result<void> good;
  for (const auto& [at, bytes] : placement.fresh)
    if (good.ok()) good = arena_->populate(at, bytes);
  if (good.ok()) {
    auto fetcher = Fetcher::open(self(), plan, placement.fetches);
    if (!fetcher) good = fetcher.error();
    else if (const auto moved = fetcher->fetch_all(placement, 0, Verify::network,
                                                   {[&](const Fetch&) { return is_off(); }, {}});
             !moved)
      good = moved.error();
  }
  Lock lock(mutex_);
  if (!good) {
    drop_table(snapshot.table);
    return good.error();
  }
  snapshots_.add(std::move(snapshot));
  return std::string();
}

}  // namespace swell::runtime
