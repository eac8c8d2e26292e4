// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace swell {

static_assert(std::endian::native == std::endian::little,
              "messages are written as memory has them: little-endian machines alone");

/// Writes a message's body: numbers in their fixed size, text and lists after their length.
class ByteWriter {
 public:
  template <typename Number>
  ByteWriter& put(Number value) {
    static_assert(std::is_arithmetic_v<Number> || std::is_enum_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  ByteWriter& text(std::string_view value) {
    put(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  /// Appends the bytes unchanged, for values that have their own length.
  ByteWriter& bytes(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  /// Appends a number in as many bytes as it needs, seven bits in each.
  ByteWriter& unsigned_short(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(static_cast<std::uint8_t>(value | 0x80));
    return put(static_cast<std::uint8_t>(value));
  }
  /// Appends a number that may be negative, in the same form.
  ByteWriter& signed_short(std::int64_t value) {
    return unsigned_short(static_cast<std::uint64_t>(value) << 1 ^
                          static_cast<std::uint64_t>(value >> 63));
  }
  /// Returns what was written; the writer is empty afterwards.
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads a message's body. Missing parts read as 0 or empty, and good() is false from then on:
/// callers read everything, then check good().
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
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
  std::uint64_t unsigned_short() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = get<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  std::int64_t signed_short() {
    const std::uint64_t value = unsigned_short();
    return static_cast<std::int64_t>(value >> 1 ^ (~(value & 1) + 1));
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
  /// Reads the length of a list whose items take at least `item_bytes` each. Fails and returns 0 if
  /// the message cannot hold that many.
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
  /// Returns whether everything was good, and nothing is left over.
  bool done() const noexcept { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace swell
