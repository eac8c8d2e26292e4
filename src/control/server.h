// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "control/messages.h"
#include "control/socket.h"
#include "core/result.h"

namespace swell::control {

using ConnectionId = std::uint64_t;

/// Accepts authenticated connections and passes messages, on threads of its own: neither a slow or
/// hostile peer nor a slow munged ever blocks the caller. Used by the controller (agents connect)
/// and by an agent (its workers connect).
///
/// Every frame is a munge credential that holds one message, the connection's nonce and a rising
/// sequence number, so that nothing can be replayed or moved to another connection. A peer that
/// sends a frame above the size cap or no first message, or whose user has too many connections, is
/// told why if possible, and its connection is closed. A later message in a good frame that cannot
/// be read, such as a number out of bounds, is dropped, and the connection stays.
///
/// Thread-safe. Destroying it closes every connection and joins its threads.
class Server {
 public:
  struct Options {
    std::string address = "127.0.0.1";  ///< numeric or a host name; never a wildcard by default
    PortRange ports;                    ///< the server listens at a free one of these
    std::string munge_socket;           ///< empty: munge's default
    std::function<bool(uid_t)>
        allow;  ///< returns whether a user's credentials are accepted; empty: all are
    std::size_t max_frame_bytes = 64 * 1024;
    int max_connections = 20000;  ///< connections that are closing are dropped first
    int max_connections_per_user = 2000;
    /// When full, a newcomer replaces the oldest connection of the address that has most.
    int max_unauthenticated = 256;
    int max_unauthenticated_per_address = 64;  ///< the oldest of the address is dropped
    /// Maximum events of one user in one take(). The others wait, and no more is read from that
    /// user's connections meanwhile. 0: no limit.
    int max_taken_of_user = 0;
    double first_message_s = 10;  ///< time a new connection has for its first good message
    /// CPU time as shares of a core: for all peers without a good message together, and for the
    /// connections of each user; 0: no limit. Beyond its share, new connections wait in the kernel,
    /// and messages wait unread.
    double strangers_share = 0.04;
    double user_share = 0;
    double saved_up_s = 0.5;  ///< limit of CPU time saved while a share is not used up
    std::function<void(const std::string&)>
        log;  ///< refusals and faults, one line each; rate-limited

    /// Lowers the limits on connections, so that the server takes at most half of the files that
    /// slurmctld may open, and one user, or all peers without a good message, half of these.
    void leave_files(std::uint64_t max_files);
  };

  /// Event of a connection; take() returns them in order.
  struct Event {
    enum class Kind { message, dropped, closed } kind = Kind::closed;
    ConnectionId connection = 0;
    uid_t uid = static_cast<uid_t>(-1);
    std::string peer;  ///< address, for logs
    Message message;   ///< the message; if dropped, a Refused that says why
    std::string type;  ///< if dropped: the type that the message names
  };

  /// Starts to listen. Calls `wake` from another thread whenever take() has something new; `wake`
  /// must not block and must not call back into the server.
  static Result<std::unique_ptr<Server>> start(Options options, std::function<void()> wake);
  virtual ~Server() = default;

  virtual std::uint16_t port() const = 0;
  /// Returns the events since the last call, within max_taken_of_user. A connection's first event
  /// is its first authenticated message.
  virtual std::vector<Event> take() = 0;
  /// Queues a message that only the peer's user can read. Ignores unknown connections.
  virtual void send(ConnectionId connection, Message message) = 0;
  /// Closes the connection once its queued messages are sent, or after 2 s. No closed event
  /// follows.
  virtual void close(ConnectionId connection) = 0;
};

}  // namespace swell::control
