// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/places.h"

#include <criterion/criterion.h>

using swell::Places;

Test(places, a_newcomer_takes_the_place_of_the_oldest_of_its_address) {
  Places places(4, 2);
  places.take(1, "a");
  places.take(2, "b");
  cr_assert_not(places.in_the_way_of("a"));
  places.take(3, "a");
  cr_assert_eq(*places.in_the_way_of("a"), 1u);
  cr_assert_not(places.in_the_way_of("c"));
}

Test(places, an_address_with_few_peers_loses_none_to_one_with_many) {
  Places places(4, 3);
  places.take(1, "few");
  for (Places::Id id = 2; id <= 4; ++id) places.take(id, "many");
  cr_assert_eq(*places.in_the_way_of("new"), 2u);
  cr_assert_eq(*places.in_the_way_of("few"), 2u);
}

Test(places, a_leaving_client_frees_its_place_once) {
  Places places(2, 1);
  places.take(1, "a");
  places.take(2, "b");
  cr_assert_eq(*places.oldest(), 1u);
  for (int i = 0; i < 2; ++i) places.leave(1);
  cr_assert_eq(*places.oldest(), 2u);
  cr_assert_not(places.in_the_way_of("c"));
  places.leave(2);
  cr_assert_not(places.oldest());
}
