// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>

#include "control/messages.h"
#include "core/result.h"

namespace swell::control {

/// One authenticated connection to a Server: an agent's to the controller, a worker's to its agent.
/// Not thread-safe, but cheap to drive from a poll() loop.
class Client {
 public:
  struct Options {
    std::string host;
    std::uint16_t port = 0;
    std::string munge_socket;          ///< empty: munge's default
    std::function<bool(uid_t)> trust;  ///< whether the server may run as a user; empty: never
    std::size_t max_frame_bytes = 64 * 1024;
    /// Called with the reason when a message in a good frame cannot be read; the message is
    /// dropped. Empty: such a message ends the connection.
    std::function<void(const Error&)> dropped = nullptr;
  };

  /// Connects and reads the server's nonce. The error names host, port and what failed.
  static Result<std::unique_ptr<Client>> connect(Options options,
                                                 std::chrono::milliseconds timeout);
  virtual ~Client() = default;

  /// Returns the socket, to be polled for reading.
  virtual int fd() const = 0;
  /// Returns the local address of the connection, at which the server's network reaches this host.
  virtual std::string local_address() const = 0;
  virtual Result<void> send(const Message& message) = 0;
  /// Returns the next message, nothing after `timeout`, or an error if the connection has failed.
  virtual Result<std::optional<Message>> receive(std::chrono::milliseconds timeout) = 0;
  /// Returns whether the server closed the connection to make room for others before it had read a
  /// good message. Does not wait. REQUIRES: send() or receive() has failed.
  virtual bool is_crowded_out() = 0;
};

}  // namespace swell::control
