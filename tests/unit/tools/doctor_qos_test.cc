// SPDX-License-Identifier: GPL-2.0-or-later
// Each property of an expansion QOS broken once: the right check says so, and says how it is
// fixed.
#include <criterion/criterion.h>

#include "unit/tools/doctor_case.h"

using namespace doctor_case;

namespace {

Qos& qos(Site& site, const char* name) {
  std::size_t i = 0;
  while (site.accounting->qos.at(i).name != name) ++i;
  return site.accounting->qos[i];
}

}  // namespace

Test(doctor, faults_of_the_expansion_qos) {
  const Case cases[] = {
      {"PreemptType", Level::fault, [](Site& s) { s.slurmctld->preempt_type = "preempt/none"; },
       "preempt/none", "in slurm.conf: PreemptType=preempt/qos"},
      {"PreemptMode", Level::fault, [](Site& s) { s.config.preempt_off = true; }, "OFF",
       "in slurm.conf: PreemptMode=CANCEL"},
      {"expansion-qos", Level::fault,
       [](Site& s) { s.accounting = Error("Unable to connect to database"); }, "Unable to connect",
       "systemctl start slurmdbd"},
      {"expansion-qos", Level::fault, [](Site& s) { s.accounting->qos.pop_back(); },
       "there is no QOS \"expansion\"",
       "sacctmgr -i add qos expansion set PreemptMode=cancel GraceTime=60"},
      {"expansion-qos", Level::fault, [](Site& s) { qos(s, "expansion").preempt_mode = "suspend"; },
       "suspend", "sacctmgr -i modify qos where name=expansion set PreemptMode=cancel"},
      {"expansion-qos", Level::fault,
       [](Site& s) {
         qos(s, "expansion").preempt_mode = "cluster", s.config.preempt_cancels = false;
       },
       "the cluster's", "PreemptMode=cancel"},
      {"expansion-qos", Level::fault, [](Site& s) { s.swell_conf->expansion_qos = "expnsion"; },
       "there is no QOS \"expnsion\", which swell.conf names; there is \"expansion\"",
       "in /etc/slurm/swell.conf: ExpansionQOS=expansion"},
      {"expansion-qos", Level::fault, [](Site& s) { s.swell_conf->expansion_qos = "lending"; },
       "there is \"expansion\"", "in /etc/slurm/swell.conf: ExpansionQOS=expansion"},
      {"preempts", Level::fault, [](Site& s) { qos(s, "normal").preempt.clear(); },
       "no QOS of a user", "sacctmgr -i modify qos where name=normal set Preempt+=expansion"},
      {"preempts", Level::warn,
       [](Site& s) {
         s.accounting->qos.push_back({"high", {}, "cluster", 0, 0, 1, 100, {}, {}});
         s.accounting->associations[1].qos.push_back("high");
       },
       "jobs of QOS high", "sacctmgr -i modify qos where name=high set Preempt+=expansion"},
      {"preempts-nothing", Level::fault, [](Site& s) { qos(s, "expansion").preempt = {"normal"}; },
       "taken from basic demand", "sacctmgr -i modify qos where name=expansion set Preempt="},
      {"GraceTime", Level::fault, [](Site& s) { qos(s, "expansion").grace_s = 0; },
       "killed at once", "set GraceTime=60"},
      {"PreemptExemptTime", Level::warn, [](Site& s) { s.config.preempt_exempt_s = 300; },
       "first 300 s", "in slurm.conf: PreemptExemptTime=00:00:00"},
      {"PreemptExemptTime", Level::warn, [](Site& s) { qos(s, "expansion").exempt_s = 5; },
       "first 5 s", "sacctmgr"},
      {"user-limits", Level::warn,
       [](Site& s) {
         s.accounting->associations[1].limits = {{"MaxJobsPerUser", "4"}};
       },
       "lab/ann has MaxJobsPerUser=4", "set such limits on the QOS"},
      {"associations", Level::fault,
       [](Site& s) { s.accounting->associations[1].qos = {"normal"}; }, "lab/ann",
       "sacctmgr -i modify user where name=ann account=lab set QOS+=expansion"},
      {"limits", Level::warn,
       [](Site& s) {
         qos(s, "expansion").limits = {{"GrpTRES", "cpu=9,gres/gpu=8"}, {"MaxWall", "01:00:00"}};
       },
       "GrpTRES=cpu=9,gres/gpu=8 MaxWall=01:00:00", "set GrpTRES=cpu=-1,gres/gpu=-1 MaxWall=-1"},
      {"limits", Level::fault,
       [](Site& s) {
         qos(s, "expansion").limits = {{"MaxTRESPerUser", "gres/gpu=0"}};
       },
       "refuses every companion", "set MaxTRESPerUser=gres/gpu=-1"},
  };
  for (const Case& each : cases) expect(healthy_site(), each);
}

Test(doctor, limits_that_slurm_does_not_enforce_are_not_a_fault) {
  Site site = healthy_site();
  site.config.enforces_qos = site.config.enforces_limits = false;
  site.accounting->associations[1].qos = {"normal"};
  qos(site, "expansion").limits = {{"MaxJobsPerUser", "0"}};
  expect_all_good(site);
}

Test(doctor, a_job_that_gets_past_job_submit_must_gain_nothing) {
  const Case cases[] = {
      {"without-plugin", Level::warn, [](Site& s) { qos(s, "expansion").usage_factor = 0; },
       "any user's job in QOS \"expansion\" would be charged 0 where \"normal\" is charged 1",
       "sacctmgr -i modify qos where name=expansion set UsageFactor=1"},
      {"without-plugin", Level::warn, [](Site& s) { qos(s, "expansion").priority = 200; },
       "have priority 200 where \"normal\" has 100", "set Priority=100"},
      {"without-plugin", Level::warn, [](Site& s) { qos(s, "expansion").flags = {"OverPartQOS"}; },
       "pass over limits of partitions (OverPartQOS)", "set Flags-=OverPartQOS"},
      {"without-plugin", Level::warn,
       [](Site& s) {
         qos(s, "normal").limits = {{"MaxTRESPerUser", "gres/gpu=8"}, {"MaxWall", "1-00:00:00"}};
       },
       "not be held by MaxTRESPerUser=gres/gpu=8 of normal; not be held by MaxWall=1-00:00:00",
       "set MaxTRESPerUser=gres/gpu=8 MaxWall=1-00:00:00"},
      {"without-plugin", Level::warn,
       [](Site& s) {
         qos(s, "normal").limits = {{"MaxTRESPerUser", "cpu=64,gres/gpu=8"}};
         qos(s, "expansion").limits = {{"MaxTRESPerUser", "gres/gpu=8"}};
       },
       "MaxTRESPerUser=cpu=64,gres/gpu=8", "set MaxTRESPerUser=cpu=64,gres/gpu=8"},
      {"without-plugin", Level::warn,
       [](Site& s) {
         s.accounting->associations[1].limits = {{"GrpTRES", "gres/gpu=2"}};
         qos(s, "expansion").limits = {{"GrpTRES", "gres/gpu=100"}};
       },
       "not be held by GrpTRES=gres/gpu=2 of lab/ann", "set GrpTRES=gres/gpu=-1"},
  };
  for (const Case& each : cases) expect(healthy_site(), each);
}

Test(doctor, limits_that_hold_for_every_qos_of_a_user_need_not_be_on_the_expansion_qos) {
  Site site = healthy_site();
  site.accounting->associations[1].limits = {{"GrpTRES", "gres/gpu=2"}, {"MaxJobsPerUser", "4"}};
  for (const Finding& finding : examine(site))
    cr_assert(finding.level == Level::ok || finding.check == "user-limits", "%s: %s",
              finding.check.c_str(), finding.what.c_str());
  site.accounting->associations[1].limits.clear();
  // The QOS of a partition counts jobs of every QOS, and comes before theirs.
  qos(site, "normal").limits = {{"MaxTRESPerUser", "gres/gpu=8"}};
  site.accounting->qos.push_back(
      {"train", {"expansion"}, "cluster", 0, 0, 1, 100, {}, {{"MaxTRESPerUser", "gres/gpu=8"}}});
  site.partitions[0].qos = "train";
  expect_all_good(site);
  // A user who has a QOS without the limit does not need the expansion QOS to pass it over.
  site.partitions[0].qos.clear();
  site.accounting->associations[1].qos.push_back("train");
  qos(site, "train").limits.clear();
  expect_all_good(site);
}

Test(doctor, limits_as_tight_as_those_of_users_are_as_they_should_be) {
  Site site = healthy_site();
  qos(site, "normal").limits = {{"MaxTRESPerUser", "gres/gpu=8"}, {"MaxWall", "1-00:00:00"}};
  qos(site, "expansion").limits = {{"MaxTRESPerUser", "cpu=9,gres/gpu=4"}, {"MaxWall", "24:00:00"}};
  expect_all_good(site);
}
