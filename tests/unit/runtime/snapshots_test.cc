// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/state/snapshots.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::runtime;

namespace {

Entry entry(const char* name, std::int64_t elements) {
  Entry made;
  made.tensor.name = name;
  made.tensor.dtype = DType::f64;
  made.tensor.shape = {elements};
  made.part = Part::whole(made.tensor.shape);
  return made;
}

/// A store with snapshots of one tensor of a page.
struct Book {
  Book() : store(Arena::create(std::uint64_t{1} << 20).value()), snapshots(store) {}
  void add(std::uint64_t generation, std::uint64_t step, std::int32_t rank = 0,
           bool is_of_switch = false) {
    std::vector<Run> runs;
    Snapshot made{generation, step, rank, 2, {}, is_of_switch};
    made.table = Snapshots::take_copy(store, {{entry("w", 512), Memory::arena, 0}}, runs).value();
    snapshots.add(std::move(made));
  }
  std::string held() const {
    std::string text;
    for (const Snapshot& each : snapshots.all())
      text += std::to_string(each.generation) + "." + std::to_string(each.step) + "/" +
              std::to_string(each.rank) + " ";
    return text;
  }
  Store store;
  Snapshots snapshots;
};

Holder holder(std::vector<Snapshot> snapshots) { return {{}, {}, std::move(snapshots)}; }

}  // namespace

Test(snapshots, the_last_three_of_each_rank_are_kept) {
  Book book;
  for (const std::uint64_t step : {10, 20, 30, 40}) {
    book.add(1, step, 0);
    book.add(1, step, 1);
  }
  cr_assert(book.held() == "1.20/0 1.20/1 1.30/0 1.30/1 1.40/0 1.40/1 ");
}

// The last one of rank 1 is on its way to its partner, for which it waits at the boundary of step
// 50 while rank 0 has taken that one: then rank 1 is lost.
Test(snapshots, ranks_one_apart_have_one_in_common_while_the_last_is_on_its_way) {
  Book own, partner;
  for (const std::uint64_t step : {10, 20, 30, 40, 50}) own.add(2, step, 0);
  for (const std::uint64_t step : {10, 20, 30}) partner.add(2, step, 1);
  const auto found = newest_of({holder(own.snapshots.all()), holder(partner.snapshots.all())});
  cr_assert(found.has_value());
  cr_assert_eq(found->step, 30u);
}

// Likewise the first one of a generation: what all have is of the one before.
Test(snapshots, those_of_an_generation_stay_until_one_of_the_next_is_everywhere) {
  Book own, partner;
  for (const std::uint64_t step : {10, 20, 30}) {
    own.add(1, step, 0);
    if (step < 30) partner.add(1, step, 1);
  }
  for (const std::uint64_t step : {40, 50}) own.add(2, step, 0);
  cr_assert(own.held() == "1.20/0 1.30/0 2.40/0 2.50/0 ");
  const auto found = newest_of({holder(own.snapshots.all()), holder(partner.snapshots.all())});
  cr_assert(found.has_value());
  cr_assert_eq(found->step, 20u);
  own.add(2, 60, 0);
  cr_assert(own.held() == "2.40/0 2.50/0 2.60/0 ");
}

// After a cancelled switch some ranks have a snapshot of it, and others none.
Test(snapshots, those_of_switches_leave_the_last_ones_that_all_have) {
  Book book;
  for (const std::uint64_t step : {10, 20, 30}) book.add(1, step);
  book.add(1, 34, 0, true);
  cr_assert(book.held() == "1.20/0 1.30/0 1.34/0 ");
  book.add(1, 35, 0, true);
  cr_assert(book.held() == "1.20/0 1.30/0 1.35/0 ");
  book.add(1, 40);
  cr_assert(book.held() == "1.20/0 1.30/0 1.40/0 ");
}

Test(snapshots, one_of_a_switch_replaces_none_of_the_generation_before) {
  Book book;
  for (const std::uint64_t step : {10, 20}) book.add(1, step);
  for (const std::uint64_t step : {30, 40}) book.add(2, step);
  book.add(2, 44, 0, true);
  cr_assert(book.held() == "1.10/0 1.20/0 2.30/0 2.40/0 2.44/0 ");
  book.add(2, 50);
  cr_assert(book.held() == "2.30/0 2.40/0 2.50/0 ");
}

Test(snapshots, dropped_snapshots_are_given_back) {
  Book book;
  for (std::uint64_t step = 1; step < 1000; ++step) book.add(1, step);  // the store has 256 pages
  cr_assert_eq(book.snapshots.all().size(), 3u);
}

Test(snapshots, tied_tensors_are_copied_once_and_stay_tied) {
  Book book;
  std::vector<Run> runs;
  const auto copy =
      Snapshots::take_copy(
          book.store, {{entry("w", 512), Memory::arena, 0}, {entry("tied", 512), Memory::arena, 0}},
          runs)
          .value();
  cr_assert_eq(runs.size(), 1u);
  cr_assert_eq(copy[0].at, copy[1].at);
}

Test(snapshots, the_newest_step_of_which_every_rank_is_there_is_found) {
  // Rank 1 is one snapshot behind; its own shim is gone, and the partner holds its part.
  const std::vector<Holder> holders{
      holder({{1, 10, 0, 2, {}}, {1, 20, 0, 2, {}}, {1, 10, 1, 2, {}}})};
  const auto found = newest_of(holders);
  cr_assert(found.has_value());
  cr_assert_eq(found->step, 10u);
  cr_assert_eq(found->ranks.size(), 2u);
  cr_assert_not(newest_of({holder({{1, 20, 0, 2, {}}})}).has_value());
}

Test(snapshots, a_later_generation_counts_more_than_a_later_step) {
  const auto found = newest_of({holder({{1, 90, 0, 1, {}}, {2, 20, 0, 1, {}}})});
  cr_assert_eq(found->generation, 2u);
  cr_assert_eq(found->step, 20u);
}
