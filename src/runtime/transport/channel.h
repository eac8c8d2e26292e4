// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "core/result.h"

namespace swell::runtime {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

/// A message: its kind, its body, and the file descriptor that was passed with it, if any.
struct Message {
  std::uint16_t op = 0;
  std::string body;
  Descriptor fd;
};

/// One end of a connection between a program, its shim, another shim and the coordinator: a Unix
/// socket whose peer belongs to the same user, or a TCP connection whose peer has proved that it
/// holds the job's key. Messages are framed; lengths from the peer are checked against kMaxBody
/// before memory is allocated. One thread sends and one receives.
class Channel {
 public:
  static constexpr std::uint32_t kMaxBody = 64u << 20;

  Channel() = default;
  explicit Channel(Descriptor fd) noexcept : fd_(std::move(fd)) {}

  /// Connects to `path`. Refuses a socket on which another user listens.
  static Result<Channel> connect_unix(const std::string& path);
  /// Connects to "address:port" (numeric). Refuses a peer that does not prove that it holds `key`.
  /// If the other side closes the connection before either side has proved the key, tries again
  /// until the deadline: strangers may have taken all places.
  static Result<Channel> connect_tcp(const std::string& address, std::string_view key,
                                     Deadline deadline);

  /// Sends a message. `fd`: a descriptor to pass, on Unix sockets only; -1: none.
  Result<void> send(std::uint16_t op, std::string_view body, int fd = -1);
  Result<Message> receive(Deadline deadline = Deadline::max());
  /// Sends bytes outside of any frame, after a message that announced how many.
  Result<void> send_bytes(const void* bytes, std::size_t count);
  Result<void> receive_bytes(void* bytes, std::size_t count, Deadline deadline = Deadline::max());
  /// Ends both directions; a thread that waits in receive() returns with an error.
  void shut() noexcept;
  /// Asks the system whether the other side has closed the connection.
  bool has_left() const noexcept;
  /// Returns whether the other side has closed the connection, or sent something that is not
  /// received yet.
  bool has_news() const noexcept;

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  Descriptor fd_;
};

/// Listens on a Unix socket at `path`. Its folder is created, or must belong to this user only
/// (mode 0700).
Result<Descriptor> listen_unix(const std::string& path);
/// Listens on a numeric address, at a port that the system chooses.
Result<Descriptor> listen_tcp(const std::string& address);
/// Returns the "address:port" on which a socket listens.
std::string address_of(int fd);

/// Checks that a process of this user is at the other end of a Unix socket.
Result<Channel> check_unix_peer(Descriptor fd);

/// The listening side's part of the proof that both ends of a TCP connection hold the job's key. It
/// never blocks.
class PeerProof {
 public:
  /// Sends the random bytes that the peer must answer.
  static Result<PeerProof> begin(Descriptor fd);
  /// Reads the bytes that have arrived. Returns true when both sides have proved that they hold
  /// `key`, and false while more bytes must arrive. The error says why the proof failed.
  Result<bool> read(std::string_view key);
  int fd() const noexcept { return channel_.fd(); }
  /// Returns the proved connection. REQUIRES: read() has returned true.
  Channel channel() { return std::move(channel_); }

 private:
  PeerProof(Channel channel, std::string nonce)
      : channel_(std::move(channel)), nonce_(std::move(nonce)) {}
  Channel channel_;
  std::string nonce_;  ///< random bytes of this side
  std::string got_;
};

/// Returns the numeric address of the other side, without its port.
std::string peer_address(int fd);

/// Returns the process at the other end of a Unix socket.
pid_t peer_pid(int fd) noexcept;

}  // namespace swell::runtime
