// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "control/frame.h"
#include "control/server.h"
#include "control/socket.h"

namespace swell::control {

using Clock = std::chrono::steady_clock;

/// State of one connection in the server's loop. At most one of its frames is at munge at a time,
/// and nothing is read meanwhile: a peer that floods waits in its own socket.
struct Connection {
  Connection(ConnectionId number, Fd socket, const std::string& nonce, std::size_t max_frame_bytes)
      : id(number),
        fd(std::move(socket)),
        peer(peer_name(fd.get())),
        seal(Side::server, nonce),
        reader(max_frame_bytes) {}

  const ConnectionId id;
  Fd fd;
  const std::string peer;
  const std::string address = peer.substr(0, peer.rfind(':'));
  Seal seal;
  FrameReader reader;
  std::string out;  ///< to be written
  const Clock::time_point since = Clock::now();

  uid_t uid = static_cast<uid_t>(-1);
  bool authenticated = false;
  bool opening = false;     ///< a frame of it is at munge
  bool waits = false;       ///< for its party to have CPU time; nothing is read meanwhile
  double counted_s = 0;     ///< CPU time that was counted for the frame at munge beforehand
  std::size_t sealing = 0;  ///< messages at munge
  std::size_t sealing_bytes = 0;
  bool input_ended = false;
  bool output_broken = false;
  bool shut = false;    ///< all has been written, and the peer knows that nothing follows
  bool silent = false;  ///< no closed event, as the caller closed it
  std::optional<Clock::time_point> close_by;

  std::uint64_t take_number = 0;  ///< which take() its untaken events wait for
  int untaken = 0;

  /// Reads what is there, once. False: nothing more will come.
  bool read_some();
  /// Writes as much as goes without waiting. False: the peer does not read any more.
  bool flush();
  /// Returns the number of bytes that wait to be sent.
  std::size_t queued_bytes() const { return out.size() + sealing_bytes; }
};

}  // namespace swell::control
