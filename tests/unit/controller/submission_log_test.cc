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
  record.submit_time = submitted;
  record.gpus_in_all.count = gpus;
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
      at(10000, {pending_job(1, 9900, 32), pending_job(2, 9900, 31), pending_job(3, 9400, 64)}),
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
  slurm::JobRecord job = pending_job(1, 9900, 64);
  log.look(at(9901, {job}), kWindow, 32);
  job.phase = slurm::JobPhase::running;
  job.gpus_in_all.count = 0;
  slurm::GpuAllocation held;
  held.gpus.count = 64;
  job.gpus = {held};
  log.look(at(9950, {job}), kWindow, 32);
  job = pending_job(1, 9990, 64);
  log.look(at(10000, {job}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 1);
  cr_assert_eq(log.on_clock(0, 10000)[0].submitted_s, -100, "the first submission counts");
}

Test(submission_log, counts_an_array_by_task_while_slurm_splits_it) {
  SubmissionLog log;
  slurm::JobRecord array = pending_job(7, 9900, 32);
  array.in_array = true;
  array.array = 7;
  array.pending_tasks = 10;
  log.look(at(9901, {array}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 10);
  array.pending_tasks = 8;
  std::vector<slurm::JobRecord> jobs = {array};
  for (control::JobId id : {8, 9}) {
    slurm::JobRecord task = pending_job(id, 9900, 32);
    task.in_array = true;
    task.array = 7;
    task.phase = slurm::JobPhase::running;
    jobs.push_back(task);
  }
  log.look(at(9920, jobs), kWindow, 32);
  cr_assert_eq(tasks_of(log), 10);
  log.look(at(9930, {array}), kWindow, 32);
  cr_assert_eq(tasks_of(log), 10, "two have ended and are forgotten by Slurm");
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
    jobs.push_back(pending_job(id, 9500 + static_cast<std::time_t>(id) % 400, 64));
  log.look(at(10000, jobs), kWindow, 32);
  const auto all = log.on_clock(10000, 10000);
  cr_assert_eq(all.size(), SubmissionLog::kMax);
  cr_assert_geq(all.front().submitted_s, 9500 + 100);
}

Test(submission_log, reads_back_what_it_writes_and_refuses_the_rest) {
  SubmissionLog log;
  log.look(at(10000, {pending_job(1, 9900, 32), pending_job(4, 9950, 64)}), kWindow, 32);
  cr_assert(SubmissionLog::from_json(log.to_json()).value() == log);
  for (const char* bad : {"{}", "[[1,2,3]]", "[[0,2,3,1]]", "[[1,-2,3,1]]", "[[1,2,0,1]]",
                          "[[1,2,3,0]]", "[[1,2,3,\"x\"]]", "[[1,2,3,1.5]]", "[7]"})
    cr_assert_not(SubmissionLog::from_json(Json::parse(bad).value()).ok(), "%s", bad);
}
