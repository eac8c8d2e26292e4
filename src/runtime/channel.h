// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "runtime/descriptor.h"

namespace swell::runtime {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

/// A message: what it is, its body, and a file descriptor where one was passed.
struct Message {
  std::uint16_t op = 0;
  std::string body;
  Descriptor fd;
};

/// One end of a connection between a program, its shim, another shim and the coordinator: a Unix
/// socket, whose peer is of the same user, or a TCP connection, whose peer has shown that it holds
/// the job's key. Messages are framed; what comes from the peer is checked against kMaxBody before
/// memory is taken for it. One thread sends and one receives.
class Channel {
 public:
  static constexpr std::uint32_t kMaxBody = 64u << 20;

  Channel() = default;
  explicit Channel(Descriptor fd) noexcept : fd_(std::move(fd)) {}

  /// Refused: a socket that another user listens on.
  static Result<Channel> connect_unix(const std::string& path);
  /// "address:port", numeric; `key` as the other side has it. Refused: a peer that does not show
  /// that it holds the key. Tries again until the deadline where the other side closes the
  /// connection before either has shown the key: strangers may have taken the place.
  static Result<Channel> connect_tcp(const std::string& address, std::string_view key,
                                     Deadline deadline);

  /// `fd`: one to pass, Unix sockets alone; -1: none.
  Result<void> send(std::uint16_t op, std::string_view body, int fd = -1);
  Result<Message> receive(Deadline deadline = Deadline::max());
  /// Bytes outside of any frame, after a message that announced how many.
  Result<void> send_bytes(const void* bytes, std::size_t count);
  Result<void> receive_bytes(void* bytes, std::size_t count, Deadline deadline = Deadline::max());
  /// Ends both directions: a thread that waits in receive() returns with an error.
  void shut() noexcept;
  /// Whether the other side has closed the connection, asked of the system.
  bool has_left() const noexcept;
  /// The same, or something has come that is not received yet.
  bool has_news() const noexcept;

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  Descriptor fd_;
};

/// A listening socket at `path`, whose folder is made, or checked to be, ours alone (mode 0700).
Result<Descriptor> listen_unix(const std::string& path);
/// A listening socket on a numeric address and a port of the system's choice.
Result<Descriptor> listen_tcp(const std::string& address);
/// "address:port" that it listens on.
std::string address_of(int fd);

/// Checks that a process of this user is at the other end of a Unix socket.
Result<Channel> check_unix_peer(Descriptor fd);

/// The listening side's part of the proof that both ends of a TCP connection hold the job's key. It
/// never waits.
class PeerProof {
 public:
  /// Sends the random bytes that the peer must answer.
  static Result<PeerProof> begin(Descriptor fd);
  /// Reads what has come. Returns whether the peer has shown that it holds `key`, and has been
  /// shown the same; false: more has to come. The error says why nothing will.
  Result<bool> read(std::string_view key);
  int fd() const noexcept { return channel_.fd(); }
  /// REQUIRES: read() has returned true.
  Channel channel() { return std::move(channel_); }

 private:
  PeerProof(Channel channel, std::string nonce)
      : channel_(std::move(channel)), nonce_(std::move(nonce)) {}
  Channel channel_;
  std::string nonce_;  ///< of this side
  std::string got_;
};

/// The numeric address of the other side, without its port.
std::string peer_address(int fd);

/// The process at the other end of a Unix socket.
pid_t peer_pid(int fd) noexcept;

}  // namespace swell::runtime
