// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/keeper.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <fstream>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

namespace swell::runtime {

namespace {

constexpr std::size_t kMaxProfile = 4096;

std::string boot_of_this_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot;
}

/// Whether the other side has closed the connection, asked of the system.
bool has_left(const Channel& channel) {
  pollfd polled{channel.fd(), POLLRDHUP, 0};
  return poll(&polled, 1, 0) > 0;
}

/// A thread that takes no signals: the shim expects them on its own.
template <typename Body>
std::thread quiet_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

/// Whether the registry's rules hold for what a program declares; tensors of the arena get
/// addresses of their own for that.
Result<void> check_declared(const std::vector<Entry>& entries) {
  Registry registry;
  std::uintptr_t next = std::uintptr_t{1} << 62;
  for (const Entry& declared : entries) {
    Entry entry = declared;
    if (entry.address == 0) {
      for (const Entry& other : registry.entries())
        if (other.tensor.name == entry.alias_of && other.part == entry.part)
          entry.address = other.address;
      if (entry.address == 0) {
        entry.address = next;
        next += static_cast<std::uintptr_t>(entry.bytes());
      }
    }
    if (auto good = registry.add(std::move(entry)); !good) return good;
  }
  return {};
}

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Keeper::Keeper(Options options, Arena arena)
    : options_(std::move(options)),
      arena_(std::make_shared<const Arena>(std::move(arena))),
      host_(options_.host.empty() ? boot_of_this_host() : options_.host),
      extents_(arena_->bytes()) {
  extents_.take(Extents::kPage);  // the control page
}

ControlPage& Keeper::page() const noexcept {
  return *reinterpret_cast<ControlPage*>(arena_->data());
}

Result<std::unique_ptr<Keeper>> Keeper::start(Options options) {
  auto arena = Arena::create(options.arena_bytes + Extents::kPage);
  if (!arena) return arena.error();
  std::unique_ptr<Keeper> keeper(new Keeper(std::move(options), std::move(*arena)));
  auto listening = listen_unix(keeper->options_.unix_socket);
  if (!listening) return listening.error();
  keeper->unix_listening_ = std::move(*listening);
  if (!keeper->options_.tcp_host.empty()) {
    if (keeper->options_.key.size() < 16)
      return Error(fmt::format(
          "the job's key has {} bytes; at least 16 are needed to listen for other nodes",
          keeper->options_.key.size()));
    auto tcp = listen_tcp(keeper->options_.tcp_host);
    if (!tcp) return tcp.error();
    keeper->tcp_listening_ = std::move(*tcp);
    keeper->tcp_ = address_of(keeper->tcp_listening_.get());
  }
  Keeper* self = keeper.get();
  keeper->accepting_.push_back(
      quiet_thread([self] { self->accept_loop(self->unix_listening_.get(), true); }));
  if (!keeper->tcp_.empty())
    keeper->accepting_.push_back(
        quiet_thread([self] { self->accept_loop(self->tcp_listening_.get(), false); }));
  return keeper;
}

Keeper::~Keeper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& peer : peers_) peer->channel.shut();
    changed_.notify_all();
  }
  // A listening socket that is shut down ends accept().
  shutdown(unix_listening_.get(), SHUT_RDWR);
  if (tcp_listening_) shutdown(tcp_listening_.get(), SHUT_RDWR);
  for (std::thread& thread : accepting_) thread.join();
  for (auto& peer : peers_) peer->thread.join();
  unlink(options_.unix_socket.c_str());
}

void Keeper::accept_loop(int listening, bool is_unix) {
  for (;;) {
    auto fd = accept_any(listening);
    std::lock_guard lock(mutex_);
    if (stopping_ || !fd) return;
    for (auto at = peers_.begin(); at != peers_.end();) {  // threads that have ended
      if (!(*at)->is_done) {
        ++at;
        continue;
      }
      (*at)->thread.join();
      at = peers_.erase(at);
    }
    auto peer = std::make_unique<Peer>();
    peer->is_unix = is_unix;
    peer->channel = Channel(std::move(*fd));
    Peer* raw = peer.get();
    peers_.push_back(std::move(peer));
    raw->thread = quiet_thread([this, raw] { serve(*raw); });
  }
}

void Keeper::serve(Peer& peer) {
  // The proof is made on a copy of the descriptor, so that ~Keeper can shut the channel meanwhile.
  Descriptor copy(dup(peer.channel.fd()));
  const auto checked = peer.is_unix ? check_unix_peer(std::move(copy))
                                    : check_tcp_peer(std::move(copy), options_.key);
  if (checked.ok()) {
    if (peer.is_unix) peer.pid = peer_pid(peer.channel.fd());
    for (;;) {
      const auto message = peer.channel.receive();
      if (!message || !answer(peer, *message).ok()) break;
    }
  }
  leave(peer);
}

void Keeper::leave(Peer& peer) {
  peer.channel.shut();
  std::lock_guard lock(mutex_);
  if (staged_ != nullptr && !staged_->is_moved &&
      (staged_->program == &peer || staged_->coordinator == &peer)) {
    if (staged_->is_busy) staged_->is_over = true;  // move() drops it
    else drop_staged();
  }
  if (staged_ != nullptr && staged_->program == &peer) staged_->program = nullptr;
  if (staged_ != nullptr && staged_->coordinator == &peer) staged_->coordinator = nullptr;
  if (program_ == &peer) {
    program_ = nullptr;
    // A program that dies within a step may have written half of it; one that waits at a boundary
    // has not.
    is_torn_ = !peer.is_quiesced;
    step_ = peer.step;
  }
  peer.is_waiting = false;
  peer.is_done = true;
  changed_.notify_all();
}

Result<void> Keeper::answer(Peer& peer, const Message& message) {
  Result<std::string> reply = std::string();
  switch (static_cast<Op>(message.op)) {
    case Op::open:
    case Op::arena:
      if (!peer.is_unix) {
        reply = Error("an arena is passed over a Unix socket alone");
        break;
      }
      return peer.channel.send(kDoneOp, Writer().put(arena_->bytes()).take(), arena_->fd());
    case Op::declare: reply = declare(peer, message.body); break;
    case Op::adopt: {
      std::unique_lock lock(mutex_);
      if (!peer.has_declared || peer.is_waiting || program_ == &peer) {
        reply = Error("a program adopts once, after it has declared its tensors");
        break;
      }
      peer.is_waiting = true;
      changed_.notify_all();
      return {};  // answered by begin, commit or abort
    }
    case Op::quiesced: {
      Reader reader(message.body);
      const auto step = reader.get<std::uint64_t>();
      std::lock_guard lock(mutex_);
      if (!reader.done() || program_ != &peer) {
        reply = Error("only the program that trains can stop at a step");
        break;
      }
      peer.step = step;
      peer.is_quiesced = true;
      changed_.notify_all();
      if (page().stop_at == 0) return settle_programs(false);  // it was called off meanwhile
      return {};                                               // answered by commit or abort
    }
    case Op::profile: reply = take_profile(peer, message.body); break;
    case Op::last_profile: {
      std::lock_guard lock(mutex_);
      reply = profile_;
      break;
    }
    case Op::status: reply = write(status()); break;
    case Op::wait_ready: reply = wait_ready(message.body); break;
    case Op::table: {
      std::lock_guard lock(mutex_);
      reply = write(epoch_, table_);
      break;
    }
    case Op::begin: reply = begin(message.body); break;
    case Op::prepare: reply = prepare(peer, message.body); break;
    case Op::quiesce: reply = quiesce(message.body); break;
    case Op::move: reply = move(); break;
    case Op::commit: reply = commit(message.body); break;
    case Op::abort: reply = abort_now(); break;
    case Op::request: reply = request(message.body); break;
    case Op::read: {
      const bool program = wants_program_memory(message.body);
      pid_t pid = 0;
      {
        std::lock_guard lock(mutex_);
        pid = program_ != nullptr ? program_->pid : 0;
      }
      if (program && pid == 0) {
        reply = Error("no program trains here whose memory could be read");
        break;
      }
      return serve_bytes(peer.channel, message.body,
                         program ? Sink::program(pid) : Sink::arena(*arena_),
                         [&](const Run& run) { return may_read(run, program); });
    }
    default: reply = Error(fmt::format("a question of kind {} is not known", message.op));
  }
  return reply ? peer.channel.send(kDoneOp, *reply)
               : peer.channel.send(kRefusedOp, Writer().text(reply.error().message()).take());
}

Result<std::string> Keeper::take_profile(const Peer& peer, const std::string& body) {
  std::uint64_t epoch = 0;
  {
    std::lock_guard lock(mutex_);
    if (program_ != &peer) return Error("only the program that trains reports a profile");
    if (body.size() > kMaxProfile)
      return Error(
          fmt::format("a profile of {} bytes is longer than any is, {}", body.size(), kMaxProfile));
    profile_ = body;
    epoch = epoch_;
  }
  if (options_.on_profile) options_.on_profile(epoch, body);
  return std::string();
}

bool Keeper::may_read(const Run& run, bool program) const {
  std::lock_guard lock(mutex_);
  return std::any_of(table_.begin(), table_.end(), [&](const Held& held) {
    const auto bytes = static_cast<std::uint64_t>(held.entry.bytes());
    return held.in_arena != program && run.from >= held.at && run.from - held.at <= bytes &&
           run.bytes <= bytes - (run.from - held.at);
  });
}

Status Keeper::status() const {
  std::lock_guard lock(mutex_);
  Status status;
  status.epoch = epoch_;
  status.prepared = staged_ != nullptr ? staged_->prepare.epoch : 0;
  status.has_program = program_ != nullptr;
  status.has_waiting =
      std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer->is_waiting; });
  status.is_moved = staged_ != nullptr && staged_->is_moved;
  status.is_quiesced = program_ != nullptr && program_->is_quiesced;
  status.step = program_ != nullptr && !program_->is_quiesced ? page().step.load()
                : program_ != nullptr                         ? program_->step
                                                              : step_;
  status.endpoint = {host_, options_.unix_socket, tcp_, program_ != nullptr ? program_->pid : 0};
  return status;
}

Result<std::string> Keeper::declare(Peer& peer, std::string_view body) {
  auto entries = read_entries(body);
  if (!entries) return entries.error();
  if (!peer.is_unix) return Error("programs of other nodes have a shim of their own");
  if (auto good = check_declared(*entries); !good) return good.error();
  std::byte probe;
  for (const Entry& entry : *entries)
    if (entry.address != 0)
      if (auto good = Sink::program(peer.pid).read(entry.address, &probe, 1); !good)
        return good.error().while_doing(fmt::format(
            "tensor {} in the program's own memory; without an address it would stand in the arena",
            entry.tensor.name));
  std::lock_guard lock(mutex_);
  if (program_ == &peer || peer.has_declared) return Error("a program declares its tensors once");
  peer.entries = std::move(*entries);
  peer.has_declared = true;
  return std::string();
}

Keeper::Peer* Keeper::waiting_program() {
  for (auto& peer : peers_)
    // One that was killed may not have been noticed by its own thread yet.
    if (peer->is_waiting && !has_left(peer->channel)) return peer.get();
  return nullptr;
}

Result<std::string> Keeper::wait_ready(std::string_view body) {
  Reader reader(body);
  const auto limit = std::chrono::milliseconds(reader.get<std::uint32_t>());
  if (!reader.done()) return Error("wait_ready needs a time");
  std::unique_lock lock(mutex_);
  Peer* peer = nullptr;
  changed_.wait_for(lock, limit,
                    [&] { return stopping_ || (peer = waiting_program()) != nullptr; });
  if (peer == nullptr)
    return Error(fmt::format("no program was ready within {} ms", limit.count()));
  return write(peer->entries);
}

Result<std::uint64_t> Keeper::take(std::uint64_t bytes) {
  const auto at = extents_.take(bytes);
  if (!at)
    return Error(fmt::format("the arena has no {} bytes left in one piece; {} of its {} are taken",
                             bytes, extents_.taken_bytes(), arena_->bytes()));
  taken_[*at] = {bytes, 0};
  return *at;
}

void Keeper::use(std::uint64_t at) { ++std::prev(taken_.upper_bound(at))->second.uses; }

void Keeper::drop(std::uint64_t at) {
  const auto extent = std::prev(taken_.upper_bound(at));
  if (--extent->second.uses > 0) return;
  arena_->release(extent->first, extent->second.bytes);
  extents_.give(extent->first, extent->second.bytes);
  taken_.erase(extent);
}

Result<std::string> Keeper::begin(std::string_view body) {
  Reader reader(body);
  const auto epoch = reader.get<std::uint64_t>();
  if (!reader.done() || epoch == 0) return Error("an epoch begins with its number, 1 or more");
  std::lock_guard lock(mutex_);
  Peer* peer = waiting_program();
  if (peer == nullptr) return Error("no program waits to begin");
  if (staged_ != nullptr) return Error("an epoch is being prepared; abort it first");
  if (program_ != nullptr) return Error("a program trains here already");
  // What an earlier program left is torn or of another job's start: the new program makes its own.
  for (const Held& held : table_)
    if (held.in_arena) drop(held.at);
  table_.clear();
  for (const Entry& entry : peer->entries) {
    Held held{entry, entry.address == 0, entry.address};
    if (held.in_arena) {
      const auto same = std::find_if(table_.begin(), table_.end(), [&](const Held& other) {
        return other.in_arena && other.entry.tensor.name == entry.alias_of &&
               other.entry.part == entry.part;
      });
      if (same != table_.end()) {
        held.at = same->at;
      } else {
        const auto at = take(static_cast<std::uint64_t>(entry.bytes()));
        if (!at) return at.error().while_doing("tensor " + entry.tensor.name);
        held.at = *at;
      }
      use(held.at);
    }
    table_.push_back(std::move(held));
  }
  epoch_ = epoch;
  has_state_ = true;
  is_torn_ = false;
  Adopted adopted{epoch, 0, true, {}};
  for (const Held& held : table_) adopted.places.emplace_back(held.in_arena, held.at);
  peer->is_waiting = false;
  program_ = peer;
  profile_.clear();
  page().stop_at = 0;
  page().wish = 0;
  page().step = 0;
  if (auto sent = peer->channel.send(kDoneOp, write(adopted)); !sent) return sent.error();
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
  std::vector<RankState> old_ranks, new_ranks;
  for (const OldRank& rank : plan.from) {
    old_ranks.push_back({rank.place, {}});
    for (const Held& held : rank.holds) old_ranks.back().entries.push_back(held.entry);
  }
  for (const NewRank& rank : plan.to) new_ranks.push_back({rank.place, rank.entries});
  const auto from = merge(old_ranks);
  if (!from) return from.error().while_doing("the old plan");
  const auto to = merge(new_ranks);
  if (!to) return to.error().while_doing("the new plan");
  const auto migration = plan_migration(*from, *to, *cluster);
  if (!migration) return migration.error();
  staged->digest = migration->digest();

  {
    std::lock_guard lock(mutex_);
    if (staged_ != nullptr)
      return Error(fmt::format("epoch {} is being prepared already; abort it first",
                               staged_->prepare.epoch));
    if (plan.epoch <= epoch_)
      return Error(fmt::format("epoch {} cannot follow epoch {}", plan.epoch, epoch_));
    if (plan.old_rank >= 0 && !has_state_) return Error("this shim holds no state of the old plan");
    staged->coordinator = &peer;
    if (plan.new_rank >= 0) {
      staged->program = waiting_program();
      if (staged->program == nullptr) return Error("no program waits here for the new plan");
      if (write(staged->program->entries) !=
          write(plan.to[static_cast<std::size_t>(plan.new_rank)].entries))
        return Error("the new plan gives this rank other tensors than its program has declared");
    }
    staged_ = std::move(staged);
    if (plan.new_rank >= 0)
      if (auto placed = place_all(
              *staged_, *to, migration->needs_of(static_cast<std::uint32_t>(plan.new_rank)), *from);
          !placed) {
        drop_staged();
        return placed.error();
      }
    if (staged_->extra_bytes > plan.max_extra_bytes) {
      const Error error(
          fmt::format("the switch needs {} bytes beside what is held; the bound is {}",
                      staged_->extra_bytes, plan.max_extra_bytes));
      drop_staged();
      return error;
    }
    staged_->is_busy = true;
  }
  // Without the lock: the shims that are asked may be asking this one.
  Staged& own = *staged_;
  auto connected = connect_all(own);
  // Memory is taken while the training goes on: what is left for the pause is the copy.
  for (const auto& [at, bytes] : own.fresh)
    if (connected.ok()) connected = arena_->populate(at, bytes);
  std::lock_guard lock(mutex_);
  own.is_busy = false;
  changed_.notify_all();
  if (connected.ok() && !own.is_over) return write(Prepared{own.digest, own.extra_bytes});
  drop_staged();
  return connected.ok() ? Error(kCalledOff) : connected.error();
}

/// Gives every tensor of the new epoch its place, and works out what has to be fetched for it.
Result<void> Keeper::place_all(Staged& staged, const World& to, const std::vector<Move>& moves,
                               const World& from) {
  const Prepare& plan = staged.prepare;
  // Moves speak of tensors by the name that counts, and of parts by number.
  using Key = std::pair<const World::Tensor*, Part>;
  std::map<Key, std::vector<const Move*>> by_part;
  for (const Move& move : moves)
    by_part[{&to.tensors()[move.tensor], to.part(move.to_part)}].push_back(&move);
  std::map<std::uint32_t, std::map<Key, const Held*>> sources;  // by old rank
  const auto find_held = [&](const Move& move) -> const Held* {
    auto& its = sources[move.from_rank];
    if (its.empty())
      for (const Held& held : plan.from[move.from_rank].holds)
        its[{from.find(held.entry.tensor.name), held.entry.part}] = &held;
    const auto at = its.find({&from.tensors()[move.from_tensor], from.part(move.from_part)});
    return at != its.end() ? at->second : nullptr;
  };
  std::map<Key, const Held*> placed;
  staged.table.reserve(staged.program->entries.size());
  for (const Entry& entry : staged.program->entries) {
    Held held{entry, entry.address == 0, entry.address};
    const World::Tensor* tensor = to.find(entry.tensor.name);
    const auto done = placed.find({tensor, entry.part});
    if (done != placed.end() && done->second->in_arena == held.in_arena && held.in_arena) {
      held.at = done->second->at;
      use(held.at);
      staged.table.push_back(std::move(held));
      continue;
    }
    const std::int64_t element = bytes_of(entry.tensor.dtype);
    const std::vector<const Move*>& its = by_part[{tensor, entry.part}];
    const Held* kept = nullptr;
    if (!its.empty() && its.front()->nearness == Nearness::in_place &&
        static_cast<std::int32_t>(its.front()->from_rank) == plan.old_rank && held.in_arena) {
      kept = find_held(*its.front());
      if (kept != nullptr && !kept->in_arena) kept = nullptr;
    }
    if (kept != nullptr) {
      // One run of the old memory becomes the new part.
      std::int64_t shift = 0;
      each_run(its.front()->box, kept->entry.part, entry.part,
               [&](std::int64_t a, std::int64_t b, std::int64_t) { shift = a - b; });
      held.at = kept->at + static_cast<std::uint64_t>(shift * element);
      use(held.at);
      staged.kept_bytes += static_cast<std::uint64_t>(entry.bytes());
    } else {
      if (held.in_arena) {
        const auto at = take(static_cast<std::uint64_t>(entry.bytes()));
        if (!at) return at.error().while_doing("tensor " + entry.tensor.name);
        held.at = *at;
        use(held.at);
        staged.fresh.emplace_back(*at, static_cast<std::uint64_t>(entry.bytes()));
        staged.extra_bytes += Extents::rounded(static_cast<std::uint64_t>(entry.bytes()));
      }
      for (const Move* move : its) {
        const Held* source = find_held(*move);
        if (source == nullptr)
          return Error(fmt::format("tensor {}: its source, rank {}, does not hold it",
                                   entry.tensor.name, move->from_rank));
        Fetch fetch{
            static_cast<std::int32_t>(move->from_rank), !source->in_arena, !held.in_arena, {}};
        each_run(move->box, source->entry.part, entry.part,
                 [&](std::int64_t a, std::int64_t b, std::int64_t count) {
                   fetch.runs.push_back({source->at + static_cast<std::uint64_t>(a * element),
                                         held.at + static_cast<std::uint64_t>(b * element),
                                         static_cast<std::uint64_t>(count * element)});
                 });
        staged.fetches.push_back(std::move(fetch));
      }
    }
    staged.table.push_back(std::move(held));
    placed[{tensor, entry.part}] = &staged.table.back();
  }
  return {};
}

/// Another shim's arena, mapped here; nullptr: it is on another host, or its socket is not seen
/// from here, as where each job has a /tmp of its own.
std::shared_ptr<const Arena> Keeper::arena_of(const Endpoint& endpoint, bool from_program) const {
  if (endpoint.host != host_ || from_program) return nullptr;
  auto channel = Channel::connect_unix(endpoint.unix_socket);
  if (!channel) return nullptr;
  auto answer = ask(*channel, Op::arena, {}, within(std::chrono::seconds(10)));
  if (!answer) return nullptr;
  auto arena = Arena::map(std::move(answer->fd), Reader(answer->body).get<std::uint64_t>());
  return arena ? std::make_shared<const Arena>(std::move(*arena)) : nullptr;
}

/// Opens the way to every source before the training stops.
Result<void> Keeper::connect_all(Staged& staged) {
  std::map<std::int32_t, std::shared_ptr<const Arena>> arenas;
  for (const Fetch& fetch : staged.fetches) {
    auto& source = staged.sources[{fetch.rank, fetch.from_program}];
    if (source != nullptr) continue;
    const Endpoint& endpoint = staged.prepare.from[static_cast<std::size_t>(fetch.rank)].endpoint;
    const bool is_here = fetch.rank == staged.prepare.old_rank;
    const std::string what = fmt::format("the way to old rank {}", fetch.rank);
    if (endpoint.host == host_ && fetch.from_program && endpoint.program_pid > 0) {
      source = from_program(endpoint.program_pid);
    } else if (is_here) {
      source = from_mapped(arena_);
    } else if (auto arena = arena_of(endpoint, fetch.from_program); arena != nullptr) {
      for (const Fetch& each : staged.fetches)
        if (each.rank == fetch.rank && !each.from_program)
          for (const Run& run : each.runs)
            if (run.bytes >= Transport::kStaging && arena->has(run.from, run.bytes))
              arena->look_ahead(run.from, run.bytes);
      source = from_mapped(std::move(arena));
    } else {
      if (endpoint.tcp.empty())
        return Error(fmt::format("{}: it is on another host and does not listen there", what));
      auto channel =
          Channel::connect_tcp(endpoint.tcp, options_.key, within(std::chrono::seconds(10)));
      if (!channel) return channel.error().while_doing(what);
      source = from_network(std::make_shared<Channel>(std::move(*channel)), fetch.from_program);
    }
  }
  return {};
}

Result<std::string> Keeper::quiesce(std::string_view body) {
  Reader reader(body);
  const auto step = reader.get<std::uint64_t>();
  const auto limit = std::chrono::milliseconds(reader.get<std::uint32_t>());
  if (!reader.done() || step == 0) return Error("a stop needs a step, 1 or more, and a time");
  std::unique_lock lock(mutex_);
  if (staged_ == nullptr) return Error("no epoch is prepared");
  if (staged_->prepare.old_rank < 0) return Writer().put(kNoStep).take();
  if (program_ == nullptr && is_torn_)
    return Error("the program of this rank died within a step; its state cannot be used");
  if (program_ == nullptr) return Writer().put(step_).take();
  Peer* program = program_;
  page().stop_at = step;
  const bool over = changed_.wait_for(lock, limit, [&] {
    return stopping_ || staged_ == nullptr || program_ != program || program->is_quiesced;
  });
  if (program_ == program && program->is_quiesced) return Writer().put(program->step).take();
  page().stop_at = 0;
  if (!over)
    return Error(
        fmt::format("the program did not stop at step {} within {} ms", step, limit.count()));
  if (staged_ == nullptr || stopping_) return Error(kCalledOff);
  if (!is_torn_) return Writer().put(step_).take();
  return Error("the program of this rank died within a step; its state cannot be used");
}

Result<std::string> Keeper::move() {
  Staged* staged = nullptr;
  pid_t new_program = 0;
  {
    std::lock_guard lock(mutex_);
    if (staged_ == nullptr) return Error("no epoch is prepared");
    if (staged_->is_busy || staged_->is_moved) return Error("the state has been moved already");
    staged = staged_.get();
    staged->is_busy = true;
    new_program = staged->program != nullptr ? staged->program->pid : 0;
  }
  // Nobody else touches what is staged while it moves: abort and the leave of a program wait for,
  // or ask, this thread.
  Moved moved;
  std::map<std::string, std::uint64_t> by_path;
  std::vector<std::uint64_t> expected;
  const Sink arena = Sink::arena(*arena_), memory = Sink::program(new_program);
  Result<void> good;
  auto start = Clock::now();
  for (const Fetch& fetch : staged->fetches) {
    {
      std::lock_guard lock(mutex_);
      if (staged->is_over || stopping_) good = Error(kCalledOff);
    }
    if (!good) break;
    Transport& source = *staged->sources.at({fetch.rank, fetch.from_program});
    const auto hash =
        source.fetch(fetch.runs, fetch.to_program ? memory : arena, staged->prepare.verify);
    if (!hash) {
      good = hash.error().while_doing(fmt::format("moving state from old rank {}", fetch.rank));
      break;
    }
    expected.push_back(*hash);
    for (const Run& run : fetch.runs) by_path[source.name()] += run.bytes;
  }
  moved.move_s = since(start);
  start = Clock::now();
  for (std::size_t i = 0; good.ok() && staged->prepare.verify && i < expected.size(); ++i) {
    const Fetch& fetch = staged->fetches[i];
    const auto found = (fetch.to_program ? memory : arena).hash_of(fetch.runs);
    if (!found) good = found.error();
    else if (*found != expected[i])
      good =
          Error(fmt::format("state from old rank {} has checksum {:016x} here; there it is {:016x}",
                            fetch.rank, *found, expected[i]));
  }
  moved.verify_s = since(start);
  if (staged->kept_bytes > 0) by_path["in place"] = staged->kept_bytes;
  for (const auto& [path, bytes] : by_path) moved.paths.push_back({path, bytes});
  std::lock_guard lock(mutex_);
  staged->is_busy = false;
  if (good.ok() && staged->is_over) good = Error(kCalledOff);
  // Its own thread may not have noticed yet.
  if (good.ok() && new_program != 0 &&
      (staged->program == nullptr || has_left(staged->program->channel)))
    good = Error("the program of the new epoch has died");
  if (good.ok()) staged->is_moved = true;
  else if (staged->is_over) drop_staged();
  changed_.notify_all();
  if (!good) return good.error();
  return write(moved);
}

Result<std::string> Keeper::request(std::string_view body) {
  Reader reader(body);
  const auto wish = reader.get<std::uint64_t>();
  if (!reader.done() || (wish != kStopWish && wish != kCheckpointWish))
    return Error("a program can be asked to stop (2) or to write a checkpoint (3)");
  std::lock_guard lock(mutex_);
  if (program_ == nullptr) return Error("no program trains here");
  page().wish = wish;
  return std::string();
}

/// Answers the programs that wait: the old one stops or goes on, and the new one begins or leaves.
Result<void> Keeper::settle_programs(bool committed) {
  page().stop_at = 0;
  if (program_ == nullptr || !program_->is_quiesced) return {};
  program_->is_quiesced = false;
  return program_->channel.send(kDoneOp, Writer().put<std::uint8_t>(committed).take());
}

Result<std::string> Keeper::commit(std::string_view body) {
  Reader reader(body);
  const auto epoch = reader.get<std::uint64_t>(), step = reader.get<std::uint64_t>();
  std::lock_guard lock(mutex_);
  if (!reader.done()) return Error("a commit needs the epoch's number and its step");
  if (staged_ == nullptr && epoch == epoch_)
    return std::string();  // said again, by a coordinator that does not know
  if (staged_ == nullptr || staged_->prepare.epoch != epoch)
    return Error(fmt::format("epoch {} is not prepared here", epoch));
  if (!staged_->is_moved)
    return Error(fmt::format("the state of epoch {} has not been moved", epoch));
  const std::unique_ptr<Staged> staged = std::move(staged_);
  std::vector<Held> old = std::move(table_);
  table_ = staged->table;
  epoch_ = epoch;
  profile_.clear();
  has_state_ = staged->prepare.new_rank >= 0;
  // An old program that is gone already needs no answer.
  static_cast<void>(settle_programs(true));
  program_ = nullptr;
  is_torn_ = false;
  step_ = step;
  const auto free_old = [&] {
    for (const Held& held : old)
      if (held.in_arena) drop(held.at);
    return std::string();
  };
  if (staged->program == nullptr) return free_old();
  Adopted adopted{epoch, step, false, {}};
  for (const Held& held : table_) adopted.places.emplace_back(held.in_arena, held.at);
  staged->program->is_waiting = false;
  program_ = staged->program;
  program_->step = step;
  page().step = step;
  page().wish = 0;
  // A program that died since is noticed by its own thread; the epoch is committed all the same.
  static_cast<void>(program_->channel.send(kDoneOp, write(adopted)));
  changed_.notify_all();
  // Last: the new epoch trains already.
  return free_old();
}

void Keeper::drop_staged() {
  const std::unique_ptr<Staged> staged = std::move(staged_);
  for (const Held& held : staged->table)
    if (held.in_arena) drop(held.at);
  // An extent that was taken for a tensor that found no place in the table has no user.
  for (auto at = taken_.begin(); at != taken_.end();) {
    if (at->second.uses > 0) {
      ++at;
      continue;
    }
    extents_.give(at->first, at->second.bytes);
    at = taken_.erase(at);
  }
  if (staged->program != nullptr) refuse_waiting(*staged->program);
  static_cast<void>(settle_programs(false));
  changed_.notify_all();
}

/// A program that waits in adopt is told to leave; one that has died does not hear it.
void Keeper::refuse_waiting(Peer& peer) {
  if (!std::exchange(peer.is_waiting, false)) return;
  static_cast<void>(peer.channel.send(kRefusedOp, Writer().text(kCalledOff).take()));
}

std::string Keeper::abort_now() {
  std::unique_lock lock(mutex_);
  if (staged_ != nullptr && staged_->is_busy) {
    staged_->is_over = true;
    changed_.wait(lock, [&] { return staged_ == nullptr || !staged_->is_busy; });
  }
  if (staged_ != nullptr) drop_staged();
  while (Peer* peer = waiting_program()) refuse_waiting(*peer);
  return {};
}

}  // namespace swell::runtime
