// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/mutex.h"
#include "control/connection.h"
#include "control/log_limit.h"
#include "control/munge_thread.h"
#include "control/server.h"
#include "control/thread_time.h"
#include "control/wake_fd.h"
#include "core/cpu_share.h"
#include "core/places.h"

namespace swell::control {

/// Data shared by the server's caller and its loop; `mutex` guards the marked members.
struct Mailbox {
  struct Order {
    ConnectionId connection = 0;
    std::optional<Message> message;  ///< nothing: closes the connection
  };
  struct Posted {
    Server::Event event;
    std::size_t bytes = 0;  ///< of its frame
  };
  struct Untaken {
    std::size_t bytes = 0;
    int events = 0;
  };
  Mutex mutex;
  std::deque<Order> orders SWELL_GUARDED_BY(mutex);
  std::vector<Posted> events SWELL_GUARDED_BY(mutex);  // those that take() has not returned
  std::size_t event_bytes SWELL_GUARDED_BY(mutex) = 0;
  std::map<uid_t, Untaken> untaken_of SWELL_GUARDED_BY(mutex);  // events and bytes by user
  std::uint64_t take_number SWELL_GUARDED_BY(mutex) = 0;

  /// Adds an event to those that wait.
  void post(Posted posted) SWELL_REQUIRES(mutex) {
    event_bytes += posted.bytes;
    Untaken& of_user = untaken_of[posted.event.uid];
    of_user.bytes += posted.bytes;
    ++of_user.events;
    events.push_back(std::move(posted));
  }
  std::atomic<bool> stop = false;
  WakeFd wake;  ///< wakes the loop
};

/// The server's IO thread: sockets, limits, and the order of messages. It waits for nothing but its
/// sockets; munge has a thread of its own.
class ServerLoop {
 public:
  ServerLoop(Server::Options options, std::function<void()> wake, Descriptor listener,
             Descriptor epoll, std::unique_ptr<MungeThread> munge, Mailbox& mailbox);
  void run() noexcept;

 private:
  using Connections = std::unordered_map<ConnectionId, std::unique_ptr<Connection>>;
  /// Peers that share CPU time: the connections of one user, or all without a good message.
  struct Party {
    CpuShare share;
    std::deque<ConnectionId> waiting;  ///< connections whose next frame waits for CPU time
  };
  static constexpr uid_t kStrangers = static_cast<uid_t>(-1);

  void turn();
  static uid_t party_of(const Connection& connection) {
    return connection.authenticated ? connection.uid : kStrangers;
  }
  Party& party(uid_t whose);
  /// Charges a party with the CPU time since the last lap and with that of munge's thread.
  void count(uid_t whose, double at_munge_s = 0);
  /// Resumes connections whose party has CPU time again.
  void resume_waiting();
  int until_next_deadline_ms();
  void handle_orders();
  void handle_munge();
  void handle_deadlines();
  void accept_some();
  void ready(Connection& connection, std::uint32_t events);

  void next_frame(Connection& connection);
  void opened(Connection& connection, MungeThread::Done& done);
  void queue(Connection& connection, const Message& message);
  void refuse(Connection& connection, const std::string& reason, bool tell);
  void begin_close(Connection& connection);
  /// Decides what a connection waits for next, or drops it if it has ended. Call it last in a turn:
  /// the connection may be gone afterwards.
  void settle(Connection& connection);
  void drop(Connection& connection);
  /// Closes silent connections until one more from this address may come, so that no address takes
  /// all places.
  void make_room_for(const std::string& address);
  /// Drops the connection that has been closing for longest, even if its peer has not read why.
  void drop_oldest_closing();
  /// Protects the place of a connection whose first frame munge is decoding; protects at most half
  /// of all places.
  void shelter(const Connection& connection);
  /// `bytes`: size of the frame in which the event came.
  void post(Server::Event event, std::size_t bytes);

  const Server::Options options_;
  const std::function<void()> wake_;
  Descriptor listener_;
  Descriptor epoll_;
  std::unique_ptr<MungeThread> munge_;
  Mailbox& mailbox_;
  LogLimit log_;

  Connections connections_;
  Places unauthenticated_;
  /// Connections whose first frame munge is decoding: they keep their places until it is read.
  std::set<ConnectionId> sheltered_;
  /// Connections that are closing, oldest first; some may be gone already.
  std::deque<std::pair<Clock::time_point, ConnectionId>> closing_;
  std::set<ConnectionId> paused_;  ///< not read until the caller takes events
  std::map<uid_t, int> per_user_;
  std::map<uid_t, Party> parties_;
  std::set<uid_t> waiting_parties_;
  ThreadLaps laps_;
  double frame_s_ = 1e-4;     ///< recent CPU time of munge's thread for a frame
  ConnectionId last_id_ = 2;  ///< the first ones are the loop's own descriptors
  std::optional<Clock::time_point> accept_again_;
};

}  // namespace swell::control
