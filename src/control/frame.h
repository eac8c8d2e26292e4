// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "control/messages.h"
#include "core/result.h"

/// How messages travel: docs/protocol.md, "Frames".
namespace swell::control {

/// The body with its length before it: 4 bytes, big-endian.
std::string framed(std::string_view body);

/// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  void append(std::string_view bytes) { bytes_.append(bytes); }
  /// The next frame's body, nothing while it is not all there, or an error for one that is empty or
  /// above the cap; then the stream is of no more use.
  Result<std::optional<std::string>> next();

 private:
  std::size_t max_bytes_;
  std::string bytes_;
};

/// The last frame to a connection whose place a newcomer took before it had said a good message,
/// in clear text: whoever it is may connect again.
constexpr std::string_view kCrowdedOut = "crowded-out";

enum class Side { client, server };

/// The first frame of a connection, from the server, in clear text.
std::string greeting(const std::string& nonce);
Result<std::string> nonce_from(std::string_view greeting);
/// 128 random bits as hexadecimal digits.
Result<std::string> new_nonce();

/// One connection's protection against frames that were replayed, moved from another connection or
/// sent back to where they came from. Each side has one.
class Seal {
 public:
  Seal(Side own, std::string nonce) : own_(own), nonce_(std::move(nonce)) {}
  /// The payload of the next credential to send.
  std::string wrap(const Message& message);
  /// The message in a credential's payload, not read yet. The error says what is wrong with what
  /// protects it: nothing more of the connection can be trusted.
  Result<Json> open(std::string_view payload);
  /// The same, read. The error says what is wrong with it.
  Result<Message> unwrap(std::string_view payload);

 private:
  Side own_;
  std::string nonce_;
  std::int64_t sent_ = 0;
  std::int64_t received_ = 0;
};

}  // namespace swell::control
