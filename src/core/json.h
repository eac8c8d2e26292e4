// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>
#include <jansson.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace swell {

/// A JSON value: owns a reference to a value of jansson. Copies share the value, as in
/// jansson: one owner writes it, and from then on it is only read. Not thread-safe while it is
/// written.
class Json {
 public:
  Json() noexcept = default;
  /// Takes over one reference.
  explicit Json(json_t* value) noexcept : value_(value) {}

  static Json object(std::initializer_list<std::pair<const char*, Json>> members = {});
  static Json array(std::initializer_list<Json> items = {});
  /// Makes a string. Bytes that are not UTF-8, which JSON cannot hold, become \xNN (valid_utf8()).
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(std::string_view text);
  Json(bool value) : value_(json_boolean(value)) {}
  Json(int value) : value_(json_integer(value)) {}
  Json(unsigned value) : value_(json_integer(value)) {}
  Json(long value) : value_(json_integer(value)) {}
  Json(unsigned long value) : value_(json_integer(static_cast<json_int_t>(value))) {}
  Json(long long value) : value_(json_integer(value)) {}
  Json(double value) : value_(json_real(value)) {}

  Json(const Json& other) noexcept : value_(json_incref(other.value_)) {}
  Json(Json&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Json& operator=(Json other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Json() { json_decref(value_); }

  /// Parses one JSON value; the error names line and column. Refuses duplicate keys, trailing text,
  /// and text of more than `max_bytes`.
  static Result<Json> parse(std::string_view text, std::size_t max_bytes = std::size_t{64} << 20);

  static constexpr int kDigits = 15;  ///< digits of numbers, so that 0.1 is written as 0.1

  /// Returns the value on one line, with keys in the order in which they were set.
  std::string dump() const;
  json_t* get() const noexcept { return value_; }
  bool has(const char* key) const noexcept { return json_object_get(value_, key) != nullptr; }
  /// Returns the member `key`; an empty Json if there is none.
  Json at(const char* key) const noexcept {
    return Json(json_incref(json_object_get(value_, key)));
  }
  /// Returns the item at `index`; an empty Json past the end.
  Json at(std::size_t index) const noexcept {
    return Json(json_incref(json_array_get(value_, index)));
  }
  std::size_t size() const noexcept {
    return json_is_array(value_) ? json_array_size(value_) : json_object_size(value_);
  }
  std::vector<Json> items() const;

  Json& set(const char* key, Json value);
  Json& append(Json value);

  /// Read the member `key` as a type. The errors name the key, what was found and what is wanted.
  Result<std::string> string_at(const char* key) const;
  Result<std::int64_t> integer_at(const char* key, std::int64_t min, std::int64_t max) const;
  Result<double> number_at(const char* key, double min, double max) const;
  Result<bool> bool_at(const char* key) const;

 private:
  json_t* value_ = nullptr;
};

inline bool is_object(const Json& json) noexcept { return json_is_object(json.get()); }
inline bool is_array(const Json& json) noexcept { return json_is_array(json.get()); }
inline bool is_string(const Json& json) noexcept { return json_is_string(json.get()); }
inline bool is_integer(const Json& json) noexcept { return json_is_integer(json.get()); }
inline bool is_number(const Json& json) noexcept { return json_is_number(json.get()); }

/// Returns the members of an object with their keys; none for other values.
std::vector<std::pair<std::string, Json>> members(const Json& object);

template <typename Range>
Json array_of(const Range& items) {
  Json result = Json::array();
  for (const auto& item : items) result.append(Json(item));
  return result;
}

/// Returns the value indented, for people and their files. Escapes all but ASCII, so that no string
/// can control a terminal. `digits`: digits of numbers; with 17, each reads back unchanged.
std::string pretty_text(const Json& json, int digits = Json::kDigits);
/// Returns the same on one line, without an end of line.
std::string ascii_text(const Json& json);

}  // namespace swell
