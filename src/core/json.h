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

/// A JSON value: jansson's, with its reference counted by C++. Copying shares the value, as
/// jansson does; values that are written to are made by one owner, then only read.
/// Not thread-safe while written to.
class Json {
 public:
  Json() noexcept = default;
  /// Takes over one reference.
  static Json adopt(json_t* value) noexcept { return Json(value); }
  /// Adds a reference.
  static Json share(json_t* value) noexcept { return Json(json_incref(value)); }

  static Json object(std::initializer_list<std::pair<const char*, Json>> members = {});
  static Json array(std::initializer_list<Json> items = {});
  template <typename Range>
  static Json array_of(const Range& items) {
    Json result = array();
    for (const auto& item : items) result.append(Json(item));
    return result;
  }
  /// A string; bytes that are not UTF-8, which JSON has no form for, become \xNN (valid_utf8()).
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

  /// Parses one JSON value; the error names line and column. Duplicate keys and trailing text are
  /// refused; at most `max_bytes` are looked at.
  static Result<Json> parse(std::string_view text, std::size_t max_bytes = std::size_t{64} << 20);

  static constexpr int kDigits = 15;  ///< 0.1 is written as 0.1

  /// The value on one line, keys in the order in which they were set.
  std::string dump() const;
  /// The value indented, for people and for files they may open. ASCII: all else is escaped, so
  /// that no string commands a terminal. `digits`: of numbers; 17 read back as the same number.
  std::string dump_pretty(int digits = kDigits) const;
  /// The same on one line.
  std::string dump_ascii() const;

  json_t* get() const noexcept { return value_; }
  bool is_object() const noexcept { return json_is_object(value_); }
  bool is_array() const noexcept { return json_is_array(value_); }
  bool is_string() const noexcept { return json_is_string(value_); }
  bool is_integer() const noexcept { return json_is_integer(value_); }
  bool is_number() const noexcept { return json_is_number(value_); }
  bool is_bool() const noexcept { return json_is_boolean(value_); }

  bool has(const char* key) const noexcept { return json_object_get(value_, key) != nullptr; }
  /// The member `key`; an empty Json where there is none.
  Json at(const char* key) const noexcept { return share(json_object_get(value_, key)); }
  /// The item at `index`; an empty Json past the end.
  Json at(std::size_t index) const noexcept { return share(json_array_get(value_, index)); }
  std::size_t size() const noexcept {
    return is_array() ? json_array_size(value_) : json_object_size(value_);
  }
  std::vector<std::pair<std::string, Json>> members() const;
  std::vector<Json> items() const;

  Json& set(const char* key, Json value);
  Json& append(Json value);

  /// Typed reads of the member `key`; the errors name the key, what was found and what is wanted.
  Result<std::string> string_at(const char* key) const;
  Result<std::int64_t> integer_at(const char* key, std::int64_t min, std::int64_t max) const;
  Result<double> number_at(const char* key, double min, double max) const;
  Result<bool> bool_at(const char* key) const;

 private:
  explicit Json(json_t* value) noexcept : value_(value) {}
  json_t* value_ = nullptr;
};

}  // namespace swell
