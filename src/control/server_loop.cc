// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/server_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>

#include "base/mutex.h"

namespace swell::control {

namespace {

// Ids of descriptors that are not connections.
constexpr std::uint64_t kListenerId = 0, mailbox_id = 1, munge_id = 2;

/// Start of every munge credential.
constexpr std::string_view kCredential = "MUNGE:";
constexpr std::size_t kMaxUntaken = 65536;  // events of all connections
constexpr int kMaxUntakenOfOne = 256;
/// Limits of the untaken events' total frame size: for all users, and for one user.
constexpr std::size_t kMaxUntakenBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxUntakenBytesOfUser = std::size_t{4} << 20;
constexpr std::size_t kQueueFrames = 16;  // frames of maximum size that may wait for a slow reader
constexpr auto kCloseTime = std::chrono::seconds(2);
/// Connections survive an absence of munged for this long.
constexpr auto kMungeOutage = std::chrono::seconds(60);

/// Number of users without connections whose used CPU time is remembered.
constexpr std::size_t kMaxIdleParties = 64;

double seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

bool watch(int epoll, int operation, int fd, std::uint64_t id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace

ServerLoop::ServerLoop(Server::Options options, std::function<void()> wake, Descriptor listener,
                       Descriptor epoll, std::unique_ptr<MungeThread> munge, Mailbox& mailbox)
    : options_(std::move(options)),
      wake_(std::move(wake)),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      munge_(std::move(munge)),
      mailbox_(mailbox),
      log_(options_.log),
      unauthenticated_(static_cast<std::size_t>(options_.max_unauthenticated),
                       static_cast<std::size_t>(options_.max_unauthenticated_per_address)) {
  watch(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), kListenerId, EPOLLIN | EPOLLONESHOT);
  watch(epoll_.get(), EPOLL_CTL_ADD, mailbox_.wake.fd(), mailbox_id, EPOLLIN);
  watch(epoll_.get(), EPOLL_CTL_ADD, munge_->fd(), munge_id, EPOLLIN);
  // Try munge at once. Otherwise a missing munged (Slurm's own auth/slurm needs none) would be
  // noticed only when the first job connects.
  munge_->seal(munge_id, {}, std::nullopt);
  munge_->set_patience(kMungeOutage);
}

void ServerLoop::run() noexcept {
  laps_ = ThreadLaps();  // of this thread
  while (!mailbox_.stop) {
    try {
      turn();
    } catch (...) {  // out of memory, or from a callback: this must not end slurmctld
      try {
        log_("a fault in the control server's loop; it goes on");
      } catch (...) {}
      accept_again_ = Clock::now();  // the fault may have interrupted accepting
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

void ServerLoop::turn() {
  std::array<epoll_event, 64> events;
  const int ready_count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                     until_next_deadline_ms());
  bool is_called = false;
  for (int i = 0; i < ready_count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kListenerId) {
      is_called = true;
    } else if (event.data.u64 == mailbox_id) {
      handle_orders();
    } else if (event.data.u64 == munge_id) {
      handle_munge();
    } else if (const auto found = connections_.find(event.data.u64); found != connections_.end()) {
      const uid_t whose = party_of(*found->second);
      ready(*found->second, event.events);
      count(whose);
    }
  }
  resume_waiting();
  // Handle waiting connections first: a newcomer may replace one that has already sent something.
  if (is_called) accept_some();
  handle_deadlines();
  count(kStrangers);
  if (parties_.size() > per_user_.size() + kMaxIdleParties)
    std::erase_if(parties_, [now_s = seconds(Clock::now())](auto& each) {
      return each.second.waiting.empty() && each.second.share.is_whole(now_s);
    });
}

ServerLoop::Party& ServerLoop::party(uid_t whose) {
  const auto known = parties_.find(whose);
  if (known != parties_.end()) return known->second;
  const double share = whose == kStrangers ? options_.strangers_share : options_.user_share;
  return parties_.emplace(whose, Party{CpuShare(share, options_.saved_up_s), {}}).first->second;
}

void ServerLoop::count(uid_t whose, double at_munge_s) {
  party(whose).share.use(laps_.lap_s() + at_munge_s, seconds(Clock::now()));
}

void ServerLoop::resume_waiting() {
  for (const uid_t whose : std::set<uid_t>(waiting_parties_)) {
    Party& its = party(whose);
    while (!its.waiting.empty() && its.share.wait_s(seconds(Clock::now())) <= 0) {
      const ConnectionId id = its.waiting.front();
      its.waiting.pop_front();
      const auto found = connections_.find(id);
      if (found == connections_.end()) continue;
      found->second->waits = false;
      next_frame(*found->second);
      settle(*found->second);
      count(whose);
    }
    if (its.waiting.empty()) waiting_parties_.erase(whose);
  }
}

int ServerLoop::until_next_deadline_ms() {
  const auto now = Clock::now();
  auto next = now + std::chrono::hours(1);
  for (const uid_t whose : waiting_parties_)
    next = std::min(
        next, now + std::chrono::duration_cast<Clock::duration>(
                        std::chrono::duration<double>(party(whose).share.wait_s(seconds(now)))));
  if (accept_again_) next = std::min(next, *accept_again_);
  if (const auto oldest = unauthenticated_.oldest())
    next = std::min(next, connections_.at(*oldest)->since +
                              std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(options_.first_message_s)));
  if (!closing_.empty()) next = std::min(next, closing_.front().first);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void ServerLoop::handle_orders() {
  mailbox_.wake.clear();
  std::deque<Mailbox::Order> orders;
  {
    const Lock lock(mailbox_.mutex);
    orders = std::exchange(mailbox_.orders, {});
  }
  for (const Mailbox::Order& order : orders) {
    const auto found = connections_.find(order.connection);
    if (found == connections_.end() || found->second->close_by) continue;
    Connection& connection = *found->second;
    const uid_t whose = party_of(connection);
    if (order.message) {
      queue(connection, *order.message);
    } else {
      connection.silent = true;
      begin_close(connection);
    }
    settle(connection);
    count(whose);
  }
  for (const ConnectionId id : std::exchange(paused_, {}))
    if (const auto found = connections_.find(id); found != connections_.end()) {
      const uid_t whose = party_of(*found->second);
      next_frame(*found->second);
      settle(*found->second);
      count(whose);
    }
}

void ServerLoop::handle_munge() {
  for (MungeThread::Done& done : munge_->take()) {
    if (done.ticket == munge_id && done.error)
      log_(fmt::format("nobody can connect yet: {}", done.error->message()));
    const auto found = connections_.find(done.ticket);
    if (done.opened) frame_s_ += (done.cpu_s - frame_s_) / 16;
    if (found == connections_.end()) {
      count(kStrangers, done.opened ? done.cpu_s - frame_s_ : done.cpu_s);
      continue;
    }
    Connection& connection = *found->second;
    const uid_t before = party_of(connection);
    if (done.opened) {
      connection.opening = false;
      party(before).share.use(-connection.counted_s, seconds(Clock::now()));
      opened(connection, done);
      next_frame(connection);
    } else {
      if (--connection.sealing == 0) connection.sealing_bytes = 0;
      if (done.error) refuse(connection, done.error->message(), false);
      else if (done.data.size() > options_.max_frame_bytes)
        refuse(connection,
               fmt::format("a message to it became a frame of {} bytes; {} are allowed",
                           done.data.size(), options_.max_frame_bytes),
               false);
      else connection.out += framed(done.data);
    }
    // Charge strangers if the user has no CPU time left: new connections must not bring any.
    const uid_t its = party_of(connection);
    const bool pays = its == before || party(its).share.wait_s(seconds(Clock::now())) <= 0;
    settle(connection);
    count(pays ? its : before, done.cpu_s);
  }
}

void ServerLoop::handle_deadlines() {
  const auto now = Clock::now();
  const auto patience = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options_.first_message_s));
  while (const auto id = unauthenticated_.oldest()) {
    Connection& oldest = *connections_.at(*id);
    if (oldest.since + patience > now) break;
    refuse(oldest, fmt::format("no good message within {:g} s", options_.first_message_s), false);
    settle(oldest);
  }
  while (!closing_.empty() && closing_.front().first <= now) {
    const auto found = connections_.find(closing_.front().second);
    closing_.pop_front();
    if (found != connections_.end()) drop(*found->second);
  }
  if (accept_again_ && *accept_again_ <= now) {
    accept_again_.reset();
    watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), kListenerId, EPOLLIN | EPOLLONESHOT);
  }
}

void ServerLoop::accept_some() {
  count(kStrangers);
  const auto now = Clock::now();
  if (const double wait_s = party(kStrangers).share.wait_s(seconds(now)); wait_s > 0) {
    accept_again_ =
        now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait_s));
    return;
  }
  for (int i = 0; i < 64; ++i) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      if (errno != EAGAIN) {
        log_(fmt::format("accepting a connection: {}", std::strerror(errno)));
        accept_again_ = Clock::now() + std::chrono::milliseconds(100);
        return;
      }
      break;
    }
    if (connections_.size() >= static_cast<std::size_t>(options_.max_connections))
      drop_oldest_closing();
    if (connections_.size() >= static_cast<std::size_t>(options_.max_connections)) {
      log_(fmt::format("refused {}: {} connections are open already", peer_name(fd.get()),
                       connections_.size()));
      continue;
    }
    const Result<std::string> nonce = new_nonce();
    if (!nonce) {
      log_(nonce.error().message());
      continue;
    }
    const ConnectionId id = ++last_id_;
    auto made = std::make_unique<Connection>(id, std::move(fd), *nonce, options_.max_frame_bytes);
    Connection& connection = *made;
    make_room_for(connection.address);
    connections_.emplace(id, std::move(made));
    unauthenticated_.take(id, connection.address);
    if (!watch(epoll_.get(), EPOLL_CTL_ADD, connection.fd.get(), id, EPOLLONESHOT)) {
      drop(connection);
      continue;
    }
    connection.out = framed(greeting(*nonce));
    settle(connection);
  }
  watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), kListenerId, EPOLLIN | EPOLLONESHOT);
}

void ServerLoop::drop_oldest_closing() {
  while (!closing_.empty()) {
    const auto found = connections_.find(closing_.front().second);
    closing_.pop_front();
    if (found == connections_.end()) continue;
    drop(*found->second);
    return;
  }
}

void ServerLoop::make_room_for(const std::string& address) {
  const auto oldest = unauthenticated_.in_the_way_of(address);
  if (!oldest) return;
  Connection& connection = *connections_.at(*oldest);
  const std::string last = framed(kCrowdedOut);
  [[maybe_unused]] const auto sent =
      ::send(connection.fd.get(), last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  refuse(connection, "a newer connection needs its place, and it has sent no good message yet",
         false);
  settle(connection);
}

void ServerLoop::shelter(const Connection& connection) {
  if (2 * sheltered_.size() >= static_cast<std::size_t>(options_.max_unauthenticated)) return;
  sheltered_.insert(connection.id);
  unauthenticated_.leave(connection.id);
}

void ServerLoop::ready(Connection& connection, std::uint32_t events) {
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) connection.output_broken = true;
  if (!connection.opening && !connection.input_ended &&
      (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
    connection.input_ended = !connection.read_some();
    next_frame(connection);
  }
  settle(connection);
}

void ServerLoop::next_frame(Connection& connection) {
  if (connection.opening || connection.close_by || connection.waits) return;
  {
    const Lock lock(mailbox_.mutex);
    if (connection.take_number != mailbox_.take_number) connection.untaken = 0;
    connection.take_number = mailbox_.take_number;
    const auto found = mailbox_.untaken_of.find(connection.uid);
    const auto of_user = found != mailbox_.untaken_of.end() ? found->second : Mailbox::Untaken{};
    if (connection.untaken >= kMaxUntakenOfOne || mailbox_.events.size() >= kMaxUntaken ||
        mailbox_.event_bytes >= kMaxUntakenBytes || of_user.bytes >= kMaxUntakenBytesOfUser ||
        (options_.max_taken_of_user > 0 && of_user.events >= options_.max_taken_of_user)) {
      paused_.insert(connection.id);
      return;
    }
  }
  const uid_t whose = party_of(connection);
  if (Party& its = party(whose); its.share.wait_s(seconds(Clock::now())) > 0) {
    connection.waits = true;
    its.waiting.push_back(connection.id);
    waiting_parties_.insert(whose);
    return;
  }
  Result<std::optional<std::string>> frame = connection.reader.next();
  if (!frame) return refuse(connection, frame.error().message(), false);
  if (!*frame) return;
  if (!(*frame)->starts_with(kCredential))
    return refuse(connection, "the frame is not a munge credential", false);
  if (!connection.authenticated) shelter(connection);
  connection.opening = true;
  connection.counted_s = frame_s_;
  party(whose).share.use(frame_s_, seconds(Clock::now()));
  munge_->open(connection.id, std::move(**frame));
}

void ServerLoop::opened(Connection& connection, MungeThread::Done& done) {
  sheltered_.erase(connection.id);
  if (connection.close_by) return;
  if (done.error) return refuse(connection, done.error->message(), false);
  if (connection.authenticated && done.uid != connection.uid)
    return refuse(connection,
                  fmt::format("uid {} on a connection of uid {}", done.uid, connection.uid), false);
  connection.uid = done.uid;
  if (done.data.size() > options_.max_frame_bytes)
    return refuse(connection,
                  fmt::format("a message of {} bytes; {} are allowed", done.data.size(),
                              options_.max_frame_bytes),
                  true);
  const Result<Json> json = connection.seal.open(done.data);
  if (!connection.authenticated && options_.allow && !options_.allow(done.uid))
    return refuse(connection, fmt::format("uid {} is not allowed here", done.uid), true);
  if (!json) return refuse(connection, json.error().message(), true);
  Result<Message> message = message_from(*json);
  if (!connection.authenticated) {
    if (!message) return refuse(connection, message.error().message(), true);
    if (per_user_[done.uid] >= options_.max_connections_per_user)
      return refuse(connection,
                    fmt::format("uid {} has {} connections already", done.uid, per_user_[done.uid]),
                    true);
    connection.authenticated = true;
    ++per_user_[done.uid];
    unauthenticated_.leave(connection.id);
  }
  ++connection.untaken;
  using Kind = Server::Event::Kind;
  const auto type = json->string_at("type");
  post({message ? Kind::message : Kind::dropped, connection.id, connection.uid, connection.peer,
        message ? std::move(*message) : Message(Refused{message.error().message()}),
        message || !type ? std::string() : *type},
       done.data.size());
}

void ServerLoop::queue(Connection& connection, const Message& message) {
  std::string payload = connection.seal.wrap(message);
  ++connection.sealing;
  connection.sealing_bytes += payload.size();
  if (payload.size() > options_.max_frame_bytes)
    return refuse(connection,
                  fmt::format("a message to it has {} bytes; {} are allowed", payload.size(),
                              options_.max_frame_bytes),
                  false);
  if (connection.queued_bytes() > kQueueFrames * options_.max_frame_bytes)
    return refuse(
        connection,
        fmt::format("it reads too slowly: {} bytes wait for it", connection.queued_bytes()), false);
  munge_->seal(connection.id, std::move(payload), connection.uid);
}

void ServerLoop::refuse(Connection& connection, const std::string& reason, bool tell) {
  if (connection.close_by && !tell) {
    connection.output_broken = true;
    return;
  }
  const std::string who =
      connection.uid == static_cast<uid_t>(-1) ? "" : fmt::format(" (uid {})", connection.uid);
  log_(fmt::format("refused {}{}: {}", connection.peer, who, reason));
  if (tell) queue(connection, Refused{reason});
  else connection.output_broken = true;
  begin_close(connection);
}

void ServerLoop::begin_close(Connection& connection) {
  if (!connection.close_by) {
    connection.close_by = Clock::now() + kCloseTime;
    closing_.emplace_back(*connection.close_by, connection.id);
  }
  unauthenticated_.leave(connection.id);
}

void ServerLoop::settle(Connection& connection) {
  if (!connection.output_broken && !connection.flush()) connection.output_broken = true;
  if (connection.output_broken) connection.out.clear();
  const bool all_sent = connection.out.empty() && connection.sealing == 0;
  if (connection.close_by) {
    if (connection.output_broken || (connection.shut && connection.input_ended))
      return drop(connection);
    if (all_sent && !connection.shut) {
      // Closing at once could send a reset, which destroys what the peer has not read yet.
      shutdown(connection.fd.get(), SHUT_WR);
      connection.shut = true;
    }
  }
  const bool paused = connection.waits || paused_.contains(connection.id);
  if (connection.input_ended && !connection.opening && !paused) return drop(connection);
  std::uint32_t events = 0;
  if (!connection.opening && !connection.input_ended && !paused) events |= EPOLLIN;
  if (!connection.out.empty()) events |= EPOLLOUT;
  // epoll reports a broken connection even for an empty set; ONESHOT stops it from repeating this.
  if (events != 0)
    watch(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), connection.id, events | EPOLLONESHOT);
}

void ServerLoop::drop(Connection& connection) {
  const ConnectionId id = connection.id;
  if (connection.authenticated) {
    if (const auto user = per_user_.find(connection.uid);
        user != per_user_.end() && --user->second <= 0)
      per_user_.erase(user);
    if (!connection.silent)
      post({Server::Event::Kind::closed, id, connection.uid, connection.peer, {}}, 0);
  }
  unauthenticated_.leave(id);
  sheltered_.erase(id);
  paused_.erase(id);
  connections_.erase(id);
}

void ServerLoop::post(Server::Event event, std::size_t bytes) {
  {
    const Lock lock(mailbox_.mutex);
    mailbox_.post({std::move(event), bytes});
  }
  if (wake_) wake_();
}

}  // namespace swell::control
