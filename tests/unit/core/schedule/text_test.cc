// SPDX-License-Identifier: GPL-2.0-or-later
// The text of a schedule.
#include "core/schedule/text.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <random>

#include "core/schedule/named.h"

using namespace swell::schedule;

namespace {

void refuses(std::string_view text, const char* words) {
  const auto read = parse(text);
  cr_assert(!read.ok(), "%.*s was read", static_cast<int>(text.size()), text.data());
  cr_assert(read.error().message().find(words) != std::string::npos, "wanted \"%s\" in \"%s\"",
            words, read.error().message().c_str());
}

/// Another valid order of the same passes: neighbours change places where that stays valid.
Schedule shuffled(Schedule schedule, unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    Order& order = schedule.orders[random() % schedule.orders.size()];
    const std::size_t at = random() % (order.size() - 1);
    std::swap(order[at], order[at + 1]);
    if (!check(schedule)) std::swap(order[at], order[at + 1]);
  }
  return schedule;
}

}  // namespace

Test(schedule_text, a_pass_is_a_letter_and_repeats_are_counted) {
  const auto is = [](const Schedule& schedule, const std::string& wanted) {
    const std::string text = to_text(schedule);
    cr_assert(text == wanted, "%s", text.c_str());
  };
  is(one_forward_one_backward({4, 1, 8}), "F*4(BF)*4B*4\nFF(FB)*6BB\nF(FB)*7B\n(FB)*8\n");
  is(memory_minimised({2, 2, 6}), "(FF1B1B)*6\n(FF1B1B)*6\n");
  is(gpipe({1, 11, 1}), "FF1F2F3F4F5F6F7F8F9F10B10B9B8B7B6B5B4B3B2B1B\n");
}

Test(schedule_text, written_text_reads_back_equal) {
  for (const Shape shape : {Shape{1, 1, 1}, Shape{4, 1, 9}, Shape{3, 4, 7}, Shape{8, 2, 20}})
    for (const auto name : names()) {
      const auto schedule = named(name, shape);
      if (!schedule) continue;
      for (unsigned seed = 0; seed < 4; ++seed) {
        const Schedule one =
            seed == 0 || shape == Shape{1, 1, 1} ? *schedule : shuffled(*schedule, seed);
        const auto back = parse(to_text(one));
        cr_assert(back.ok(), "%s", back.error().message().c_str());
        cr_assert(*back == one, "%s", to_text(one).c_str());
      }
    }
}

Test(schedule_text, people_may_write_it_as_they_like) {
  const auto read = parse("# two stages\n F *2 ( B F )*1 B*2;\r\n\n(FB)*3 # the last\n");
  cr_assert(read.ok(), "%s", read.error().message().c_str());
  cr_assert(*read == *parse("FFBFBB\nFBFBFB"));
  cr_assert(*parse("((F*2)*2(B*2)*2)") == gpipe({1, 1, 4}));
}

Test(schedule_text, a_plan_s_schedule_is_a_name_or_a_text_of_its_shape) {
  const Shape shape{2, 2, 4};
  cr_assert(schedule_for("", shape).value() == interleaved(shape));
  cr_assert(schedule_for("", {3, 1, 5}).value() == one_forward_one_backward({3, 1, 5}));
  cr_assert(schedule_for("zero-bubble", shape).value() == zero_bubble(shape));
  cr_assert(schedule_for(to_text(gpipe(shape)), shape).value() == gpipe(shape));
  cr_assert_eq(schedule_for("1f1b", shape).error().message(),
               "1f1b runs one chunk on each stage, the plan has 2; use interleaved");
  cr_assert_eq(schedule_for("fastest", shape).error().message(),
               "no schedule is called \"fastest\"; use gpipe, 1f1b, interleaved, zero-bubble, "
               "memory-minimised");
  cr_assert_eq(schedule_for("FB;FB", shape).error().message(),
               "the schedule is for 2 stages, 1 chunk and 1 micro-batch, the plan has 2, 2 and 4; "
               "give one of the plan's");
  cr_assert_not(schedule_for("", {2000, 1, 1}).ok());
}

Test(schedule_text, wrong_text_is_refused_with_line_and_column) {
  refuses("", "the schedule is empty");
  refuses(" # nothing\n;;\n", "the schedule is empty");
  refuses("FB\nFXB", "line 2 of the schedule: column 2: 'X' is not F, B, W, ( or )");
  refuses("FB\n\nF*B", "line 3 of the schedule: column 3: behind * a number from 1 to");
  refuses("F*0B", "behind * a number");
  refuses("F*99999999999999999999B", "behind * a number");
  refuses("F1024B1024", "a chunk is not 0 to 1023");
  refuses("(FB", "a ( without its )");
  refuses("FB)", "a ) without its (");
  refuses(std::string(40, '(') + "FB" + std::string(40, ')'), "more brackets");
  refuses("(((F*60000)*60000)*60000)B", "more than 2097152 operations");
  refuses("F\x80", "a character is not F");
  refuses("FB;FF", "stage 0: the order lacks F of chunk 0, micro-batch 1");
  refuses("FBW;FB", "stage 1: the order lacks W");
  std::string stages;
  for (int i = 0; i <= kMaxStages; ++i) stages += "FB;";
  refuses(stages, "more than 1024 stages");
}

// The whole pipeline of 1,024 GPUs with TP 1: as many stages as 61 layers, two MTP heads and an
// embedding make, and others.
Test(schedule_text, named_schedules_of_1024_gpus_fit_16_kib) {
  for (const Shape shape :
       {Shape{64, 1, 256}, Shape{32, 2, 64}, Shape{32, 2, 512}, Shape{64, 2, 128},
        Shape{16, 4, 256}, Shape{128, 1, 512}, Shape{1024, 1, 1024}})
    for (const auto name : names()) {
      if (const auto schedule = named(name, shape)) {
        const std::size_t bytes = to_text(*schedule).size();
        cr_assert_leq(bytes, std::size_t{16} << 10, "%.*s of %d stages, %d chunks: %zu bytes",
                      static_cast<int>(name.size()), name.data(), shape.stages, shape.chunks,
                      bytes);
      }
    }
}
