// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/state/store.h"

#include <criterion/criterion.h>
#include <cstring>

using namespace swell::runtime;

namespace {

constexpr std::uint64_t kPage = Extents::kPage;

/// A store of ten pages beside its control page, of which `taken` are taken and written.
struct Written {
  explicit Written(std::uint64_t taken) : at(store.take(taken * kPage).value()) {
    std::memset(store.arena()->data() + at, 1, taken * kPage);
    begin = store.arena()->used_bytes();
  }
  /// Pages that have gone back to the system.
  std::uint64_t freed() const { return (begin - store.arena()->used_bytes()) / kPage; }
  Store store{Arena::create(11 * kPage).value()};
  std::uint64_t at, begin;
};

}  // namespace

Test(store, some_of_the_rest_of_a_part_that_another_takes_over_goes_back) {
  Written one(10);
  one.store.use(one.at, 10 * kPage);
  const std::uint64_t successor = one.at + 3 * kPage;
  one.store.use(successor, 4 * kPage);
  cr_assert_eq(one.freed(), 0, "both stand");
  one.store.drop(one.at, 10 * kPage);
  cr_assert_eq(one.freed(), 6);
  cr_assert_eq(static_cast<int>(one.store.arena()->data()[successor]), 1);
  cr_assert_eq(static_cast<int>(one.store.arena()->data()[successor + 4 * kPage - 1]), 1);
  cr_assert_eq(one.store.take(3 * kPage).value(), one.at, "what is back can be taken again");
  cr_assert_eq(one.store.take(3 * kPage).value(), successor + 4 * kPage);
  cr_assert_not(one.store.take(1).ok());
  one.store.drop(successor, 4 * kPage);
  cr_assert_eq(one.store.take(4 * kPage).value(), successor);
}

Test(store, an_heir_that_comes_to_nothing_leaves_the_whole) {
  Written one(10);
  one.store.use(one.at, 10 * kPage);
  one.store.use(one.at + 100, 5 * kPage);
  one.store.drop(one.at + 100, 5 * kPage);
  cr_assert_eq(one.freed(), 0);
  one.store.drop(one.at, 10 * kPage);
  cr_assert_eq(one.freed(), 10);
  cr_assert_eq(one.store.take(10 * kPage).value(), one.at, "in one piece again");
}

Test(store, pages_that_two_stand_in_stay_until_both_are_gone) {
  Written one(10);
  one.store.use(one.at, 10 * kPage);
  // Neighbours that end and begin within one page.
  one.store.use(one.at, 2 * kPage + 100);
  one.store.use(one.at + 2 * kPage + 100, 2 * kPage);
  one.store.drop(one.at, 10 * kPage);
  cr_assert_eq(one.freed(), 5);
  one.store.drop(one.at, 2 * kPage + 100);
  cr_assert_eq(one.freed(), 7);
  one.store.drop(one.at + 2 * kPage + 100, 2 * kPage);
  cr_assert_eq(one.freed(), 10);
}

Test(store, unused_memory_is_swept) {
  Written one(4);
  const std::uint64_t used = one.store.take(2 * kPage).value();
  one.store.use(used, 2 * kPage);
  one.store.sweep();
  cr_assert_eq(one.freed(), 4);
  cr_assert_eq(one.store.take(4 * kPage).value(), one.at);
}
