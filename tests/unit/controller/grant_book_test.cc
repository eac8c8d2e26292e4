// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/grant_book.h"

#include <criterion/criterion.h>

using namespace swell::controller;

namespace {

LiveGrant grant(const char* nonce, JobId parent = 12, uid_t uid = 1000, double expires = 10) {
  LiveGrant made;
  made.offer.nonce = nonce;
  made.parent = parent;
  made.uid = uid;
  made.expires = expires;
  return made;
}

std::string reason(GrantBook& book, const char* nonce, uid_t uid, double now) {
  const auto used = book.use(nonce, uid, now);
  cr_assert_not(used.ok());
  return used.error().message();
}

}  // namespace

Test(grant_book, a_grant_is_used_once) {
  GrantBook book;
  book.add(grant("a"));
  cr_assert_eq(book.use("a", 1000, 1)->parent, 12u);
  cr_assert_neq(reason(book, "a", 1000, 1).find("used already"), std::string::npos);
}

Test(grant_book, anothers_grant_and_none_are_told_apart_by_nothing) {
  GrantBook book;
  book.add(grant("a"));
  cr_assert_eq(reason(book, "a", 1001, 1), reason(book, "b", 1001, 1));
  cr_assert_eq(reason(book, "a", 0, 1), reason(book, "b", 0, 1));
  cr_assert(book.use("a", 1000, 1).ok(), "and the attempt costs its owner nothing");
}

Test(grant_book, a_grant_ends_with_its_time) {
  GrantBook book;
  book.add(grant("a"));
  cr_assert_neq(reason(book, "a", 1000, 10).find("expired"), std::string::npos);
  cr_assert_eq(book.take_expired(9).size(), 0u);
  cr_assert_eq(book.take_expired(10).size(), 1u);
  cr_assert_eq(book.outstanding().size(), 0u);
}

Test(grant_book, a_used_grant_counts_as_taken_until_slurm_shows_its_companion) {
  GrantBook book;
  book.add(grant("a"));
  cr_assert(book.use("a", 1000, 1).ok());
  cr_assert_eq(book.take_expired(20).size(), 0u);
  cr_assert_eq(book.outstanding().size(), 1u);
  book.withdraw("a");
  cr_assert_eq(book.outstanding().size(), 0u);
}

Test(grant_book, grants_of_a_job_go_with_it) {
  GrantBook book;
  book.add(grant("a", 12));
  book.add(grant("b", 13));
  book.withdraw_all(12);
  cr_assert_not(book.use("a", 1000, 1).ok());
  cr_assert(book.use("b", 1000, 1).ok());
}

Test(grant_book, knows_companions_by_their_ids) {
  GrantBook book;
  book.companions().set({9, 3, 7});
  cr_assert(book.companions().contains(3) && book.companions().contains(9));
  cr_assert_not(book.companions().contains(4));
  book.companions().set({});
  cr_assert_not(book.companions().contains(3));
}
