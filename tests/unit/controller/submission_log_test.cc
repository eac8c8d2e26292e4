// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/submission_log.h"

#include <criterion/criterion.h>

#include "control/tag.h"

using namespace swell;
using namespace swell::controller;

namespace {

constexpr double kWindow = 600;

slurm::JobRecord pending_job(control::JobId id, std::time_t submitted, int gpus) {
  slurm::JobRecord record;
  record.id = id;
  record.phase = slurm::JobPhase::pending;
  record.waiting = slurm::Waiting::for_resources;
  record.submit_time = submitted;
  record.gpus_in_all.count = gpus;
  return record;
}

slurm::JobRecord running_job(control::JobId id, std::time_t submitted, int gpus) {
  slurm::JobRecord record = pending_job(id, submitted, 0);
  record.phase = slurm::JobPhase::running;
  slurm::GpuAllocation held;
  held.gpus.count = gpus;
  record.gpus = {held};
  return record;
}

slurm::Snapshot at(std::time_t taken, std::vector<slurm::JobRecord> jobs) {
  slurm::Snapshot snapshot;
  snapshot.taken = taken;
  snapshot.jobs = std::move(jobs);
  return snapshot;
}

int tasks_of(const SubmissionLog& log, std::time_t now = 10000) {
  int tasks = 0;
  for (const policy::Submission& one : log.on_clock(0, now)) tasks += one.tasks;
  return tasks;
}

}  // namespace

Test(submission_log, keeps_large_jobs_of_the_window_after_they_have_ended) {
  SubmissionLog log;
  log.look(
      at(10000, {running_job(1, 9900, 32), running_job(2, 9900, 31), running_job(3, 9400, 64)}),
      kWindow, 32);
  log.look(at(10010, {}), kWindow, 32);
  const auto all = log.on_clock(50, 10010);
  cr_assert_eq(all.size(), 1u);
  cr_assert_eq(all[0].submitted_s, 50 - 110);
  cr_assert_eq(all[0].gpus, 32);
  log.look(at(10500, {}), kWindow, 32);
  cr_assert(log.on_clock(0, 10500).empty(), "600 s later it is forgotten");
}

Test(submission_log, counts_a_running_job_and_a_requeued_one_once) {
  SubmissionLog log;
  log.look(at(9901, {pending_job(1, 9900, 64)}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 1);
  log.look(at(9950, {running_job(1, 9900, 64)}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 1);
  log.look(at(10000, {pending_job(1, 9990, 64)}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 1);
  cr_assert_eq(log.on_clock(0, 10000)[0].submitted_s, -100, "the first submission counts");
}

Test(submission_log, counts_an_array_by_task_while_slurm_splits_it) {
  SubmissionLog log;
  slurm::JobRecord array = pending_job(7, 9900, 32);
  array.in_array = true;
  array.pending_tasks = 10;
  log.look(at(9901, {array}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 10);
  array.pending_tasks = 8;
  log.look(at(9920, {array, running_job(8, 9900, 32), running_job(9, 9900, 32)}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 10);
  log.look(at(9930, {array}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 10, "two have ended and are forgotten by Slurm");
}

Test(submission_log, jobs_held_or_cancelled_before_their_start_do_not_count) {
  SubmissionLog log;
  slurm::JobRecord held = pending_job(1, 9900, 64);
  held.waiting = slurm::Waiting::for_other;
  held.pending_tasks = 4'000'000;
  log.look(at(9950, {held, pending_job(2, 9900, 64)}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 1);
  log.look(at(9960, {held}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 0, "job 2 was cancelled");
}

Test(submission_log, leaves_companions_out) {
  SubmissionLog log;
  slurm::JobRecord companion = pending_job(1, 9900, 64);
  companion.admin_comment = control::Tag{{"parent", "5"}, {"grant", "abc"}}.text();
  log.look(at(10000, {companion}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 0);
}

Test(submission_log, is_bounded_and_drops_the_oldest) {
  SubmissionLog log;
  std::vector<slurm::JobRecord> jobs;
  for (control::JobId id = 1; id <= 1500; ++id)
    jobs.push_back(running_job(id, 9500 + static_cast<std::time_t>(id) % 400, 64));
  log.look(at(10000, jobs), kWindow, 32);
  const auto all = log.on_clock(10000, 10000);
  cr_assert_eq(all.size(), swell::policy::kMaxSubmissions);
  cr_assert_geq(all.front().submitted_s, 9500 + 100);
  SubmissionLog same;
  for (slurm::JobRecord& job : jobs) job.submit_time = 9900;
  same.look(at(10000, jobs), kWindow, 32);
  cr_assert_eq(same.on_clock(0, 10000).size(), swell::policy::kMaxSubmissions);
}

Test(submission_log, a_hundred_thousand_jobs_take_a_moment) {
  SubmissionLog log;
  std::vector<slurm::JobRecord> jobs;
  for (control::JobId id = 1; id <= 100'000; ++id)
    jobs.push_back(running_job(id, 9500 + static_cast<std::time_t>(id) % 400, 64));
  const slurm::Snapshot all = at(10000, std::move(jobs));
  const auto before = std::clock();
  for (int round = 0; round < 3; ++round) log.look(all, kWindow, 32);
  cr_assert_lt(std::clock() - before, 10 * CLOCKS_PER_SEC, "the square of it takes minutes");
}

Test(submission_log, reads_back_what_it_writes_and_refuses_the_rest) {
  SubmissionLog log;
  log.look(at(10000, {running_job(1, 9900, 32), running_job(4, 9950, 64)}), kWindow, 32);
  cr_assert(SubmissionLog::from_json(log.to_json()).value() == log);
  cr_assert_eq(log.to_json().size(), 2u);
  for (const char* bad : {"{}", "[[1,2]]", "[[0,2,3]]", "[[1,-2,3]]", "[[1,2,0]]", "[[1,2,\"x\"]]",
                          "[[1,2,1.5]]", "[7]"})
    cr_assert_not(SubmissionLog::from_json(Json::parse(bad).value()).ok(), "%s", bad);
}
