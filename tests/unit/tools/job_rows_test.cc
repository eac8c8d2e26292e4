// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/job_rows.h"

#include <criterion/criterion.h>

#include "unit/tools/site_builder.h"

using namespace swell;
using namespace swell::tools;
using swell::test::elastic_job;

namespace {

slurm::Snapshot queue() {
  slurm::Snapshot snapshot;
  snapshot.jobs.push_back(elastic_job(
      30,
      "elastic=max=4x,grace=30 basic=4 lent=12 state=ACTIVE generation=3 workers=16 grants=2 "
      "refused=3 why=qos reclaims=1 companions=31:node1:4:4-7;32:node2:8:0-7"));
  snapshot.jobs.push_back(elastic_job(31, "parent=30 grant=n1"));
  snapshot.jobs.back().gpus = {{"node1", {4, "h100", "4-7"}}};
  snapshot.jobs.push_back(elastic_job(32, "parent=30 grant=n2"));
  snapshot.jobs.back().gpus = {{"node2", {8, "h100", "0-7"}}};
  slurm::JobRecord waiting = elastic_job(
      9, "elastic=max=12 basic=8 lent=4 state=ACTIVE generation=2 companions=3:node1:4:0-3");
  waiting.phase = slurm::JobPhase::pending;
  waiting.state_text = "PENDING";
  waiting.uid = 1001;
  waiting.user = "bob";
  snapshot.jobs.push_back(waiting);
  slurm::JobRecord ended = elastic_job(5, "elastic=max=12 basic=8");
  ended.phase = slurm::JobPhase::ended;
  ended.state_text = "COMPLETED";
  snapshot.jobs.push_back(ended);
  slurm::JobRecord plain;
  plain.id = 40;
  plain.phase = slurm::JobPhase::running;
  snapshot.jobs.push_back(plain);
  return snapshot;
}

std::string refusal(std::vector<slurm::JobId> ids) {
  JobFilter filter;
  filter.ids = std::move(ids);
  const auto rows = job_rows(queue(), filter);
  cr_assert_not(rows.ok());
  return rows.error().message();
}

}  // namespace

Test(job_rows, running_and_waiting_elastic_jobs_show_by_id) {
  const auto rows = job_rows(queue(), {});
  cr_assert(rows.ok());
  cr_assert_eq(rows->size(), 2u);
  cr_assert_eq((*rows)[0].id, 9u);
  const JobRow& row = (*rows)[1];
  cr_assert_eq(row.state, std::string("ACTIVE"));
  cr_assert_eq(row.basic_gpus + row.lent_gpus, 16);
  cr_assert_eq(row.max_gpus, 16);
  cr_assert_eq(row.companions.size(), 2u);
}

Test(job_rows, a_waiting_job_shows_nothing_of_its_former_run) {
  const auto rows = job_rows(queue(), {});
  const JobRow& row = (*rows)[0];
  cr_assert_eq(row.state, std::string("PENDING"));
  cr_assert_eq(row.lent_gpus, 0);
  cr_assert(row.companions.empty());
  cr_assert_eq(row.max_gpus, 12);
}

Test(job_rows, a_job_without_max_shows_no_limit_but_its_owner_s) {
  slurm::Snapshot snapshot = queue();
  const auto with = [&](const char* tag) {
    for (slurm::JobRecord& job : snapshot.jobs)
      if (job.id == 30) job.admin_comment = tag;
    return job_rows(snapshot, {}).value()[1];
  };
  const JobRow row = with("swell[elastic=grace=30 basic=4 lent=12]");
  cr_assert_not(row.max_gpus);
  cr_assert_neq(jobs_table({row}).find(" 16/- "), std::string::npos);
  cr_assert_neq(jobs_json({row}).dump().find("\"max_gpus\":null"), std::string::npos, "%s",
                jobs_json({row}).dump().c_str());
  cr_assert_eq(total_text(with("swell[elastic=grace=30 basic=4 own_max=9]")), "16/9");
}

Test(job_rows, the_maximum_is_one_that_sizes_and_step_let_it_have) {
  slurm::Snapshot snapshot = queue();
  const auto max = [&](const char* tag) {
    for (slurm::JobRecord& job : snapshot.jobs)
      if (job.id == 30) job.admin_comment = tag;
    const std::string total = total_text(job_rows(snapshot, {}).value()[1]);
    return total.substr(total.find('/') + 1);
  };
  cr_assert_eq(max("swell[elastic=max=16,sizes=4/8/12/32 basic=4 lent=4]"), "12");
  cr_assert_eq(max("swell[elastic=max=16,sizes=4/8/12/32 basic=4 own_max=9]"), "8");
  cr_assert_eq(max("swell[elastic=max=14,step=4 basic=4]"), "12");
  cr_assert_eq(max("swell[elastic=max=16,sizes=4/32 basic=4]"), "4");
  cr_assert_eq(max("swell[elastic=sizes=4/8 basic=4]"), "8", "no other limit");
}

Test(job_rows, a_job_of_which_nothing_was_said_yet_is_allocated) {
  slurm::Snapshot snapshot = queue();
  for (slurm::JobRecord& job : snapshot.jobs)
    if (job.id == 30) job.admin_comment = "swell[elastic=max=16 basic=4]";
  cr_assert_eq(job_rows(snapshot, {}).value()[1].state, std::string("ALLOCATED"));
}

Test(job_rows, a_job_that_consented_to_fewer_gpus_shows_what_it_asked_for) {
  slurm::Snapshot snapshot = queue();
  for (slurm::JobRecord& job : snapshot.jobs)
    if (job.id == 30) job.admin_comment = "swell[elastic=max=2x,min=4 basic=4 wanted=8 lent=2]";
  const auto rows = job_rows(snapshot, {});
  const JobRow& row = (*rows)[1];
  cr_assert_eq(row.id, 30u);
  cr_assert_eq(row.max_gpus, 16, "twice what it asked for");
  cr_assert_neq(jobs_table(*rows).find("Job 30 asked for 8 GPUs and consented to run with 4"),
                std::string::npos);
}

Test(job_rows, filters_by_user_and_id_and_says_why_a_job_is_missing) {
  JobFilter of_bob;
  of_bob.uid = 1001;
  cr_assert_eq(job_rows(queue(), of_bob)->size(), 1u);
  JobFilter one;
  one.ids = {30};
  cr_assert_eq(job_rows(queue(), one)->size(), 1u);
  cr_assert_eq(refusal({77}), std::string("there is no job 77"));
  cr_assert(refusal({40}).find("without --elastic") != std::string::npos);
  cr_assert(refusal({31}).find("companion of job 30") != std::string::npos);
  cr_assert(refusal({30, 5}).find("has ended (COMPLETED)") != std::string::npos);
}

Test(job_rows, the_table_lines_up) {
  const std::string text = jobs_table(*job_rows(queue(), {}));
  cr_assert_eq(
      text,
      std::string(
          "JOBID  USER  NAME   STATE    OWN  LENT  TOTAL/MAX  GENERATION  WORKERS  GRANTS  REFUSED  RECLAIMS  COMPANIONS (JOBID NODE:GPUS)\n"
          "    9  bob   llama  PENDING    8     0       8/12           0        0       0        0         0  -\n"
          "   30  ann   llama  ACTIVE     4    12      16/16           3       16       2  3 (qos)         1  31 node1:4-7, 32 node2:0-7\n"),
      "%s", text.c_str());
}

Test(job_rows, without_jobs_it_is_said_whether_swell_is_loaded) {
  const auto said = [](const char* plugins) {
    slurm::ControllerConfig slurmctld;
    slurmctld.job_submit_plugins = plugins;
    return no_jobs_text(slurmctld);
  };
  const std::string none = "No elastic jobs.\n";
  cr_assert_eq(said("lua,swell"), none);
  cr_assert_eq(said("job_submit/swell,lua"), none);
  cr_assert_eq(no_jobs_text(Error("no answer")), none);
  for (const char* plugins : {"(null)", "lua", "swelling", ""})
    cr_assert(said(plugins).starts_with("No elastic jobs: slurmctld does not load Swell"), "%s: %s",
              plugins, said(plugins).c_str());
}

Test(job_rows, json_has_every_companion) {
  const Json job = jobs_json(*job_rows(queue(), {})).at("jobs").at(1);
  cr_assert_eq(job.integer_at("total_gpus", 0, 99).value(), 16);
  cr_assert_eq(job.at("companions").at(1).dump(),
               std::string("{\"id\":32,\"node\":\"node2\",\"gpus\":8,\"gpu_indices\":\"0-7\"}"));
}

Test(job_rows, refused_grants_are_counted_with_the_reason_of_the_last) {
  const Json jobs = jobs_json(*job_rows(queue(), {})).at("jobs");
  cr_assert_eq(jobs.at(1).integer_at("refused", 0, 99).value(), 3);
  cr_assert_eq(jobs.at(1).at("refused_for").dump(), std::string("\"qos\""));
  cr_assert_eq(jobs.at(std::size_t{0}).integer_at("refused", 0, 99).value(), 0);
}

Test(job_rows, text_of_others_stays_in_its_cell_and_its_line) {
  slurm::Snapshot snapshot;
  slurm::JobRecord job = elastic_job(30, "elastic=max=4x,grace=30 basic=4 state=ACTIVE");
  job.name = "one\n  99999  root  forged  ACTIVE\x1b[31m";
  snapshot.jobs.push_back(job);
  auto rows = job_rows(snapshot, {});
  cr_assert(rows.ok());
  rows->front().no_growth = "a\nJob 1: your password has expired\x1b]0;pwned\a";
  const std::string text = jobs_table(*rows);
  cr_assert_eq(std::count(text.begin(), text.end(), '\n'), 3, "%s", text.c_str());
  cr_assert_eq(text.find('\x1b'), std::string::npos);
}

Test(job_rows, a_name_that_is_not_utf_8_is_shown_in_json) {
  slurm::Snapshot snapshot;
  slurm::JobRecord job = elastic_job(30, "elastic=max=4x,grace=30 basic=4 state=ACTIVE");
  job.name = "bad\xff";
  snapshot.jobs.push_back(job);
  const auto rows = job_rows(snapshot, {});
  cr_assert_eq(*jobs_json(*rows).at("jobs").at(std::size_t{0}).string_at("name"),
               std::string("bad\\xff"));
}

Test(job_rows, a_companion_that_the_admin_comment_does_not_name_counts_all_the_same) {
  slurm::Snapshot snapshot;
  snapshot.jobs.push_back(elastic_job(30, "elastic=max=8 basic=4 lent=0 state=ALLOCATED"));
  snapshot.jobs.push_back(elastic_job(31, "parent=30 grant=n1"));
  snapshot.jobs.back().gpus = {{"node2", {4, "h100", "0-3"}}};
  const auto rows = job_rows(snapshot, {});
  cr_assert(rows.ok());
  cr_assert_eq((*rows)[0].lent_gpus, 4);
  const std::string text = jobs_table(*rows);
  cr_assert_neq(text.find("31 node2:0-3"), std::string::npos, "%s", text.c_str());
  cr_assert_neq(text.find("Job 30 is lent more than the 0 of its AdminComment"), std::string::npos);
}

Test(job_rows, a_companion_that_has_gone_does_not_count_though_the_admin_comment_names_it) {
  slurm::Snapshot snapshot;
  snapshot.jobs.push_back(elastic_job(
      30, "elastic=max=16 basic=4 lent=8 state=ACTIVE companions=31:node2:4:0-3;32:node3:4:0-3"));
  snapshot.jobs.push_back(elastic_job(31, "parent=30 grant=n1"));
  snapshot.jobs.back().gpus = {{"node2", {4, "h100", "0-3"}}};
  snapshot.jobs.push_back(elastic_job(32, "parent=30 grant=n2"));
  snapshot.jobs.back().gpus = {{"node3", {4, "h100", "0-3"}}};
  cr_assert_eq(jobs_table(*job_rows(snapshot, {})).find("AdminComment"), std::string::npos);
  snapshot.jobs.back().phase = slurm::JobPhase::ended;
  const auto rows = job_rows(snapshot, {});
  cr_assert_eq((*rows)[0].lent_gpus, 4);
  cr_assert_eq((*rows)[0].companions.size(), 1u);
  const std::string text = jobs_table(*rows);
  cr_assert_neq(text.find("Job 30 is lent less than the 8 of its AdminComment"), std::string::npos,
                "%s", text.c_str());
  snapshot.jobs[1].phase = slurm::JobPhase::completing;
  cr_assert_eq((*job_rows(snapshot, {}))[0].lent_gpus, 0);
}
