// SPDX-License-Identifier: GPL-2.0-or-later
// Which schedules are valid, and what is said of one that is not.
#include <algorithm>
#include <criterion/criterion.h>

#include "core/schedule/named.h"
#include "core/schedule/text.h"

using namespace swell::schedule;

namespace {

/// Returns what check() says of `schedule`; "" where it is valid.
std::string said_of(const Schedule& schedule) {
  const auto valid = check(schedule);
  return valid ? "" : valid.error().message();
}

void refuses(const Schedule& schedule, const char* words) {
  const std::string said = said_of(schedule);
  cr_assert(said.find(words) != std::string::npos, "wanted \"%s\" in \"%s\"", words, said.c_str());
}

/// The pass of `kind`, chunk and micro-batch in the order of `stage`.
Operation& find(Schedule& schedule, std::size_t stage, const Operation& one) {
  for (Operation& its : schedule.orders[stage])
    if (its == one) return its;
  cr_assert(false, "%s is not there", to_string(one).c_str());
  return schedule.orders[stage].front();
}

}  // namespace

Test(schedule_check, named_schedules_are_valid_for_every_small_shape) {
  for (int stages = 1; stages <= 5; ++stages)
    for (int chunks = 1; chunks <= 4; ++chunks)
      for (int micro_batches = 1; micro_batches <= 13; ++micro_batches)
        for (const auto name : names()) {
          const Shape shape{stages, chunks, micro_batches};
          const auto schedule = named(name, shape);
          if (!schedule) {
            cr_assert(name == "1f1b" && chunks > 1, "%s", schedule.error().message().c_str());
            continue;
          }
          const auto valid = check(*schedule, shape);
          cr_assert(valid.ok(), "%.*s of %d, %d, %d: %s", static_cast<int>(name.size()),
                    name.data(), stages, chunks, micro_batches, valid.error().message().c_str());
          cr_assert_eq(schedule->splits_weights(), name == "zero-bubble");
        }
}

Test(schedule_check, a_missing_pass_is_named) {
  for (const Kind kind : {Kind::forward, Kind::backward, Kind::weights}) {
    Schedule schedule = zero_bubble({3, 2, 4});
    Order& order = schedule.orders[1];
    std::erase(order, Operation{kind, 1, 3});
    // Without its F, the B that is left stands before nothing.
    refuses(schedule,
            kind == Kind::forward    ? "stage 1: B of chunk 1, micro-batch 3 stands before its F"
            : kind == Kind::backward ? "stage 1: W of chunk 1, micro-batch 3 stands before its B"
                                     : "stage 1: the order lacks W of chunk 1, micro-batch 3");
  }
  Schedule schedule = gpipe({2, 1, 4});
  schedule.orders[1].pop_back();
  refuses(schedule, "stage 1: the order lacks B of chunk 0, micro-batch 3");
  schedule = gpipe({2, 1, 4});
  std::erase(schedule.orders[0], Operation{Kind::backward, 0, 1});
  refuses(schedule, "stage 0: the order lacks B of chunk 0, micro-batch 1");
  schedule.orders.pop_back();
  refuses(schedule, "the schedule has the orders of 1 stage, and is for 2");
}

Test(schedule_check, weight_gradients_are_passes_of_all_stages_or_of_none) {
  Schedule schedule = interleaved({2, 2, 3});
  schedule.orders[1] = zero_bubble({2, 2, 3}).orders[1];
  refuses(schedule,
          "stage 0: the order lacks W of chunk 0, micro-batch 0; each pass is made once, "
          "and W by all stages or by none");
}

Test(schedule_check, a_repeated_pass_is_named) {
  Schedule schedule = interleaved({3, 2, 4});
  schedule.orders[2].push_back({Kind::backward, 0, 3});
  refuses(schedule, "stage 2: the order repeats B of chunk 0, micro-batch 3");
  schedule = interleaved({3, 2, 4});
  find(schedule, 0, {Kind::forward, 1, 2}).micro_batch = 1;
  refuses(schedule, "stage 0: the order repeats F of chunk 1, micro-batch 1");
}

Test(schedule_check, micro_batches_rise_within_a_chunk) {
  for (const Kind kind : {Kind::forward, Kind::backward, Kind::weights}) {
    Schedule schedule = zero_bubble({2, 1, 4});
    Operation &a = find(schedule, 1, {kind, 0, 1}), &b = find(schedule, 1, {kind, 0, 2});
    std::swap(a, b);
    const std::string words = std::string("stage 1: ") + letter_of(kind) +
                              " of chunk 0, micro-batch 2 stands before micro-batch 1";
    refuses(schedule, words.c_str());
  }
}

Test(schedule_check, a_gradient_stands_behind_what_it_is_of) {
  Schedule schedule = zero_bubble({2, 1, 2});
  std::swap(find(schedule, 1, {Kind::backward, 0, 0}), find(schedule, 1, {Kind::weights, 0, 0}));
  refuses(schedule, "stage 1: W of chunk 0, micro-batch 0 stands before its B");
  schedule = gpipe({2, 1, 1});
  std::swap(schedule.orders[0][0], schedule.orders[0][1]);
  refuses(schedule, "stage 0: B of chunk 0, micro-batch 0 stands before its F");
}

Test(schedule_check, a_deadlock_names_stage_operation_and_what_it_waits_for) {
  Schedule schedule = one_forward_one_backward({2, 1, 3});
  // Stage 0 waits for a backward pass of stage 1 that needs a forward pass which stage 0 puts
  // behind.
  schedule.orders[1] = gpipe({1, 1, 3}).orders[0];
  schedule.orders[0] = memory_minimised({1, 1, 3}).orders[0];
  refuses(schedule,
          "the schedule deadlocks: stage 0 waits at its operation 1, B of chunk 0, "
          "micro-batch 0, for B of chunk 0, micro-batch 0 on stage 1");
  // Chunk 1 of stage 0 needs chunk 0 of the last stage.
  schedule = gpipe({2, 2, 1});
  schedule.orders[1] = {
      {Kind::forward, 1, 0}, {Kind::forward, 0, 0}, {Kind::backward, 1, 0}, {Kind::backward, 0, 0}};
  refuses(schedule,
          "stage 0 waits at its operation 1, F of chunk 1, micro-batch 0, for F of chunk "
          "0, micro-batch 0 on stage 1");
  // Groups of p micro-batches with a smaller last one.
  refuses(
      interleaved_in_groups({8, 2, 20}, {8, 8, 4}, 14 + 8),
      "the schedule deadlocks: stage 0 waits at its operation 52, F of chunk 1, micro-batch 17");
  cr_assert(check(interleaved({8, 2, 20})).ok());
}

Test(schedule_check, a_schedule_of_another_plan_is_refused_with_both_shapes) {
  const auto valid = check(interleaved({4, 2, 8}), {4, 1, 8});
  cr_assert(!valid.ok());
  cr_assert_str_eq(
      valid.error().message().c_str(),
      "the schedule is for 4 stages of 2 chunks and 8 micro-batches, the plan has 4 of "
      "1 and 8; use a schedule of this plan");
}

Test(schedule_check, impossible_shapes_and_numbers_are_refused) {
  cr_assert(!check_shape({0, 1, 1}).ok());
  cr_assert(!check_shape({1, 0, 1}).ok());
  cr_assert(!check_shape({1, 1, 0}).ok());
  cr_assert(!check_shape({kMaxStages + 1, 1, 1}).ok());
  cr_assert(!check_shape({kMaxStages, kMaxChunks, kMaxMicroBatches}).ok());
  Schedule schedule = gpipe({2, 1, 2});
  schedule.orders[1][0].chunk = 1;
  refuses(schedule, "stage 1: F of chunk 1, micro-batch 0 is not a pass of 1 chunk");
  schedule.orders[1][0] = {Kind::forward, 0, -1};
  refuses(schedule, "is not a pass of");
}

Test(schedule_check, a_name_that_is_not_known_is_refused_with_those_that_are) {
  const auto none = named("zb-h1", {2, 1, 2});
  cr_assert(!none.ok());
  cr_assert_str_eq(none.error().message().c_str(),
                   "no schedule is called \"zb-h1\"; use gpipe, 1f1b, interleaved, zero-bubble, "
                   "memory-minimised");
  const auto chunks = named("1f1b", {2, 3, 2});
  cr_assert(!chunks.ok());
  cr_assert_str_eq(chunks.error().message().c_str(),
                   "1f1b runs one chunk on each stage, the plan has 3; use interleaved");
}

Test(schedule_check, cases_that_the_engine_reads_too_are_as_they_stand) {
  const auto named_is = [](std::string_view name, const Shape& shape, std::string text) {
    std::replace(text.begin(), text.end(), ';', '\n');
    const auto schedule = named(name, shape);
    cr_assert(schedule.ok() && to_text(*schedule) == text, "%.*s of %d, %d, %d",
              static_cast<int>(name.size()), name.data(), shape.stages, shape.chunks,
              shape.micro_batches);
  };
  const auto refused = [](std::string_view text, const Shape& shape, const char* words) {
    const auto read = parse(text);
    const swell::Result<void> valid = read ? check(*read, shape) : read.error();
    cr_assert(!valid.ok(), "%.*s", static_cast<int>(text.size()), text.data());
    cr_assert(valid.error().message().find(words) != std::string::npos, "wanted \"%s\" in \"%s\"",
              words, valid.error().message().c_str());
  };
#define NAMED(name, stages, chunks, micro_batches, text) \
  named_is(name, Shape{stages, chunks, micro_batches}, text);
#define REFUSED(text, stages, chunks, micro_batches, words) \
  refused(text, Shape{stages, chunks, micro_batches}, words);
#include "unit/core/schedule/cases.inc"
#undef NAMED
#undef REFUSED
}
