// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/host.h"

#include <chrono>
#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

using namespace swell;
using namespace swell::controller;

namespace {

/// The folder of slurm.conf and swell.conf, of which slurmctld's environment tells.
struct Site {
  Site() {
    char name[] = "/tmp/swell-host-XXXXXX";
    path = mkdtemp(name);
    std::filesystem::create_directory(path + "/state");
    std::ofstream(path + "/slurm.conf")
        << "ClusterName=c\nStateSaveLocation=" << path << "/state\n";
    setenv("SLURM_CONF", (path + "/slurm.conf").c_str(), 1);
  }
  ~Site() { std::filesystem::remove_all(path); }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  void write_swell_conf(const std::string& text) const {
    std::ofstream(path + "/swell.conf") << text;
  }
  void remove_swell_conf() const { std::filesystem::remove(path + "/swell.conf"); }

  std::string path;
};

SubmitRequest submission(const std::string& qos) {
  SubmitRequest request;
  request.uid = 1000;
  request.name = "train";
  request.qos = qos;
  return request;
}

int lines_logged = 0;
void count_line(const char*) { ++lines_logged; }

}  // namespace

Test(host, the_place_of_companions_is_closed_before_a_controller_runs) {
  const Site site;
  site.write_swell_conf("ExpansionQOS=expansion\n");
  cr_assert_eq(read_expansion_place(), PlaceKnown::from_conf);
  const auto refused = admit_submission(submission("expansion"));
  cr_assert_not(refused.ok());
  cr_assert_neq(refused.error().message().find("expansion"), std::string::npos);
  cr_assert(admit_submission(submission("normal")).ok());
  ChangeRequest change;
  change.uid = 1000;
  change.jobs = {7};
  change.qos = "expansion";
  cr_assert_not(check_submitted_change(change).ok());
  change.qos = "normal";
  cr_assert(check_submitted_change(change).ok());
  cr_assert_not(elasticity_is_on());
}

Test(host, the_place_stays_closed_when_swell_conf_is_gone_at_the_next_start) {
  const Site site;
  site.write_swell_conf("ExpansionQOS=expansion\n");
  // slurmctld before its restart.
  const pid_t before = fork();
  if (before == 0) _exit(read_expansion_place() == PlaceKnown::from_conf ? 0 : 1);
  int status = 0;
  cr_assert_eq(waitpid(before, &status, 0), before);
  cr_assert_eq(status, 0);
  site.remove_swell_conf();
  cr_assert_eq(read_expansion_place(), PlaceKnown::from_before);
  cr_assert_not(admit_submission(submission("expansion")).ok());
}

Test(host, another_place_that_swell_conf_names_later_is_closed_as_well) {
  const Site site;
  site.write_swell_conf("ExpansionQOS=expansion\n");
  cr_assert_eq(read_expansion_place(), PlaceKnown::from_conf);
  site.write_swell_conf("ExpansionQOS=spare\n");
  wake_controller();
  cr_assert_not(admit_submission(submission("spare")).ok());
}

Test(host, nothing_is_closed_where_no_place_was_ever_named) {
  const Site site;
  cr_assert_eq(read_expansion_place(), PlaceKnown::not_at_all);
  cr_assert(admit_submission(submission("expansion")).ok());
}

Test(host, the_base_scheduler_is_swell_confs_or_backfill) {
  const Site site;
  cr_assert_eq(base_scheduler(), "sched/backfill");
  site.write_swell_conf("ExpansionQOS=expansion\nBaseScheduler=sched/builtin\n");
  cr_assert_eq(base_scheduler(), "sched/builtin");
  site.write_swell_conf("BaseScheduler=sched/builtin\nNoSuchKey=1\n");
  cr_assert_eq(base_scheduler(), "sched/backfill", "a file that cannot be read says nothing");
}

Test(host, a_controller_that_waits_for_slurmctld_is_off_and_stops_at_once) {
  const Site site;
  const auto begin = std::chrono::steady_clock::now();
  start_controller({count_line, count_line});
  cr_assert_not(elasticity_is_on(), "slurmctld has not answered");
  std::uint32_t companions[4] = {};
  cr_assert_eq(swell_reclaim_order(companions, 4), 0u);
  stop_controller();
  cr_assert_lt(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  cr_assert_eq(lines_logged, 0);
  stop_controller();
  cr_assert_eq(swell_reclaim_order(companions, 4), 0u);
}
