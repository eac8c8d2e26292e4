// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/companion_set.h"

#include <criterion/criterion.h>

using namespace swell::controller;

namespace {

CompanionSet two() {
  CompanionSet set;
  for (const JobId id : {20u, 21u}) {
    Companion companion;
    companion.id = id;
    companion.grant = "nonce" + std::to_string(id);
    companion.gpus = {4, "h100", "0-3"};
    set.add(companion);
  }
  return set;
}

}  // namespace

Test(companion_set, is_found_by_id_and_by_grant) {
  CompanionSet set = two();
  cr_assert_eq(set.find(21)->grant, "nonce21");
  cr_assert_null(set.find(22));
  cr_assert(set.has_grant("nonce20"));
  cr_assert_eq(set.lent_gpus(), 8);
  set.remove(20);
  cr_assert_not(set.has_grant("nonce20"));
  cr_assert_eq(set.lent_gpus(), 4);
}
