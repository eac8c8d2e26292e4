// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/absence.h"

#include <criterion/criterion.h>
#include <slurm/slurm_errno.h>

#include "unit/plugins/fake_slurmctld.h"

using namespace swell::select;
using swell::slurm::NodeRecord;

namespace {

const Bitmaps api = fake::bitmaps();

NodeRecord node(const char* name, int gpus, bool registered) {
  NodeRecord record;
  record.name = name;
  if (gpus > 0) record.gpus.push_back({gpus, "h100", {}});
  record.registered = registered;
  return record;
}

std::shared_ptr<const Absent> absent(const char* names, int count) {
  return std::make_shared<const Absent>(Absent{.names = names, .count = count});
}

/// One question to the plugin, with every node a candidate.
struct Question {
  Bitmap nodes;
  JobTest call;

  explicit Question(std::uint32_t min, std::uint16_t mode = 0) {
    nodes.bits.assign(static_cast<std::size_t>(fake::node_count), true);
    call.nodes = &nodes;
    call.min_nodes = call.max_nodes = min;
    call.mode = mode;
  }
  int ask(Absence& absence, const std::shared_ptr<const Absent>& away, std::uint32_t table = 1) {
    return absence.test(call, away, table);
  }
  std::string taken() const { return fake::text(nodes); }
};

}  // namespace

Test(absence, nodes_with_gpus_that_have_not_registered_are_absent) {
  const Absent away = absent_among(
      {node("n0", 8, true), node("n1", 8, false), node("n2", 0, false), node("n3", 4, false)});
  cr_assert_eq(away.names, "n1,n3");
  cr_assert_eq(away.count, 2);
  cr_assert(away.known);
  cr_assert_eq(absent_among({node("n0", 8, true)}), Absent{});
}

Test(absence, nodes_are_waited_for_until_they_are_there_or_given_up) {
  using News = AbsenceWatch::News;
  using std::chrono::seconds;
  const auto some = [](const char* names, int count) {
    return Absent{.names = names, .count = count};
  };
  const AbsenceWatch::Clock::time_point begin{};
  AbsenceWatch watch;
  cr_assert(watch.see(Absent{}, begin) == News::none);
  cr_assert_not(watch.waits());
  cr_assert(watch.see(some("n0,n1", 2), begin) == News::waits);
  cr_assert(watch.see(some("n1", 1), begin + seconds(200)) == News::none);
  cr_assert(watch.waits());
  cr_assert(watch.pass(begin + seconds(300)) == News::none);
  cr_assert(watch.pass(begin + seconds(301)) == News::gave_up, "n1 has had its time");
  cr_assert_not(watch.waits());
  cr_assert(watch.pass(begin + seconds(302)) == News::none, "said once");
  cr_assert(watch.see(Absent{}, begin + seconds(400)) == News::none, "nothing waited for it");
  cr_assert(watch.see(some("n0", 1), begin + seconds(500)) == News::waits);
  cr_assert(watch.see(Absent{}, begin + seconds(501)) == News::all_there);
}

Test(absence, one_more_that_is_absent_is_waited_for_though_others_were_given_up) {
  using std::chrono::seconds;
  const AbsenceWatch::Clock::time_point begin{};
  AbsenceWatch watch;
  watch.see(Absent{.names = "n0", .count = 1}, begin);
  watch.pass(begin + seconds(301));
  cr_assert_not(watch.waits());
  watch.see(Absent{.names = "n0,n1", .count = 2}, begin + seconds(310));
  cr_assert(watch.waits());
  cr_assert(watch.pass(begin + seconds(600)) == AbsenceWatch::News::none);
  cr_assert(watch.pass(begin + seconds(611)) == AbsenceWatch::News::gave_up);
}

Test(absence, a_job_starts_on_nodes_that_have_registered) {
  fake::reset(4);
  Absence absence(api, fake::cons_tres);
  Question question(2);
  cr_assert_eq(question.ask(absence, absent("n0,n2", 2)), 0);
  cr_assert_eq(question.taken(), "1 3");
  cr_assert_eq(fake::asked, std::vector<std::string>{"1 3"});
}

Test(absence, a_job_waits_where_too_few_have_registered_and_its_candidates_stay) {
  fake::reset(3);
  Absence absence(api, fake::cons_tres);
  Question question(2);
  cr_assert_eq(question.ask(absence, absent("n0,n2", 2)), ESLURM_NODES_BUSY);
  cr_assert_eq(question.ask(absence, absent("n0,n1,n2", 3)), ESLURM_NODES_BUSY);
  cr_assert(fake::calls.empty());
  cr_assert_eq(question.taken(), "0 1 2");
}

Test(absence, candidates_are_as_they_were_when_the_job_does_not_fit) {
  fake::reset(3);
  fake::use({1, 2});
  Absence absence(api, fake::cons_tres);
  Question question(1);
  cr_assert_neq(question.ask(absence, absent("n0", 1)), 0);
  cr_assert_eq(fake::asked, std::vector<std::string>{"1 2"});
  cr_assert_eq(question.taken(), "0 1 2");
}

Test(absence, nothing_starts_before_the_nodes_are_known) {
  fake::reset(2);
  Absence absence(api, fake::cons_tres);
  const auto unknown =
      std::make_shared<const Absent>(Absent{.names = {}, .count = 0, .known = false});
  cr_assert_eq(Question(1).ask(absence, unknown), ESLURM_NODES_BUSY);
  cr_assert_eq(Question(1, 0x0100).ask(absence, unknown), ESLURM_NODES_BUSY, "flags, too");
  cr_assert(fake::calls.empty());
  cr_assert_eq(Question(1).ask(absence, nullptr), 0);
}

Test(absence, jobs_that_do_not_start_now_see_all_nodes) {
  fake::reset(2);
  Absence absence(api, fake::cons_tres);
  for (const std::uint16_t mode : {1, 2, 0x0101})
    cr_assert_eq(Question(2, mode).ask(absence, absent("n0", 1)), 0);
  cr_assert_eq(fake::asked, (std::vector<std::string>{"0 1", "0 1", "0 1"}));
}

Test(absence, names_are_looked_up_again_when_they_or_the_node_table_change) {
  fake::reset(3);
  Absence absence(api, fake::cons_tres);
  const auto away = absent("n0", 1);
  cr_assert_eq(Question(1).ask(absence, away), 0);
  cr_assert_eq(fake::live_bitmaps, 1, "kept between calls");
  fake::reset(4);
  cr_assert_eq(Question(1).ask(absence, away, 2), 0);
  cr_assert_eq(fake::asked, std::vector<std::string>{"1 2 3"});
  cr_assert_eq(Question(1).ask(absence, absent("n1", 1), 2), 0);
  cr_assert_eq(fake::asked.back(), "0 2 3");
}

Test(absence, a_table_of_another_size_is_left_to_slurm) {
  fake::reset(3);
  Absence absence(api, fake::cons_tres);
  const auto away = absent("n0", 1);
  cr_assert_eq(Question(1).ask(absence, away), 0);
  fake::node_count = 2;
  cr_assert_eq(Question(1).ask(absence, away), 0);
  cr_assert_eq(fake::asked.back(), "0 1");
}
