// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/hostlist.h"

#include <criterion/criterion.h>

using namespace swell::slurm_text;

namespace {

std::string joined(const char* hosts) {
  std::string text;
  const std::vector<std::string> names = expand_hostlist(hosts).value();
  for (const std::string& name : names) text += name + " ";
  return text;
}

std::string visited(const char* hosts) {
  std::string text;
  cr_assert(visit_hostlist(hosts,
                           [&](std::string_view name) {
                             text += std::string(name) + " ";
                             return true;
                           })
                .ok(),
            "%s", hosts);
  return text;
}

}  // namespace

Test(hostlist, visits_the_names_that_it_would_expand_to) {
  for (const char* hosts :
       {"node[01-03,7],login", "r[1-2]n[08-09]x", "", ",a,,b,", "n[9-11]-ib",
        "a,n[1-2],r[1-2]n[3-4],b", "n[001-002]", "x[1-2],", "n[0000000001-0000000002,9]",
        "n[20261129001-20261129002]", "[08-10]", "gpu-[1-2].site-a,gpu-7.site"})
    cr_assert_eq(visited(hosts), joined(hosts), "%s: %s", hosts, visited(hosts).c_str());
  int seen = 0;
  cr_assert(visit_hostlist("n[1-99999999]", [&](std::string_view) { return ++seen < 10; }).ok());
  cr_assert_eq(seen, 10, "it ends where it is told to");
  for (const char* text : {"n[", "n]", "n[1-", "n[]", "n[a]", "n[3-1]", "n[[1]]", "n[1--2]",
                           "n[-1]", "n[1,]", "n[1-4294967296]"})
    cr_assert_not(visit_hostlist(text, [](std::string_view) { return true; }).ok(), "%s", text);
}

Test(hostlist, expands_as_slurm_does) {
  cr_assert_eq(joined("node[01-03,7],login"), "node01 node02 node03 node7 login ");
  cr_assert_eq(joined("r[1-2]n[08-09]x"), "r1n08x r1n09x r2n08x r2n09x ");
  // As Slurm folds hosts of these names.
  cr_assert_eq(joined("n[0000000009-0000000010]"), "n0000000009 n0000000010 ");
  cr_assert_eq(joined("n[20261129001-20261129002]"), "n20261129001 n20261129002 ");
  cr_assert_eq(joined("[001-002,7]"), "001 002 7 ");
  cr_assert_eq(joined(""), "");
  cr_assert_eq(joined(",a,,b,"), "a b ");
}

Test(hostlist, refuses_what_is_no_list_and_what_is_too_much) {
  for (const char* text : {"n[", "n]", "n[1-", "n[]", "n[a]", "n[3-1]", "n[[1]]", "n[1-99999999]",
                           "n[1-999][1-999]", "n[1--2]", "n[-1]", "n[1,]", "n[1-4294967296]",
                           "n[1-18446744073709551616]", "n[99999999999999999999]"})
    cr_assert_not(expand_hostlist(text).ok(), "%s", text);
}

Test(hostlist, folds_back) {
  cr_assert_eq(fold_hostlist({"n1", "n3", "n2", "login", "n7"}), "n[1-3,7],login");
  cr_assert_eq(fold_hostlist({"n09", "n10", "n08"}), "n[08-10]");
  cr_assert_eq(fold_hostlist({"a"}), "a");
  cr_assert_eq(fold_hostlist({"gpu", "gpu1", "gpu2"}), "gpu,gpu[1-2]");
  cr_assert_eq(fold_hostlist({"login", "login"}), "login,login");
  cr_assert_eq(fold_hostlist({}), "");
}
