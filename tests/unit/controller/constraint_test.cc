// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/constraint.h"

#include <criterion/criterion.h>
#include <map>
#include <string>

using namespace swell;
using controller::Constraint;
using policy::NodeSet;

namespace {

/// Nodes 0 to 5: a on the even ones, b on 0 to 2, c on 3 and 4.
const NodeSet& with(const std::string& feature) {
  static const std::map<std::string, NodeSet> nodes{
      {"a", {0, 2, 4}}, {"b", {0, 1, 2}}, {"c", {3, 4}}};
  static const NodeSet none;
  const auto found = nodes.find(feature);
  return found != nodes.end() ? found->second : none;
}

std::string lendable(const std::string& text, const NodeSet& own) {
  const auto constraint = Constraint::parse(text);
  if (!constraint) return "?";
  std::string all;
  for (const int node : constraint->lendable(with, own).nodes()) all += std::to_string(node);
  return all;
}

std::string possible(const std::string& text) {
  const auto constraint = Constraint::parse(text);
  if (!constraint) return "?";
  std::string all;
  for (const int node : constraint->possible(with, NodeSet::first(6)).nodes())
    all += std::to_string(node);
  return all;
}

}  // namespace

Test(constraint, a_running_job_is_lent_nodes_on_which_it_might_run) {
  const struct {
    const char* text;
    NodeSet own;
    const char* lent;
  } cases[] = {
      {"a", {0}, "024"},        {"a&b", {0}, "02"},      {"a,b", {0}, "02"},
      {"b|c", {0}, "01234"},    {"(b|c)&a", {0}, "024"}, {"a&(b|c)", {0}, "024"},
      {"[b|c]", {0}, "012"},    {"[b|c]", {4}, "34"},    {"[a|b]", {0, 4}, "024"},
      {"[a|b]", {0, 1}, "012"}, {"[b|c]", {0, 4}, ""},   {"[b|c]&a", {0}, "02"},
      {"[(a&b)|c]", {2}, "02"}, {"a*1", {0}, "024"},     {"a*2&b", {0}, "02"},
      {"(a|b)*2", {0}, "0124"}, {"unknown", {0}, ""},    {"a&unknown", {0}, ""},
      {"((a))", {0}, "024"},    {"[a]", {0}, "024"},     {"a|a|a", {0}, "024"},
  };
  for (const auto& each : cases)
    cr_assert_eq(lendable(each.text, each.own), std::string(each.lent), "%s: %s", each.text,
                 lendable(each.text, each.own).c_str());
}

Test(constraint, unknown_constraints_are_errors_that_name_them) {
  std::string nested(200, '(');
  for (const std::string& text :
       {std::string("a&b|c"), std::string("a|b&c"), std::string("[a*2&b*4]"),
        std::string("[a|b]*2"), std::string("!a"), std::string("a&"), std::string("&a"),
        std::string("(a"), std::string("a)"), std::string("a*"), std::string("a*x"),
        std::string("a b)"), std::string("()"), std::string("[]"), std::string("a&&b"),
        std::string("[a|b"), std::string("a\x1b[2J"), nested}) {
    const auto constraint = Constraint::parse(text);
    cr_assert_not(constraint.ok(), "%s", text.c_str());
    const std::string& why = constraint.error().message();
    cr_assert_neq(why.find("constraint"), std::string::npos, "%s", why.c_str());
    cr_assert_eq(why.find('\x1b'), std::string::npos);
  }
}

Test(constraint, a_pending_job_may_start_on_more_nodes_rather_than_fewer) {
  cr_assert_eq(possible("a&b"), std::string("02"));
  cr_assert_eq(possible("[b|c]"), std::string("01234"));
  cr_assert_eq(possible("a*2"), std::string("012345"), "the others of its nodes need not have it");
  cr_assert_eq(possible("c&a*2"), std::string("34"));
}
