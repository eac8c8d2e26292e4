// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: its connections and threads, and which peer may send which request.
#include "runtime/keeper/keeper.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>

#include "base/mutex.h"
#include "runtime/quiet_thread.h"

namespace swell::runtime {

namespace {

std::string boot_of_this_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot;
}

std::string pid_namespace() {
  std::string name(64, '\0');
  const ssize_t count = readlink("/proc/self/ns/pid", name.data(), name.size());
  name.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  return name;
}

}  // namespace

Keeper::Keeper(Options options, Arena arena)
    : options_(std::move(options)),
      store_(std::move(arena)),
      arena_(store_.arena()),
      host_(options_.host.empty() ? boot_of_this_host() : options_.host),
      processes_(options_.processes.empty() ? pid_namespace() : options_.processes),
      snapshots_(store_) {}

Result<std::unique_ptr<Keeper>> Keeper::start(Options options) {
  auto arena = Arena::create(options.arena_bytes + Extents::kPage);
  if (!arena) return arena.error();
  std::unique_ptr<Keeper> keeper(new Keeper(std::move(options), std::move(*arena)));
  auto listening = listen_unix(keeper->options_.unix_socket);
  if (!listening) return listening.error();
  Descriptor tcp_listening;
  if (!keeper->options_.tcp_host.empty()) {
    if (keeper->options_.key.size() < 16)
      return Error(fmt::format(
          "the job's key has {} bytes; at least 16 are needed to listen for other nodes",
          keeper->options_.key.size()));
    auto tcp = listen_tcp(keeper->options_.tcp_host);
    if (!tcp) return tcp.error();
    tcp_listening = std::move(*tcp);
    keeper->tcp_ = address_of(tcp_listening.get());
  }
  Door::Options its;
  its.let_in = [self = keeper.get()](Channel& channel, bool is_unix) {
    return self->let_in(channel, is_unix);
  };
  its.at_each_turn = [self = keeper.get()] { self->join_ended(); };
  keeper->door_ = std::make_unique<Door>(std::move(its), std::move(*listening),
                                         std::move(tcp_listening), keeper->options_.key);
  if (auto opened = keeper->door_->open(); !opened) return opened.error();
  return keeper;
}

Keeper::~Keeper() {
  {
    Lock lock(mutex_);
    stopping_ = true;
    for (auto& peer : peers_) peer->channel.shut();
    if (to_partner_ != nullptr) to_partner_->shut();
    changed_.notify_all();
  }
  if (door_ != nullptr) door_->close();
  for (auto& peer : peers_) peer->thread.join();
  if (sender_.joinable()) sender_.join();
  if (freeing_.joinable()) freeing_.join();
  unlink(options_.unix_socket.c_str());
}

/// Gives a proved peer a thread.
bool Keeper::let_in(Channel& channel, bool is_unix) {
  Lock lock(mutex_);
  if (stopping_) return true;
  auto peer = std::make_unique<Peer>();
  peer->is_unix = is_unix;
  if (is_unix) peer->pid = peer_pid(channel.fd());
  peer->channel = std::move(channel);
  Peer* raw = peer.get();
  peers_.push_back(std::move(peer));
  auto thread = quiet_thread([this, raw] { serve(*raw); });
  if (!thread) {
    channel = std::move(raw->channel);
    peers_.pop_back();
    return false;
  }
  raw->thread = std::move(*thread);
  return true;
}

/// Frees the thread and the descriptor of each peer that has left.
void Keeper::join_ended() {
  Lock lock(mutex_);
  for (auto at = peers_.begin(); at != peers_.end();) {
    if (!(*at)->is_done) {
      ++at;
      continue;
    }
    (*at)->thread.join();
    at = peers_.erase(at);
  }
}

void Keeper::serve(Peer& peer) {
  try {
    for (;;) {
      auto message = peer.channel.receive();
      if (!message) break;
      // Only the reading thread handles it, because the thread that waits for it may hold the lock.
      if (static_cast<Op>(message->op) == Op::task_done && peer.proxy != nullptr)
        peer.proxy->tasks().answer(std::move(*message));
      else if (!answer(peer, *message).ok()) break;
    }
  } catch (const std::exception&) {  // out of memory: only this peer loses its connection
  }
  peer.link.reset();
  forget_proxy(peer);
  leave(peer);
  door_->wake();
}

void Keeper::leave(Peer& peer) {
  peer.channel.shut();
  Lock lock(mutex_);
  if (staged_ != nullptr && !staged_->is_moved) {
    if (staged_->coordinator == &peer) {
      if (staged_->is_busy) staged_->is_over = true;  // move() drops it
      else drop_staged();
    } else if (staged_->program == &peer) {
      spoil_staged();
    }
  }
  if (staged_ != nullptr && staged_->program == &peer) staged_->program = nullptr;
  if (staged_ != nullptr && staged_->coordinator == &peer) staged_->coordinator = nullptr;
  if (agreed_ && agreed_->coordinator == &peer) settle_programs(false);
  if (program_ == &peer) {
    program_ = nullptr;
    agreed_.reset();
    state_.program_ended(peer.step, peer.is_quiesced);
    if (staged_ == nullptr) release_torn();
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
      return peer.channel.send(kDoneOp, ByteWriter().put(arena_->bytes()).take(), arena_->fd());
    case Op::stays: reply = take_stays(peer, Stays::always); break;
    case Op::takes_snapshots: {
      Lock lock(mutex_);
      peer.takes_snapshots = true;
      break;
    }
    case Op::stays_if: reply = take_stays(peer, Stays::if_none_is_new); break;
    case Op::next: reply = tell_next(peer); break;
    case Op::decline: reply = decline(peer, message.body); break;
    case Op::device: reply = take_device(peer, message.body); break;
    case Op::gpu_memory: reply = write(gpu_memory()); break;
    case Op::own_share: reply = take_own(peer, message); break;
    case Op::own: return give_own(peer, message.body);
    case Op::slab: return give_slab(peer, message.body);
    case Op::declare: reply = declare(peer, message.body); break;
    case Op::adopt:
      // begin, commit or abort sends the answer.
      if (auto waits = adopt(peer); !waits) reply = waits.error();
      else return {};
      break;
    case Op::quiesced:
      // commit or abort sends the answer.
      if (auto stands = take_quiesced(peer, message.body); !stands) reply = stands.error();
      else return {};
      break;
    case Op::snapshot: reply = take_snapshot(peer, message.body); break;
    case Op::guard: reply = set_guard(message.body); break;
    case Op::keep: reply = keep_snapshot(message.body); break;
    case Op::snapshots: {
      Lock lock(mutex_);
      reply = write(snapshots_.all());
      break;
    }
    case Op::profile:
    case Op::node_profile: reply = take_profile(peer, message.body); break;
    case Op::last_profile: {
      Lock lock(mutex_);
      reply = state_.profile();
      break;
    }
    case Op::status: reply = write(status()); break;
    case Op::wait_ready: reply = wait_ready(message.body); break;
    case Op::table: {
      Lock lock(mutex_);
      reply = write(state_.generation(), state_.table());
      break;
    }
    case Op::begin: reply = begin(message.body); break;
    case Op::prepare: reply = prepare(peer, message.body); break;
    case Op::quiesce: reply = quiesce(message.body); break;
    case Op::secure: reply = secure(); break;
    case Op::move: reply = move(message.body); break;
    case Op::commit: reply = commit(message.body); break;
    case Op::abort: reply = abort_now(message.body); break;
    case Op::request: reply = request(message.body); break;
    case Op::agree: reply = agree(peer, message.body); break;
    case Op::conclude: reply = conclude(message.body); break;
    case Op::ucx: return answer_ucx(peer, message.body);
    case Op::nccl: return answer_nccl(peer, message.body);
    case Op::read: return serve_read(peer, message.body);
    default: reply = Error(fmt::format("a question of kind {} is not known", message.op));
  }
  return reply ? peer.channel.send(kDoneOp, *reply)
               : peer.channel.send(kRefusedOp, write_refusal(reply.error()));
}

/// Opens UCX for one link. The memory that it has registered with a card is forgotten with the
/// link, before the arena frees that memory and reuses its addresses; UCX would not notice that. A
/// failure is final: it is not tried again.
Result<std::shared_ptr<const Ucx>> Keeper::ucx() {
  Lock lock(ucx_mutex_);
  if (no_ucx_) return *no_ucx_;
  auto opened = Ucx::open(*options_.ucx);
  if (!opened) no_ucx_ = opened.error();
  return opened;
}

Fetcher::Self Keeper::self() {
  Fetcher::Self self{host_, processes_, options_.key, arena_};
  if (options_.ucx) self.ucx = [this] { return ucx(); };
  self.nccl = options_.nccl;
  return self;
}

/// Answers another shim, which asks whether it can fetch through UCX.
Result<void> Keeper::answer_ucx(Peer& peer, std::string_view request) {
  const auto opened =
      options_.ucx
          ? ucx()
          : Result<std::shared_ptr<const Ucx>>(Error("it is not to be used where the state is"));
  if (!opened)
    return peer.channel.send(kRefusedOp, ByteWriter().text(opened.error().message()).take());
  peer.link.reset();
  auto link = UcxLink::accept(*opened, peer.channel, request);
  if (!link) return link.error();
  peer.link = std::move(*link);
  return {};
}

/// Sends another shim bytes of this rank's state.
Result<void> Keeper::serve_read(Peer& peer, std::string_view body) {
  const Memory memory = wanted_memory(body);
  pid_t pid = 0;
  std::shared_ptr<DeviceProxy> proxy;
  {
    Lock lock(mutex_);
    if (program_ != nullptr) {
      pid = program_->pid;
      proxy = program_->proxy;
    }
  }
  if ((memory == Memory::program && pid == 0) || (is_on_gpu(memory) && proxy == nullptr))
    return peer.channel.send(
        kRefusedOp,
        ByteWriter()
            .text(
                memory == Memory::program_device
                    ? "the program that had this in GPU memory of its own is gone, and the state with it"
                    : "no program trains here whose memory could be read")
            .take());
  const Sink source = memory == Memory::program ? Sink::program(pid)
                      : is_on_gpu(memory)       ? Sink::device(*proxy)
                                                : Sink::arena(*arena_);
  return serve_bytes(
      peer.channel, body, source, [&](const Run& run) { return may_read(run, memory); },
      peer.link.get());
}

bool Keeper::may_read(const Run& run, Memory memory) const {
  Lock lock(mutex_);
  return may_read_now(run, memory) || (memory == Memory::arena && snapshots_.has(run));
}

/// Returns whether the run is part of the committed generation's state.
bool Keeper::may_read_now(const Run& run, Memory memory) const {
  return state_.covers(run, memory);
}

double Keeper::step_age_s() const {
  Lock lock(mutex_);
  const std::uint64_t passed_ns =
      program_ != nullptr ? store_.page().passed_ns.load(std::memory_order_relaxed) : 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  // The value is not trusted: the program can write anything there.
  if (passed_ns == 0 ||
      passed_ns > static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count()))
    return 0;
  return std::chrono::duration<double>(now - std::chrono::nanoseconds(passed_ns)).count();
}

Status Keeper::status() const {
  Lock lock(mutex_);
  Status status;
  status.generation = state_.generation();
  status.prepared = staged_ != nullptr ? staged_->prepare.generation : 0;
  status.has_program = program_ != nullptr;
  status.has_waiting =
      std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer->is_waiting; });
  status.is_moved = staged_ != nullptr && staged_->is_moved;
  status.is_quiesced = program_ != nullptr && program_->is_quiesced;
  status.stays = program_ != nullptr && program_->stays != Stays::no;
  status.step = program_ != nullptr && !program_->is_quiesced ? store_.page().step.load()
                : program_ != nullptr                         ? program_->step
                                                              : state_.step();
  if (staged_ != nullptr) status.progress = staged_->progress;
  status.endpoint = {host_, options_.unix_socket, tcp_, program_ != nullptr ? program_->pid : 0,
                     processes_};
  return status;
}

}  // namespace swell::runtime
