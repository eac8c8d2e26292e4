// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/json.h"

#include <criterion/criterion.h>

using swell::Json;

Test(json, reads_back_what_it_writes) {
  const Json made = Json::object({{"a", 1}, {"b", Json::array({true, 2.5, "x"})}});
  const auto read = Json::parse(made.dump());
  cr_assert(read.ok());
  cr_assert_eq(read->dump(), made.dump());
}

Test(json, names_line_and_column_of_what_is_wrong) {
  const auto read = Json::parse("{\n \"a\": }");
  cr_assert_not(read.ok());
  cr_assert_neq(read.error().message().find("line 2"), std::string::npos);
}

Test(json, says_of_an_empty_text_that_it_is_empty) {
  for (const char* text : {"", "\n", " \t\r\n\n", "\xef\xbb\xbf"})
    cr_assert_eq(Json::parse(text).error().message(), "it is empty");
}

Test(json, refuses_a_key_given_twice) { cr_assert_not(Json::parse("{\"a\":1,\"a\":2}").ok()); }

Test(json, typed_reads_name_key_value_and_range) {
  const Json json = Json::object({{"gpus", -3}});
  const auto read = json.integer_at("gpus", 1, 8);
  cr_assert_not(read.ok());
  cr_assert_eq(read.error().message(),
               std::string("\"gpus\" is -3; it must be a whole number from 1 to 8"));
}

Test(json, text_that_is_not_utf_8_keeps_what_it_says) {
  Json json = Json::object({{"name", "bad\xff"}});
  json.set("\xfe", std::string("\x80 and 模"));
  cr_assert_eq(json.dump(), "{\"name\":\"bad\\\\xff\",\"\\\\xfe\":\"\\\\x80 and 模\"}", "%s",
               json.dump().c_str());
  cr_assert(Json::parse(json.dump()).ok());
}

Test(json, shown_text_is_ascii) {
  const std::string text = "\x1b[31m\x7f\u009b\u202e größer";
  const Json json = Json::object({{"name", text}});
  for (const std::string& shown : {pretty_text(json), ascii_text(json)}) {
    for (const char c : shown) cr_assert(c == '\n' || (c >= ' ' && c < 0x7f), "%s", shown.c_str());
    const auto read = Json::parse(shown);
    cr_assert(read.ok());
    cr_assert_eq(*read->string_at("name"), text);
  }
}

Test(json, an_error_that_quotes_a_value_has_no_control_characters) {
  const auto read = Json::object({{"gpus", "\u009b31m\u202e"}}).integer_at("gpus", 1, 8);
  cr_assert_eq(read.error().message(), std::string("\"gpus\" is \"\\u009B31m\\u202E\"; it must be "
                                                   "a whole number from 1 to 8"));
}

Test(json, a_byte_order_mark_is_skipped) { cr_assert(Json::parse("\xef\xbb\xbf{\"a\":1}").ok()); }
