// SPDX-License-Identifier: GPL-2.0-or-later
// Each property of a site broken once: the right check says so, and says how it is fixed.
#include <criterion/criterion.h>
#include <set>
#include <string>

#include "unit/tools/doctor_case.h"

using namespace doctor_case;

namespace {

void names_only_lua(Site& site) {
  site.slurmctld->job_submit_plugins = "lua";
  site.named_plugins.erase(site.named_plugins.begin() + 1);
}

/// "swell" misspelt: no plugin of that name is there.
void names_swel(Site& site) {
  site.slurmctld->job_submit_plugins = "lua,swel";
  NamedPlugin& wrong = site.named_plugins[1];
  wrong.word = "swel";
  wrong.file = {};
  wrong.file.name = "job_submit_swel.so";
}

void has_no_auth_plugin(Site& site) { site.named_plugins.back().file.path.clear(); }

}  // namespace

Test(doctor, a_healthy_site_has_no_fault_and_no_warning) {
  expect_all_good(healthy_site());
  expect_all_good(healthy_partition_site());
  cr_assert_not(has_fault(examine(healthy_site())));
}

Test(doctor, without_slurmctld_the_files_are_checked_all_the_same) {
  Site site = healthy_site();
  site.answers = Error("Unable to contact slurm controller");
  site.control_port = Error("Connection refused");
  site.partitions.clear();
  site.queue = {};
  expect(site, {"slurmctld", Level::fault, [](Site&) {}, "Unable to contact",
                "systemctl start slurmctld"});
  cr_assert_eq(faults(site), 1);
  expect(site, {"JobSubmitPlugins", Level::fault, names_only_lua, "lua", "swell,lua"});
}

Test(doctor, without_munge_the_fault_is_munge_and_the_files_are_checked_all_the_same) {
  Site site = healthy_site();
  site.munge = Error("munge does not sign: Socket communication error");
  site.cannot_ask = true;
  site.answers = Error("it cannot be asked without munge");
  site.accounting = Error("slurmdbd cannot be asked without munge");
  expect(site, {"munge", Level::fault, [](Site&) {}, "does not sign", "systemctl restart munge"});
  cr_assert_eq(faults(site), 1);
  expect(site, {"job_submit_swell.so", Level::fault,
                [](Site& s) { s.slurmctld_plugins[1].version = std::uint32_t{1}; }, "was built for",
                "configure"});
}

Test(doctor, without_slurm_conf_it_is_said_what_is_not_checked) {
  Site site;
  site.munge = Error("munge does not sign: Socket communication error");
  site.cannot_ask = true;
  site.answers = Error("it cannot be asked without munge");
  site.slurmctld = Error("/etc/slurm/slurm.conf: No such file or directory");
  expect(site, {"slurm.conf", Level::warn, [](Site&) {},
                "/etc/slurm/slurm.conf: No such file or directory; so neither it nor swell.conf",
                "SLURM_CONF"});
  cr_assert_eq(faults(site), 1, "munge alone");
}

Test(doctor, beside_auth_slurm_munge_is_asked_for_and_the_rest_is_checked) {
  Site site = healthy_site();
  site.slurmctld->auth_type = "auth/slurm";
  site.munge = Error("munge does not sign: Socket communication error");
  expect(site, {"munge", Level::fault, [](Site&) {}, "Slurm does without (AuthType=auth/slurm)",
                "apt-get install munge"});
  cr_assert_eq(faults(site), 1);
}

Test(doctor, before_the_restart_the_file_is_checked_and_the_restart_asked_for) {
  Site site = healthy_site();
  site.not_yet_running = {"JobSubmitPlugins=swell (it runs with none)"};
  site.control_port = Error("Connection refused");
  expect(site, {"restart", Level::fault, [](Site&) {}, "JobSubmitPlugins=swell (it runs with none)",
                "systemctl restart slurmctld"});
  cr_assert_eq(faults(site), 1);
}

Test(doctor, gpus_that_take_one_program_at_a_time_are_said) {
  expect(healthy_site(),
         {"compute mode", Level::warn,
          [](Site& s) {
            s.one_program_gpus = OneProgramGpus{{2, 3}, {}};
          },
          "GPUs 2-3 are in compute mode EXCLUSIVE_PROCESS, which refuses the second "
          "program of a live switch: jobs of mode=live are resized by restarts",
          "nvidia-smi -c DEFAULT"});
}

Test(doctor, without_any_configuration_that_alone_is_said) {
  Site site;
  site.slurmctld = Error("/etc/slurm/slurm.conf: Permission denied");
  const Findings findings = examine(site);
  cr_assert_eq(findings.size(), 1u);
  cr_assert(contains(findings[0].what, "Permission denied"));
}

Test(doctor, faults_of_the_installation) {
  const Case cases[] = {
      {"swell.conf", Level::fault,
       [](Site& s) {
         s.swell_conf = Error("/etc/slurm/swell.conf: line 2: unknown key \"Colour\"");
       },
       "elasticity is off: /etc/slurm/swell.conf: line 2: unknown key",
       "$EDITOR /etc/slurm/swell.conf"},
      {"swell.conf", Level::fault,
       [](Site& s) {
         s.swell_conf = Error("/etc/slurm/swell.conf: No such file or directory");
         s.slurmctld->accounting_storage_type = "accounting_storage/slurmdbd";
       },
       "elasticity is off: /etc/slurm/swell.conf: No such file",
       "echo ExpansionQOS=expansion >> /etc/slurm/swell.conf"},
      {"swell.conf", Level::fault,
       [](Site& s) {
         s.swell_conf = Error("/etc/slurm/swell.conf: No such file or directory");
         s.slurmctld->accounting_storage_type = "accounting_storage/none";
       },
       "elasticity is off", "echo ExpansionPartition=expansion >> /etc/slurm/swell.conf"},
      {"swell.conf", Level::fault, [](Site& s) { s.swell_conf_for_all = false; },
       "not readable by all users", "chmod a+r /etc/slurm/swell.conf"},
      {"swell.conf", Level::warn, [](Site& s) { s.swell_conf->enabled = false; }, "switched off",
       "Elasticity=yes"},
      {"swell.conf", Level::warn,
       [](Site& s) { s.swell_conf = Error("no such file"), s.host = "n1"; }, "never grow",
       "copy swell.conf of the controller host (10.0.0.1) to /etc/slurm/swell.conf"},
      {"swell.conf", Level::fault,
       [](Site& s) { s.swell_conf = Error("/etc/slurm/swell.conf: Permission denied"); },
       "it is there and cannot be read", "chmod a+r /etc/slurm/swell.conf"},
      {"swell.conf", Level::warn, [](Site& s) { s.swell_conf->draining = true; },
       "nothing more is lent", "swell drain --undo"},
      {"SchedulerType", Level::fault, [](Site& s) { s.under_stock_name = false; },
       "Slurm's own sched/backfill", "in slurm.conf: PluginDir=/plugins:/stock"},
      {"SchedulerType", Level::fault,
       [](Site& s) {
         s.under_stock_name = false, s.shadow.path = "/swell/shadow/sched_backfill.so";
       },
       "does not stand first", "in slurm.conf: PluginDir=/swell/shadow:/plugins:/stock"},
      {"SchedulerType", Level::warn,
       [](Site& s) { s.under_stock_name = false, s.slurmctld->scheduler_type = "sched/swell"; },
       "starts no heterogeneous jobs", "in slurm.conf: SchedulerType=sched/backfill"},
      {"SchedulerType", Level::fault,
       [](Site& s) { s.under_stock_name = false, s.slurmctld->scheduler_type = "sched/builtin"; },
       "it is sched/builtin", "in slurm.conf: SchedulerType=sched/backfill"},
      {"JobSubmitPlugins", Level::warn,
       [](Site& s) { s.slurmctld->job_submit_plugins = "lua,swell"; }, "lua stands before swell",
       "in slurm.conf: JobSubmitPlugins=swell,lua"},
      {"JobSubmitPlugins", Level::fault, names_only_lua, "lua",
       "in slurm.conf: JobSubmitPlugins=swell,lua"},
      {"JobSubmitPlugins", Level::fault,
       [](Site& s) { s.slurmctld->job_submit_plugins.clear(), s.named_plugins.clear(); },
       "it is empty", "in slurm.conf: JobSubmitPlugins=swell"},
      {"sched_backfill.so", Level::fault, [](Site& s) { s.slurmctld_plugins[0].path.clear(); },
       "/plugins:/stock", "in slurm.conf: PluginDir="},
      {"job_submit_swell.so", Level::fault,
       [](Site& s) { s.slurmctld_plugins[1].version = std::uint32_t{(22 << 16) + (5 << 8) + 9}; },
       "built for Slurm 22.05.9, but 22.05.8 runs", "headers of Slurm 22.05.8"},
      {"sched_backfill.so", Level::fault,
       [](Site& s) { s.slurmctld_plugins[0].version = Error("it is not a shared object"); },
       "it is not a shared object", "make install"},
      {"spank_swell.so", Level::fault,
       [](Site& s) { s.plugstack = std::optional<PlugstackEntry>(); }, "does not name it",
       "echo 'optional spank_swell.so' >> /etc/slurm/plugstack.conf"},
      {"job_submit_swell.so", Level::fault,
       [](Site& s) {
         s.slurmctld_plugins[1].path.clear(),
             s.slurmctld_plugins[1].unreadable = "/plugins/job_submit_swell.so: Permission denied";
       },
       "is there and cannot be read", "chmod a+r /plugins/job_submit_swell.so"},
      {"spank_swell.so", Level::fault,
       [](Site& s) { s.plugstack = Error("/etc/slurm/plugstack.conf: Permission denied"); },
       "it is there and cannot be read", "chmod a+r /etc/slurm/plugstack.conf"},
      {"spank_swell.so", Level::warn, [](Site& s) { (*s.plugstack)->required = true; },
       "refuses every submission", "optional"},
      {"spank_swell.so", Level::fault,
       [](Site& s) { (*s.plugstack)->plugin.path.clear(), (*s.plugstack)->required = true; },
       "no job can start here", "make install"},
      {"spank_swell.so", Level::fault,
       [](Site& s) { (*s.plugstack)->plugin.version = std::uint32_t{23 << 16}; },
       "built for Slurm 23.00.0", "./configure"},
  };
  for (const Case& each : cases) expect(healthy_site(), each);
}

Test(doctor, faults_with_which_slurmctld_would_not_start) {
  const Case cases[] = {
      {"JobSubmitPlugins", Level::fault, names_swel,
       "it names \"swel\", and job_submit_swel.so is in no folder of PluginDir (/plugins:/stock), so "
       "slurmctld does not start; \"swell\" was probably meant",
       "in slurm.conf: JobSubmitPlugins=swell,lua"},
      {"JobSubmitPlugins", Level::fault,
       [](Site& s) {
         names_swel(s), s.named_plugins[1].word = s.slurmctld->job_submit_plugins = "ours";
       },
       "it names \"ours\"", "in slurm.conf: JobSubmitPlugins=swell,lua"},
      {"PluginDir", Level::fault, has_no_auth_plugin,
       "no program of Slurm starts with /plugins:/stock: auth_munge.so of AuthType=auth/munge is in "
       "no folder of it",
       "in slurm.conf: PluginDir=/plugins:/stock:/"},
      {"PluginDir", Level::fault, [](Site& s) { s.missing_folders = {"/stock"}; },
       "there is no folder /stock here", "in slurm.conf: PluginDir=/plugins"},
  };
  for (const Case& each : cases) expect(healthy_site(), each);
  Site elsewhere = healthy_site();
  elsewhere.host = "login";
  expect(elsewhere, {"JobSubmitPlugins", Level::fault,
                     [](Site& s) {
                       names_only_lua(s), s.named_plugins[0].file.path.clear(),
                           s.named_plugins[0].others = {"partition"};
                     },
                     "swell is not in it", "in slurm.conf: JobSubmitPlugins=swell,lua"});
  Site site = healthy_site();
  names_swel(site);
  cr_assert_eq(faults(site), 1);
  site.host = "n1";  // which does not have slurmctld's plugins
  cr_assert_eq(faults(site), 1, "only that swell is not in it");
}

Test(doctor, all_faults_of_plugin_dir_name_one_line) {
  Site site = healthy_site();
  site.slurmctld->plugin_dir = "/stock";
  site.under_stock_name = false;
  for (PluginFile& plugin : site.slurmctld_plugins) plugin.path.clear();
  std::set<std::string> lines;
  for (const Finding& finding : examine(site))
    for (const std::string& fix : finding.fix)
      if (fix.find("PluginDir=") != std::string::npos) lines.insert(fix);
  cr_assert_eq(lines.size(), 1u);
  cr_assert_eq(lines.begin()->find("FOLDER"), std::string::npos, "it can be pasted: %s",
               lines.begin()->c_str());
  cr_assert_neq(lines.begin()->find(":/stock "), std::string::npos, "%s", lines.begin()->c_str());
}

Test(doctor, no_restart_is_asked_for_that_slurmctld_would_not_survive) {
  Site site = healthy_site();
  names_swel(site);
  site.not_yet_running = {"JobSubmitPlugins=lua,swel (it runs with lua,swell)"};
  for (const Finding& finding : examine(site)) {
    if (finding.check != "restart") continue;
    cr_assert(contains(finding.what, "would not start with it"));
    cr_assert(finding.fix.empty());
  }
  cr_assert_eq(faults(site), 2);
}

Test(doctor, plugins_that_are_there_but_closed_are_not_missed) {
  Site site = healthy_site();
  site.named_plugins[0].file.path.clear();
  site.named_plugins[0].file.unreadable = "/plugins/job_submit_lua.so: Permission denied";
  expect_all_good(site);
}

Test(doctor, with_a_plugin_dir_that_ends_programs_the_rest_is_checked) {
  Site site = healthy_site();
  has_no_auth_plugin(site);
  site.cannot_ask = true;
  site.answers = Error("it cannot be asked: no program of Slurm starts with this PluginDir");
  site.accounting = Error("slurmdbd cannot be asked either");
  cr_assert_eq(faults(site), 1);
}

Test(doctor, spank_needs_the_same_release_only) {
  Site site = healthy_site();
  (*site.plugstack)->plugin.version = std::uint32_t{(22 << 16) + (5 << 8) + 3};
  expect_all_good(site);
}

Test(doctor, another_base_scheduler_needs_no_stock_name) {
  Site site = healthy_site();
  site.under_stock_name = false;
  site.slurmctld->scheduler_type = "sched/swell";
  site.swell_conf->base_scheduler = "sched/builtin";
  expect_all_good(site);
}

Test(doctor, the_select_plugin_is_a_choice) {
  Site site = healthy_site();
  auto said = [&] {
    for (const Finding& finding : examine(site))
      if (finding.check == "select") return finding.what;
    return std::string();
  };
  cr_assert(contains(said(), "cons_tres alone chooses nodes"));
  site.select = test::plugin("select_cons_tres.so");
  site.select_comes_first = true;
  cr_assert(contains(said(), "keeps the nodes of a job close together"));
  site.slurmctld->select_type = "select/linear";
  cr_assert(contains(said(), "SelectType is select/linear"));
  expect_all_good(site);
  site.slurmctld->select_type = "select/cons_tres";
  expect(site, {"select", Level::warn,
                [](Site& s) {
                  s.select_comes_first = false;
                  s.slurmctld->plugin_dir = "/stock:/plugins";
                },
                "has no effect", "PluginDir=/plugins:/stock"});
  expect(site, {"select_cons_tres.so", Level::fault,
                [](Site& s) { s.select.version = std::uint32_t{(24 << 16) + (11 << 8) + 5}; },
                "built for Slurm 24.11.5", "./configure"});
}

Test(doctor, faults_of_the_expansion_partition) {
  auto spare = [](Site& s) -> slurm::SitePartition& { return s.partitions[1]; };
  const Case cases[] = {
      {"PreemptType", Level::fault, [](Site& s) { s.slurmctld->preempt_type = "preempt/qos"; },
       "preempt/qos", "in slurm.conf: PreemptType=preempt/partition_prio"},
      {"expansion-partition", Level::fault, [](Site& s) { s.partitions.pop_back(); },
       "there is no partition \"spare\"",
       "in slurm.conf: PartitionName=spare Nodes=n1,n2 Hidden=YES PriorityTier=1 PreemptMode=CANCEL GraceTime=60"},
      {"expansion-partition", Level::fault, [&](Site& s) { spare(s).up = false; }, "not up",
       "scontrol update PartitionName=spare State=UP"},
      {"without-plugin", Level::warn,
       [&](Site& s) {
         s.partitions[0].max_time_min = 60, s.partitions[0].allow_groups = "lab";
         spare(s).max_time_min = 0;
       },
       "any user's job in spare would not be held by AllowGroups=lab of train, MaxTime=60",
       "scontrol update PartitionName=spare AllowGroups=lab MaxTime=60"},
      {"PriorityTier", Level::fault, [&](Site& s) { spare(s).priority_tier = 10; },
       "jobs of train (10)", "scontrol update PartitionName=spare PriorityTier=1"},
      {"PriorityTier", Level::fault, [](Site& s) { s.partitions[0].priority_tier = 1; },
       "jobs of train (1)", "scontrol update PartitionName=train PriorityTier=10"},
      {"PreemptMode", Level::fault,
       [&](Site& s) { spare(s).preempt_mode = slurm::PreemptMode::off; }, "OFF",
       "scontrol update PartitionName=spare PreemptMode=CANCEL"},
      {"GraceTime", Level::fault, [&](Site& s) { spare(s).grace_s = 0; }, "killed at once",
       "scontrol update PartitionName=spare GraceTime=60"},
      {"nodes", Level::warn, [&](Site& s) { spare(s).nodes = {"n1"}; }, "GPUs of n2",
       "scontrol update PartitionName=spare Nodes=n1,n2"},
      {"nodes", Level::fault, [&](Site& s) { spare(s).nodes = {"x"}; }, "GPUs of n1,n2",
       "Nodes=n1,n2"},
      {"access", Level::warn, [&](Site& s) { spare(s).allow_accounts = "lab"; },
       "AllowAccounts=lab", "scontrol update PartitionName=spare AllowAccounts=ALL"},
      {"MaxTime", Level::warn, [&](Site& s) { spare(s).max_time_min = 60; },
       "60 min; jobs of train", "MaxTime=UNLIMITED"},
      {"AllocNodes of spare", Level::fault,
       [&](Site& s) {
         spare(s).alloc_nodes = {"login", "n1"};
       },
       "not be submitted from n2", "scontrol update PartitionName=spare AllocNodes=ALL"},
      {"note", Level::warn, [](Site& s) { s.slurmctld->version = "26.05.5"; }, "partition_prio",
       "ExpansionQOS"},
  };
  for (const Case& each : cases) expect(healthy_partition_site(), each);
}

Test(doctor, faults_of_partitions_and_services) {
  const Case cases[] = {
      {"AllocNodes of train", Level::fault,
       [](Site& s) { s.partitions[0].alloc_nodes = {"login"}; }, "not be submitted from n1,n2",
       "scontrol update PartitionName=train AllocNodes=ALL"},
      {"QOS of train", Level::fault, [](Site& s) { s.partitions[0].allow_qos = "normal"; },
       "AllowQos=normal", "scontrol update PartitionName=train AllowQos=normal,expansion"},
      {"QOS of train", Level::fault, [](Site& s) { s.partitions[0].deny_qos = "expansion"; },
       "DenyQos", "out of DenyQos"},
      {"partitions", Level::warn, [](Site& s) { s.queue.nodes.clear(); }, "nothing to lend",
       "sinfo"},
      {"topology", Level::warn,
       [](Site& s) {
         for (slurm::NodeRecord& node : s.queue.nodes) node.extra = R"({"rack":7})";
       },
       "no node publishes", "systemctl restart slurmd   # on every node"},
      {"munge", Level::fault,
       [](Site& s) { s.munge = Error("munge does not sign: Socket communication error"); },
       "/munge: munge does not sign", "systemctl restart munge   # on head"},
      {"ControlPort", Level::fault, [](Site& s) { s.control_port = Error("Connection refused"); },
       "10.0.0.1:6829: Connection refused", "systemctl restart slurmctld"},
      {"swell_state", Level::fault,
       [](Site& s) { s.troubles["state"] = "the state could not be saved: /s: Is a directory"; },
       "Is a directory; where slurmctld starts anew", "move that away"},
      {"swell_place", Level::warn, [](Site& s) { s.troubles["place"] = "it cannot be saved"; },
       "it cannot be saved", "df "},
      {"history", Level::warn, [](Site& s) { s.troubles["history"] = "disk full"; }, "disk full",
       "df "},
      {"EventLog", Level::warn,
       [](Site& s) {
         s.swell_conf->event_log = "/logs/of/swell.jsonl";
         s.troubles["EventLog"] = "No space left on device";
       },
       "No space left", "ls -l /logs/of/swell.jsonl; df /logs/of "},
      {"AdminComment", Level::warn,
       [](Site& s) { s.troubles["AdminComment"] = "Slurm refuses what Swell writes"; },
       "Slurm refuses", "slurm_job_modify()"},
      {"slurmctld", Level::fault,
       [](Site& s) { s.troubles["slurmctld"] = "slurmctld did not answer"; }, "lends nothing",
       "scontrol ping"},
      {"InactiveLimit", Level::warn, [](Site& s) { s.slurmctld->inactive_limit_s = 600; }, "600 s",
       "in slurm.conf: InactiveLimit=0"},
      {"PrivateData", Level::warn, [](Site& s) { s.config.hides_nodes = true; },
       "users do not see nodes", "in slurm.conf: take nodes out of PrivateData"},
      {"preemption signal", Level::warn,
       [](Site& s) { s.slurmctld->slurmctld_parameters = "enable_configless"; }, "SIGTERM",
       "in slurm.conf: SlurmctldParameters=enable_configless,preempt_send_user_signal"},
      {"preemption signal", Level::warn,
       [](Site& s) { s.slurmctld->slurmctld_parameters.clear(), s.slurmctld->version = "24.11.5"; },
       "SIGTERM", "in slurm.conf: PreemptParameters=send_user_signal"},
      {"grace of the jobs", Level::warn,
       [](Site& s) {
         s.queue.jobs = {test::elastic_job(7, "elastic=grace=90 basic=4"),
                         test::elastic_job(8, "elastic=grace=20 basic=4")};
       },
       "7 (90 s);", "sacctmgr -i modify qos where name=expansion set GraceTime=90"},
  };
  for (const Case& each : cases) expect(healthy_site(), each);
}

Test(doctor, nodes_that_are_to_publish_nothing_are_not_missed) {
  Site site = healthy_site();
  for (slurm::NodeRecord& node : site.queue.nodes) node.extra.clear();
  (*site.plugstack)->publishes = false;
  expect_all_good(site);
}

Test(doctor, one_node_that_publishes_is_enough) {
  Site site = healthy_site();
  site.queue.nodes[0].extra.clear();
  expect_all_good(site);
}

Test(doctor, partitions_where_slurm_itself_preempts_nothing_for_others_are_named) {
  const char* const words = "Slurm preempts nothing there for others";
  Site site = healthy_site();
  site.queue.partitions.resize(2);
  site.queue.partitions[1].name = "private";
  cr_assert_not(contains(findings_text(examine(site)), words));
  site.queue.partitions[1].sole_user = true;
  cr_assert(contains(findings_text(examine(site)), "partition private (ExclusiveUser)"));
  expect_all_good(site);
  site.queue.partitions.clear();
  site.queue.labelled_nodes = slurm::LabelledNodes::of_all;
  cr_assert(contains(findings_text(examine(site)), words));
}

Test(doctor, that_slurm_changes_no_gpu_type_is_said_where_there_are_several) {
  const auto says = [](const char* version, bool is_mixed) {
    Site site = healthy_site();
    site.slurmctld->version = version;
    for (slurm::NodeRecord& node : site.queue.nodes) node.gpus = {{8, "h100", ""}};
    if (is_mixed) site.queue.nodes[0].gpus = {{8, "a100", ""}};
    return contains(findings_text(examine(site)), "does not change the GPU type of jobs that wait");
  };
  cr_assert(says("22.05.8", true));
  cr_assert_not(says("22.05.8", false));
  cr_assert_not(says("24.11.5", true));
}

Test(doctor, both_spellings_of_the_preemption_signal_are_right) {
  Site site = healthy_site();
  site.slurmctld->slurmctld_parameters.clear();
  site.config.preempt_parameters = "send_user_signal";
  expect_all_good(site);
}

Test(doctor, faults_are_counted_and_their_fix_lines_printed_below) {
  Findings findings{good("a", "fine"), fault("b", "broken", {"do this", "then that"})};
  cr_assert_eq(
      findings_text(findings),
      std::string(
          "ok     a: fine\nFAULT  b: broken\n       fix: do this\n       fix: then that\n1 fault, no warnings\n"));
  const Json json = findings_json(findings);
  cr_assert_eq(json.integer_at("faults", 0, 9).value(), 1);
  cr_assert_eq(json.at("checks").at(1).at("fix").at(std::size_t{1}).dump(),
               std::string("\"then that\""));
}
