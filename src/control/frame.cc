// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/frame.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <sys/random.h>

namespace swell::control {

namespace {

constexpr std::string_view kGreetingWord = "SWELL1 ";
constexpr std::size_t kNonceBytes = 16;

const char* name(Side side) { return side == Side::client ? "client" : "server"; }
Side other(Side side) { return side == Side::client ? Side::server : Side::client; }

}  // namespace

std::string framed(std::string_view body) {
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string frame;
  frame.reserve(4 + body.size());
  for (int shift = 24; shift >= 0; shift -= 8)
    frame.push_back(static_cast<char>((size >> shift) & 0xff));
  return frame.append(body);
}

Result<std::optional<std::string>> FrameReader::next() {
  if (bytes_.size() < 4) return std::optional<std::string>();
  std::size_t size = 0;
  for (int i = 0; i < 4; ++i)
    size = size << 8 | static_cast<unsigned char>(bytes_[static_cast<std::size_t>(i)]);
  if (size == 0 || size > max_bytes_)
    return Error(fmt::format("a frame of {} bytes; 1 to {} are allowed", size, max_bytes_));
  if (bytes_.size() < 4 + size) return std::optional<std::string>();
  std::string body = bytes_.substr(4, size);
  bytes_.erase(0, 4 + size);
  return std::optional<std::string>(std::move(body));
}

std::string greeting(const std::string& nonce) { return std::string(kGreetingWord) + nonce; }

Result<std::string> nonce_from(std::string_view text) {
  if (!text.starts_with(kGreetingWord) || text.size() != kGreetingWord.size() + 2 * kNonceBytes)
    return Error("the other side is not a Swell server");
  return std::string(text.substr(kGreetingWord.size()));
}

Result<std::string> new_nonce() {
  std::array<unsigned char, kNonceBytes> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Error(fmt::format("no random bytes: {}", std::strerror(errno)));
  std::string text;
  constexpr std::string_view digits = "0123456789abcdef";
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string Seal::wrap(const Message& message) {
  return Json::object(
             {{"conn", nonce_}, {"from", name(own_)}, {"seq", ++sent_}, {"m", to_json(message)}})
      .dump();
}

Result<Json> Seal::open(std::string_view payload) {
  const Result<Json> json = Json::parse(payload);
  if (!json) return json.error().while_doing("the payload is not JSON");
  const Result<std::string> nonce = json->string_at("conn");
  if (!nonce || *nonce != nonce_) return Error("the frame was made for another connection");
  const Result<std::string> from = json->string_at("from");
  if (!from || *from != name(other(own_))) return Error("the frame was not made by the other side");
  const auto number = json->integer_at("seq", 1, std::numeric_limits<std::int64_t>::max());
  if (!number) return number.error();
  if (*number <= received_)
    return Error(fmt::format("frame number {} after {}: numbers must rise", *number, received_));
  received_ = *number;
  return json->at("m");
}

Result<Message> Seal::unwrap(std::string_view payload) {
  const Result<Json> message = open(payload);
  if (!message) return message.error();
  return message_from(*message);
}

}  // namespace swell::control
