// SPDX-License-Identifier: BSD-3-Clause
#include "core/json.h"

#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

#include "core/utf8.h"

namespace swell {

namespace {

std::string written(json_t* value, std::size_t flags, int digits = Json::kDigits) {
  char* text = json_dumps(value, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
  if (text == nullptr) return "null";
  std::string result(text);
  std::free(text);
  return result;
}

/// Returns the value in printable ASCII. Escapes DEL, which jansson does not.
std::string written_in_ascii(json_t* value, std::size_t flags, int digits = Json::kDigits) {
  std::string text = written(value, flags | JSON_ENSURE_ASCII, digits);
  for (std::size_t at = 0; (at = text.find('\x7f', at)) != std::string::npos;)
    text.replace(at, 1, "\\u007f");
  return text;
}

json_t* string_of(std::string_view text) {
  if (json_t* made = json_stringn(text.data(), text.size())) return made;
  const std::string valid = valid_utf8(text);
  return json_stringn(valid.data(), valid.size());
}

Error wrong(const char* key, const Json& found, std::string_view wanted) {
  if (found.get() == nullptr)
    return Error(fmt::format("\"{}\" is missing; it must be {}", key, wanted));
  std::string shown = ascii_text(found);
  if (shown.size() > 60) shown.replace(57, shown.npos, "...");
  return Error(fmt::format("\"{}\" is {}; it must be {}", key, shown, wanted));
}

}  // namespace

Json::Json(std::string_view text) : value_(string_of(text)) {}

Json Json::object(std::initializer_list<std::pair<const char*, Json>> members) {
  Json result(json_object());
  for (const auto& [key, value] : members) result.set(key, value);
  return result;
}

Json Json::array(std::initializer_list<Json> items) {
  Json result(json_array());
  for (const Json& item : items) result.append(item);
  return result;
}

Result<Json> Json::parse(std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes)
    return Error(fmt::format("{} bytes of JSON; at most {} are read", text.size(), max_bytes));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return Error("it is empty");
  json_error_t problem;
  json_t* value =
      json_loadb(text.data(), text.size(), JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
  if (value == nullptr)
    return Error(fmt::format("line {}, column {}: {}", problem.line, problem.column, problem.text));
  return Json(value);
}

std::string Json::dump() const { return written(value_, JSON_COMPACT); }
std::string ascii_text(const Json& json) { return written_in_ascii(json.get(), JSON_COMPACT); }
std::string pretty_text(const Json& json, int digits) {
  return written_in_ascii(json.get(), JSON_INDENT(2), digits) + "\n";
}

std::vector<std::pair<std::string, Json>> members(const Json& object) {
  std::vector<std::pair<std::string, Json>> result;
  const char* key;
  json_t* value;
  json_object_foreach(object.get(), key, value) result.emplace_back(key, Json(json_incref(value)));
  return result;
}

std::vector<Json> Json::items() const {
  std::vector<Json> result;
  std::size_t index;
  json_t* value;
  json_array_foreach(value_, index, value) result.emplace_back(json_incref(value));
  return result;
}

Json& Json::set(const char* key, Json value) {
  json_t* taken = std::exchange(value.value_, nullptr);
  if (taken == nullptr) taken = json_null();
  // jansson refuses a key that is not UTF-8, but takes the reference all the same.
  if (json_object_set_new(value_, key, json_incref(taken)) != 0)
    json_object_set_new(value_, valid_utf8(key).c_str(), json_incref(taken));
  json_decref(taken);
  return *this;
}

Json& Json::append(Json value) {
  json_t* taken = std::exchange(value.value_, nullptr);
  json_array_append_new(value_, taken != nullptr ? taken : json_null());
  return *this;
}

Result<std::string> Json::string_at(const char* key) const {
  Json found = at(key);
  if (!is_string(found)) return wrong(key, found, "a string");
  return std::string(json_string_value(found.get()), json_string_length(found.get()));
}

Result<std::int64_t> Json::integer_at(const char* key, std::int64_t min, std::int64_t max) const {
  Json found = at(key);
  if (is_integer(found)) {
    std::int64_t value = json_integer_value(found.get());
    if (value >= min && value <= max) return value;
  }
  return wrong(key, found, fmt::format("a whole number from {} to {}", min, max));
}

Result<double> Json::number_at(const char* key, double min, double max) const {
  Json found = at(key);
  if (is_number(found)) {
    double value = json_number_value(found.get());
    if (std::isfinite(value) && value >= min && value <= max) return value;
  }
  return wrong(key, found, fmt::format("a number from {:g} to {:g}", min, max));
}

Result<bool> Json::bool_at(const char* key) const {
  Json found = at(key);
  if (!json_is_boolean(found.get())) return wrong(key, found, "true or false");
  return static_cast<bool>(json_is_true(found.get()));
}

}  // namespace swell
