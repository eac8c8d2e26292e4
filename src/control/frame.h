// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "control/messages.h"
#include "core/result.h"

/// Frames, in which messages are sent: docs/protocol.md, "Frames".
namespace swell::control {

/// Returns the body after its length in 4 bytes, big-endian.
std::string framed(std::string_view body);

/// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  void append(std::string_view bytes) { bytes_.append(bytes); }
  /// Returns the next frame's body, nothing while it is incomplete, or an error if it is empty or
  /// above the cap; after an error the stream cannot be read any further.
  Result<std::optional<std::string>> next();

 private:
  std::size_t max_bytes_;
  std::string bytes_;
};

/// Last frame sent on a connection that is closed to make room for another, since its peer has sent
/// no good message yet. Clear text: the peer may connect again.
constexpr std::string_view kCrowdedOut = "crowded-out";

enum class Side { client, server };

/// Returns the first frame of a connection, which the server sends in clear text.
std::string greeting(const std::string& nonce);
Result<std::string> nonce_from(std::string_view greeting);
/// Returns 128 random bits as hexadecimal digits.
Result<std::string> new_nonce();

/// Protects one connection against frames that were replayed, moved from another connection or
/// sent back to their sender. Each side has one.
class Seal {
 public:
  Seal(Side own, std::string nonce) : own_(own), nonce_(std::move(nonce)) {}
  /// Returns the payload of the next credential to send.
  std::string wrap(const Message& message);
  /// Returns the message in a credential's payload as JSON. An error means that the protection has
  /// failed: nothing more from this connection can be trusted.
  Result<Json> open(std::string_view payload);
  /// Does the same as open(), and parses the message. The error names the fault in the message.
  Result<Message> unwrap(std::string_view payload);

 private:
  Side own_;
  std::string nonce_;
  std::int64_t sent_ = 0;
  std::int64_t received_ = 0;
};

}  // namespace swell::control
