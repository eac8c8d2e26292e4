// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/narrowing.h"

#include <criterion/criterion.h>
#include <fmt/format.h>

#include "unit/plugins/fake_slurmctld.h"

using namespace swell::select;

namespace {

/// `racks` of `each` nodes, n0, n1, ... in order, under one spine; all with as much memory, or each
/// rack with its own.
std::shared_ptr<const Blocks> racks(int count, int each, bool same_memory = true) {
  auto blocks = std::make_shared<Blocks>();
  blocks->nodes = count * each;
  std::vector<int> all;
  auto& lowest = blocks->groups.emplace_back();
  for (int rack = 0; rack < count; ++rack) {
    std::string names;
    for (int i = 0; i < each; ++i)
      names += fmt::format("{}n{}", i == 0 ? "" : ",", rack * each + i);
    blocks->leaves.push_back(names);
    lowest.push_back({rack});
    all.push_back(rack);
  }
  blocks->groups.push_back({all});
  blocks->alike = blocks->leaves;
  if (same_memory) {
    for (std::size_t rack = 1; rack < blocks->leaves.size(); ++rack)
      blocks->alike[0] += "," + blocks->leaves[rack];
    blocks->alike.resize(1);
  }
  return blocks;
}

/// One question to the plugin, with every node a candidate, and what became of it.
struct Question {
  Bitmap nodes;
  JobTest call;
  int result = 0;

  explicit Question(std::uint32_t min, std::uint32_t wanted = 0, std::uint16_t mode = 0) {
    nodes.bits.assign(static_cast<std::size_t>(fake::node_count), true);
    call.nodes = &nodes;
    call.min_nodes = min;
    call.wanted_nodes = call.max_nodes = std::max(min, wanted);
    call.mode = mode;
  }
  Question& ask(Narrowing& narrowing, const std::shared_ptr<const Blocks>& blocks) {
    call.nodes = &nodes;
    result = narrowing.test(call, blocks, 1);
    return *this;
  }
  std::string taken() const { return fake::text(nodes); }
};

const Bitmaps api = fake::bitmaps();

}  // namespace

Test(narrowing, a_job_gets_the_tightest_rack_that_has_idle_nodes) {
  fake::reset(12);
  fake::use({0, 1, 4});
  Narrowing narrowing(api, fake::cons_tres);
  Question question(3);
  cr_assert_eq(question.ask(narrowing, racks(3, 4)).result, 0);
  cr_assert_eq(question.taken(), "5 6 7");
  cr_assert_eq(fake::calls.size(), 2);
}

Test(narrowing, as_few_racks_as_possible_where_one_is_too_small) {
  fake::reset(12);
  fake::use({0, 1, 2, 4});
  Narrowing narrowing(api, fake::cons_tres);
  Question question(6);
  cr_assert_eq(question.ask(narrowing, racks(3, 4)).result, 0);
  cr_assert_eq(question.taken(), "5 6 7 8 9 10");
}

Test(narrowing, a_job_of_one_node_leaves_whole_racks_for_others) {
  fake::reset(8);
  fake::use({4, 5});
  Narrowing narrowing(api, fake::cons_tres);
  Question question(1), named(1);
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(question.taken(), "6");
  fake::accepts = [](const JobTest& call) { return call.nodes->bits[0]; };  // -w n0
  cr_assert_eq(named.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(named.taken(), "0");
}

Test(narrowing, a_job_of_one_node_in_partial_use_is_asked_about_once) {
  fake::reset(8);
  fake::use({4, 5});
  fake::idle_nodes.bits[0] = false;  // half free: the job fits there too
  Narrowing narrowing(api, fake::cons_tres);
  cr_assert_eq(Question(1).ask(narrowing, racks(2, 4)).taken(), "0");
  cr_assert_eq(fake::calls.size(), 1);
}

Test(narrowing, a_job_that_fits_only_across_racks_starts) {
  fake::reset(8);
  fake::use({0, 1, 2, 4, 5});
  Narrowing narrowing(api, fake::cons_tres);
  Question question(3);
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(question.taken(), "3 6 7");
}

Test(narrowing, a_refusal_of_cons_tres_costs_one_question) {
  fake::reset(8);
  fake::use({0, 1, 2, 4, 5, 6});
  Narrowing narrowing(api, fake::cons_tres);
  cr_assert_neq(Question(3).ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(fake::calls.size(), 1);
}

Test(narrowing, a_tight_choice_costs_one_question) {
  fake::reset(8);
  Narrowing narrowing(api, fake::cons_tres);
  cr_assert_eq(Question(3).ask(narrowing, racks(2, 4)).taken(), "0 1 2");
  cr_assert_eq(Question(6).ask(narrowing, racks(2, 4)).taken(), "0 1 2 3 4 5");
  cr_assert_eq(fake::calls.size(), 2);
}

Test(narrowing, nodes_that_the_job_names_are_taken) {
  fake::reset(8);
  fake::use({1, 2});
  fake::accepts = [](const JobTest& call) {
    return call.nodes->bits[0] && call.nodes->bits[4];
  };  // -w n0,n4
  Narrowing narrowing(api, fake::cons_tres);
  Question question(3);
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(question.taken(), "0 3 4");
}

Test(narrowing, breaks_into_no_more_idle_nodes_than_cons_tres) {
  fake::reset(8);
  for (std::size_t node : {3, 4})
    fake::idle_nodes.bits[node] = false;  // half free: the job fits there too
  fake::fits = {false, false, false, true, true, true, true, true};
  Narrowing narrowing(api, fake::cons_tres);
  Question question(2);
  question.ask(narrowing, racks(2, 4));
  cr_assert_eq(question.taken(), "3 4");  // not 4 5
}

Test(narrowing, nothing_is_preempted_for_nearness) {
  fake::reset(8);
  int candidates = 0;
  fake::use({1, 2, 3, 5, 6, 7});
  Narrowing narrowing(api, fake::cons_tres);
  Question question(2);
  question.call.preemption_candidates = &candidates;
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(question.taken(), "0 4");
  for (std::size_t i = 0; i < fake::calls.size(); ++i)
    cr_assert_eq(fake::calls[i].preemption_candidates,
                 fake::asked[i] == "0 1 2 3 4 5 6 7" ? &candidates : nullptr);
}

Test(narrowing, a_job_that_preempts_is_left_where_cons_tres_put_it) {
  fake::reset(8);
  fake::idle_nodes.bits.assign(8, false);
  static int job = 0;
  void* to_preempt = nullptr;
  fake::accepts = [](const JobTest& call) {
    *call.to_preempt = &job;
    return true;
  };
  fake::fits = {true, false, false, false, true, true, true, true};
  Narrowing narrowing(api, fake::cons_tres);
  Question question(2);
  question.call.to_preempt = &to_preempt;
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(fake::calls.size(), 1);
}

Test(narrowing, nodes_in_partial_use_are_kept_together_too) {
  fake::reset(8);
  fake::idle_nodes.bits.assign(8, false);
  fake::fits = {false, false, false, true, true, true, false, false};
  Narrowing narrowing(api, fake::cons_tres);
  Question question(2);
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(question.taken(), "4 5");
}

Test(narrowing, the_choice_of_cons_tres_comes_back_when_nothing_is_tighter) {
  fake::reset(8);
  fake::idle_nodes.bits.assign(8, false);
  fake::fits = {false, false, false, true, true, false, false, false};
  Narrowing narrowing(api, fake::cons_tres);
  Question question(2);
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(question.taken(), "3 4");
  cr_assert_leq(fake::calls.size(), 8);
}

Test(narrowing, an_idle_node_is_taken_beside_those_in_partial_use) {
  fake::reset(12);
  for (std::size_t node : {5, 6})
    fake::idle_nodes.bits[node] = false;  // half free: the job fits there too
  fake::fits = {true, false, false, false, true, true, true, true, false, false, false, false};
  fake::idle_nodes.bits[1] = fake::idle_nodes.bits[2] = fake::idle_nodes.bits[3] = false;
  Narrowing narrowing(api, fake::cons_tres);
  Question question(3);
  question.ask(narrowing, racks(3, 4));
  cr_assert_eq(question.taken(), "4 5 6");  // cons_tres alone: 0 4 5
}

Test(narrowing, a_range_gets_as_many_nodes_as_from_cons_tres) {
  fake::reset(8);
  fake::use({0});
  Narrowing narrowing(api, fake::cons_tres);
  Question question(2, 6);
  cr_assert_eq(question.ask(narrowing, racks(2, 4)).result, 0);
  cr_assert_eq(question.taken(), "1 2 3 4 5 6");
}

Test(narrowing, a_job_of_tasks_is_pulled_together_where_nodes_are_alike) {
  fake::reset(8);
  fake::use({0, 1, 2});
  fake::accepts = [](const JobTest& call) {  // -n: cons_tres finds out how many nodes
    const_cast<JobTest&>(call).wanted_nodes = 2;
    return true;
  };
  Narrowing narrowing(api, fake::cons_tres);
  Question alike(1), different(1);
  alike.ask(narrowing, racks(2, 4, true));
  cr_assert_eq(alike.taken(), "4 5");
  different.ask(narrowing, racks(2, 4, false));
  cr_assert_eq(different.taken(), "3 4");
}

Test(narrowing, questions_that_start_nothing_pass_untouched) {
  fake::reset(8);
  fake::use({1});
  Narrowing narrowing(api, fake::cons_tres);
  for (std::uint16_t mode : {1, 2, 0x100, 0x401}) {
    Question question(3, 0, mode);
    question.ask(narrowing, racks(2, 4));
    cr_assert_eq(question.taken(), "0 2 3", "mode %d", mode);
  }
  cr_assert_eq(fake::calls.size(), 4);
}

Test(narrowing, without_blocks_or_with_another_node_table_cons_tres_decides) {
  fake::reset(8);
  fake::use({0, 1});
  Narrowing narrowing(api, fake::cons_tres);
  Question unknown(3);
  unknown.ask(narrowing, nullptr);
  cr_assert_eq(unknown.taken(), "2 3 4");
  const auto blocks = racks(2, 4);
  cr_assert_eq(Question(3).ask(narrowing, blocks).taken(), "4 5 6");
  fake::node_count = 9;  // a node was added: slurmctld's bitmaps are longer than the plugin's
  fake::fits.push_back(true);
  fake::idle_nodes.bits.push_back(true);
  Question longer(3);
  longer.ask(narrowing, blocks);
  cr_assert_eq(longer.taken(), "2 3 4");
}

Test(narrowing, keeps_no_bitmap) {
  fake::reset(8);
  {
    Narrowing narrowing(api, fake::cons_tres);
    for (int i = 0; i < 10; ++i) Question(3).ask(narrowing, racks(2, 4));
  }
  cr_assert_eq(fake::live_bitmaps, 0);
}
