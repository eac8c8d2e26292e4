// SPDX-License-Identifier: GPL-2.0-or-later
// Any bytes as a stream of frames, as the payload of a credential, and as one message: what is read
// is written and reads back the same; no frame is taken twice, from the reader's own side, or from
// another connection.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "control/frame.h"
#include "control/messages.h"

namespace {

using namespace swell::control;

constexpr std::size_t kMaxFrameBytes = 2048;
constexpr const char* nonce = "0123456789abcdef0123456789abcdef";

void check(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::string> frames_of(std::string_view stream, std::size_t piece) {
  FrameReader reader(kMaxFrameBytes);
  std::vector<std::string> frames;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    reader.append(stream.substr(at, piece));
    while (true) {
      const auto frame = reader.next();
      if (!frame) return frames;  // the stream is of no more use
      if (!*frame) break;
      check(!(*frame)->empty() && (*frame)->size() <= kMaxFrameBytes);
      frames.push_back(**frame);
    }
  }
  return frames;
}

void reads_back(const Message& message) {
  const swell::Json json = to_json(message);
  const auto again = message_from(json);
  check(again.ok() && again->index() == message.index() && to_json(*again).dump() == json.dump());
}

void as_payload(std::string_view text) {
  Seal server(Side::server, nonce);
  const auto message = server.unwrap(text);
  if (!message) return;
  check(!server.unwrap(text).ok());                                                  // replayed
  check(!Seal(Side::client, nonce).unwrap(text).ok());                               // sent back
  check(!Seal(Side::server, "fedcba9876543210fedcba9876543210").unwrap(text).ok());  // moved
  reads_back(*message);
  Seal client(Side::client, nonce), other(Side::server, nonce);
  const auto through = other.unwrap(client.wrap(*message));
  check(through.ok() && to_json(*through).dump() == to_json(*message).dump());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> frames = frames_of(text, std::max<std::size_t>(text.size(), 1));
  check(frames_of(text, 1) == frames && frames_of(text, 7) == frames);
  std::string stream;
  for (const std::string& frame : frames) {
    as_payload(frame);
    stream += framed(frame);
  }
  check(text.starts_with(stream));
  as_payload(text);
  if (const auto json = swell::Json::parse(text))
    if (const auto message = message_from(*json)) reads_back(*message);
  if (const auto own = nonce_from(text)) check(greeting(*own) == text);
  return 0;
}
