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

Test(json, refuses_a_key_given_twice) { cr_assert_not(Json::parse("{\"a\":1,\"a\":2}").ok()); }

Test(json, typed_reads_name_key_value_and_range) {
  const Json json = Json::object({{"gpus", -3}});
  const auto read = json.integer_at("gpus", 1, 8);
  cr_assert_not(read.ok());
  cr_assert_eq(read.error().message(),
               std::string("\"gpus\" is -3; it must be a whole number from 1 to 8"));
}
