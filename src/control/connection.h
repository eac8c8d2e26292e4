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

/// State of one connection in the server's loop. Munge decodes at most one of its frames at a time,
/// and nothing is read meanwhile, so that a flood only fills the peer's own socket.
struct Connection {
  Connection(ConnectionId number, Descriptor socket, const std::string& nonce,
             std::size_t max_frame_bytes)
      : id(number),
        fd(std::move(socket)),
        peer(peer_name(fd.get())),
        seal(Side::server, nonce),
        reader(max_frame_bytes) {}

  const ConnectionId id;
  Descriptor fd;
  const std::string peer;
  const std::string address = peer.substr(0, peer.rfind(':'));
  Seal seal;
  FrameReader reader;
  std::string out;  ///< to be written
  const Clock::time_point since = Clock::now();

  uid_t uid = static_cast<uid_t>(-1);
  bool authenticated = false;
  bool opening = false;     ///< munge is decoding one of its frames
  bool waits = false;       ///< its party has used up its CPU time; nothing is read meanwhile
  double counted_s = 0;     ///< CPU time counted in advance for the frame that munge decodes
  std::size_t sealing = 0;  ///< messages that munge is encoding
  std::size_t sealing_bytes = 0;
  bool input_ended = false;
  bool output_broken = false;
  bool shut = false;    ///< all has been written, and the peer knows that nothing follows
  bool silent = false;  ///< gives no closed event, since the caller closed it
  std::optional<Clock::time_point> close_by;

  std::uint64_t take_number = 0;  ///< the take() after which `untaken` counts its events
  int untaken = 0;

  /// Reads what has arrived, once. Returns false if the peer will send nothing more.
  bool read_some();
  /// Writes as much as fits without waiting. Returns false if the peer has stopped reading.
  bool flush();
  /// Returns the number of bytes that wait to be sent.
  std::size_t queued_bytes() const { return out.size() + sealing_bytes; }
};

}  // namespace swell::control
