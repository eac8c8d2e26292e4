// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace swell::runtime {

static_assert(std::endian::native == std::endian::little,
              "messages are written as memory has them: little-endian machines alone");

/// Writes a message's body: numbers as they are, text and lists after their length.
class Writer {
 public:
  template <typename Number>
  Writer& put(Number value) {
    static_assert(std::is_arithmetic_v<Number> || std::is_enum_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(std::string_view value) {
    put(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  /// What was written; the writer is empty afterwards.
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads a message's body. What is not there reads as 0 or empty and makes good() false for ever:
/// callers read all, then ask.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename Number>
  Number get() {
    Number value{};
    if (rest_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string text(std::size_t max_bytes) {
    const auto size = get<std::uint32_t>();
    if (size > max_bytes || size > rest_.size()) {
      fail();
      return {};
    }
    std::string value(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return value;
  }
  /// The length of a list whose items take at least `item_bytes` each: never more than the message
  /// can hold.
  std::uint32_t count(std::size_t item_bytes) {
    const auto size = get<std::uint32_t>();
    if (size <= rest_.size() / item_bytes) return size;
    fail();
    return 0;
  }
  void fail() {
    good_ = false;
    rest_ = {};
  }
  bool good() const noexcept { return good_; }
  /// Good, and nothing is left over.
  bool done() const noexcept { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace swell::runtime
