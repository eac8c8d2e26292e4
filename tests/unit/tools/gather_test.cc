// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/gather.h"

#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/stat.h>

#include "tools/doctor/child_process.h"
#include "tools/doctor/elf_symbol.h"
#include "tools/doctor/slurm_conf.h"

using namespace swell;
using namespace swell::tools::doctor;

extern "C" __attribute__((visibility("default"))) const std::uint32_t plugin_version = 0x160508;
extern "C" __attribute__((visibility("default"))) const char plugin_name[] = "a test";

namespace {

/// A folder that goes with the test.
struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/swell-gather-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
};

}  // namespace

Test(gather, reads_what_sacctmgr_prints) {
  const auto read = accounting_from(
      "normal|expansion,low|cluster|00:00:00||1.000000|100||||||||||||||||||\n"
      "expansion||cancel|1-00:01:30||0.500000|1|OverPartQOS,DenyOnLimit|gres/gpu=8||||||||||||||||\n",
      "root||normal||||||||||||\nlab|ann|expansion,normal|gres/gpu=2|||||||||7||\n");
  cr_assert(read.ok(), "%s", read.error().message().c_str());
  cr_assert_eq(read->qos.size(), 2u);
  cr_assert_eq(read->qos[0].preempt.size(), 2u);
  cr_assert(read->qos[0].limits.empty());
  cr_assert_eq(read->qos[1].grace_s, 86490);
  cr_assert_eq(read->qos[1].limits[0].first, std::string("GrpTRES"));
  cr_assert_eq(read->qos[1].limits[0].second, std::string("gres/gpu=8"));
  cr_assert_eq(read->qos[1].usage_factor, 0.5);
  cr_assert_eq(read->qos[0].priority, 100);
  cr_assert_eq(read->qos[1].flags, (std::vector<std::string>{"OverPartQOS", "DenyOnLimit"}));
  cr_assert_eq(read->associations[1].qos.size(), 2u);
  using Limit = std::pair<std::string, std::string>;
  cr_assert_eq(read->associations[1].limits,
               (std::vector<Limit>{{"GrpTRES", "gres/gpu=2"}, {"MaxJobsPerUser", "7"}}));
  cr_assert_not(accounting_from("normal|x\n", "").ok());
}

Test(gather, finds_the_plugin_through_includes_of_plugstack) {
  const Folder folder;
  folder.write("spank_swell.so", "no ELF file");
  const std::string top =
      folder.write("plugstack.conf", "# spank_swell.so\ninclude more.d/*.conf\n");
  std::filesystem::create_directory(folder.path + "/more.d");
  auto entry = plugstack_entry(top, "/nowhere:" + folder.path);
  cr_assert(entry.ok() && !entry->has_value());
  folder.write("more.d/swell.conf", "required  spank_swell.so  # elastic jobs\n");
  entry = plugstack_entry(top, "/nowhere:" + folder.path);
  cr_assert(entry.ok() && entry->has_value());
  cr_assert((*entry)->required);
  cr_assert_eq((*entry)->where, folder.path + "/more.d/swell.conf");
  cr_assert_eq((*entry)->plugin.path, folder.path + "/spank_swell.so");
  cr_assert_not((*entry)->plugin.version.ok());
  cr_assert((*entry)->publishes);
  folder.write("more.d/swell.conf", "optional spank_swell.so topo_retry=60 topology=off\n");
  entry = plugstack_entry(top, folder.path);
  cr_assert(entry.ok() && entry->has_value() && !(*entry)->publishes);
  cr_assert_not(plugstack_entry(folder.path + "/none", "").ok());
}

Test(gather, plugins_that_slurm_conf_names_are_looked_for) {
  const Folder folder;
  folder.write("job_submit_lua.so", "");
  folder.write("job_submit_swell.so", "");
  slurm::ControllerConfig config;
  config.plugin_dir = folder.path + ":" + folder.path + "/none";
  config.auth_type = "auth/munge";
  config.job_submit_plugins = "job_submit/lua,swel";
  cr_assert_eq(missing_folders(config.plugin_dir),
               (std::vector<std::string>{folder.path + "/none"}));
  const auto named = named_plugins(config);
  cr_assert_eq(named.size(), 3u);
  cr_assert_eq(named[0].key, std::string("AuthType"));
  cr_assert_eq(named[0].file.name, std::string("auth_munge.so"));
  cr_assert(named[0].file.path.empty());
  cr_assert_eq(named[1].file.path, folder.path + "/job_submit_lua.so");
  cr_assert_eq(named[2].file.name, std::string("job_submit_swel.so"));
  cr_assert(named[2].file.path.empty());
  cr_assert_eq(named[2].others, (std::vector<std::string>{"lua", "swell"}));
}

Test(gather, an_include_that_names_itself_ends) {
  const Folder folder;
  const std::string top = folder.write("plugstack.conf", "include plugstack.conf\n");
  cr_assert(plugstack_entry(top, "").ok());
}

Test(gather, reads_a_constant_from_an_elf_file_without_loading_it) {
  const auto version = read_elf_constant("/proc/self/exe", "plugin_version");
  cr_assert(version.ok(), "%s", version.error().message().c_str());
  cr_assert_eq(*version, 0x160508u);
  cr_assert_not(read_elf_constant("/proc/self/exe", "no_such_symbol").ok());
  cr_assert_eq(read_elf_text("/proc/self/exe", "plugin_name").value(), std::string("a test"));
}

Test(gather, broken_elf_files_are_errors) {
  const Folder folder;
  cr_assert_not(read_elf_constant(folder.path + "/none", "plugin_version").ok());
  cr_assert_not(read_elf_constant(folder.write("empty", ""), "plugin_version").ok());
  std::ifstream in("/proc/self/exe", std::ios::binary);
  std::string bytes(4096, '\0');
  in.read(bytes.data(), 4096);
  for (std::size_t size : {16, 63, 64, 200, 4096})
    cr_assert_not(
        read_elf_constant(folder.write("cut", bytes.substr(0, size)), "plugin_version").ok());
}

Test(gather, a_program_gives_its_output_or_its_complaint) {
  cr_assert_eq(output_of({"echo", "a  b"}, std::chrono::seconds(5)).value(), std::string("a  b\n"));
  const auto failed = output_of({"ls", "/no/such/folder"}, std::chrono::seconds(5));
  cr_assert(failed.error().message().find("/no/such/folder") != std::string::npos);
  cr_assert(output_of({"no-such-program"}, std::chrono::seconds(5))
                .error()
                .message()
                .find("no-such-program") == 0);
  cr_assert(output_of({"sleep", "60"}, std::chrono::seconds(1))
                .error()
                .message()
                .find("did not end within 1 s") != std::string::npos);
}

Test(gather, services_are_asked_until_they_answer_and_then_no_more) {
  int asked = 0;
  const auto answers_at = [&](int try_number) {
    asked = 0;
    return try_for(std::chrono::seconds(60), [&]() -> Result<void> {
      return ++asked < try_number ? Result<void>(Error("refused")) : Result<void>();
    });
  };
  cr_assert(answers_at(1).ok());
  cr_assert_eq(asked, 1);
  cr_assert(answers_at(3).ok());
  cr_assert_eq(asked, 3);
  asked = 0;
  const auto never = try_for(std::chrono::milliseconds(1), [&] {
    ++asked;
    return Result<void>(Error("refused"));
  });
  cr_assert_not(never.ok());
  cr_assert_eq(never.error().message(), std::string("refused"));
  cr_assert_eq(asked, 1);
}

Test(gather, slurm_conf_is_read_with_includes_comments_and_continued_lines) {
  const Folder folder;
  folder.write("more.conf", "JobSubmitPlugins=lua,swell\n");
  const std::string path = folder.write(
      "slurm.conf",
      "ClusterName=C1\nSlurmctldHost=head.site(10.0.0.1)\nSlurmctldHost=spare\n"
      "schedulertype=sched/swell # ours\n#PreemptType=preempt/none\nPreemptType=\\\npreempt/qos\n"
      "NodeName=n[1-2] Gres=gpu:8\nPartitionName=train Nodes=ALL PreemptMode=OFF\ninclude more.conf\n"
      "AccountingStorageEnforce=safe,QOS\nPreemptMode=CANCEL\nInactiveLimit=30\n"
      "TaskPlugin=task/cgroup\n");
  folder.write("cgroup.conf", "ConstrainDevices=yes\n");
  const auto file = SlurmConf::load(path);
  cr_assert(file.ok(), "%s", file.error().message().c_str());
  slurm::ControllerConfig running;
  running.plugin_dir = "/usr/lib/slurm";
  running.scheduler_type = "sched/backfill";
  running.preempt_type = "preempt/qos";
  const auto config = with_file(running, *file, path);
  cr_assert_eq(config.hosts, (std::vector<std::string>{"10.0.0.1", "spare"}));
  cr_assert_eq(config.scheduler_type, std::string("sched/swell"));
  cr_assert_eq(config.job_submit_plugins, std::string("lua,swell"));
  cr_assert_eq(config.plugin_dir, std::string("/usr/lib/slurm"),
               "what the file does not say is as it runs");
  cr_assert_eq(config.inactive_limit_s, 30);
  const auto site = with_file(slurm::SiteConfig{}, *file, path);
  cr_assert(site.enforces_qos && site.enforces_limits && site.preempt_cancels && !site.preempt_off);
  cr_assert_eq(site.controller_names, (std::vector<std::string>{"head", "spare"}));
  cr_assert_eq(site.cluster_name, std::string("c1"));
  cr_assert(site.devices_apart);

  const auto differs = not_yet_running(config, running, site, site);
  cr_assert_eq(differs,
               (std::vector<std::string>{"SchedulerType=sched/swell (it runs with sched/backfill)",
                                         "JobSubmitPlugins=lua,swell (it runs with none)"}));
}

// As Slurm itself reads them.
Test(gather, slurm_conf_may_have_blanks_quotes_and_several_settings_on_a_line) {
  const Folder folder;
  folder.write("more.conf", "PluginDir =\t\"/opt/a b:/opt/c\"\n");
  const std::string path = folder.write(
      "slurm.conf",
      "  StateSaveLocation = /var/spool/s \r\nSlurmctldHost = head(10.0.0.1)\n"
      "SlurmctldPort=6820-6823 AuthType= auth/munge PreemptMode =CANCEL\n"
      "JobSubmitPlugins=\"lua,swell\" SelectType=\"select/cons_tres\\\n\"\n \tINCLUDE  more.conf \n"
      "NodeName = n[1-2] State=FUTURE\nPartitionName=train PreemptMode=OFF\nno setting\n=5\n");
  const auto file = SlurmConf::load(path);
  cr_assert(file.ok(), "%s", file.error().message().c_str());
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"StateSaveLocation", "/var/spool/s"},
                                          {"SlurmctldPort", "6820-6823"},
                                          {"AuthType", "auth/munge"},
                                          {"PreemptMode", "CANCEL"},
                                          {"JobSubmitPlugins", "lua,swell"},
                                          {"SelectType", "select/cons_tres"},
                                          {"PluginDir", "/opt/a b:/opt/c"}}) {
    const std::string* found = file->find(key);
    cr_assert(found != nullptr && *found == value, "%s is %s", key.c_str(),
              found != nullptr ? found->c_str() : "not there");
  }
  cr_assert_eq(file->addresses, (std::vector<std::string>{"10.0.0.1"}));
  cr_assert_null(file->find("State"), "of nodes");
}

Test(gather, a_slurm_conf_that_is_not_there_is_named) {
  const auto file = SlurmConf::load("/nowhere/slurm.conf");
  cr_assert_not(file.ok());
  cr_assert_eq(file.error().message(),
               std::string("/nowhere/slurm.conf: No such file or directory"));
}

// A test that waits for the FIFO's writer does not end.
Test(gather, a_slurm_conf_that_is_no_file_is_refused_at_once, .timeout = 20) {
  const Folder folder;
  const std::string fifo = folder.path + "/fifo";
  cr_assert_eq(mkfifo(fifo.c_str(), 0600), 0);
  const std::string conf = folder.write("slurm.conf", "ClusterName=c\nInclude fifo\n");
  for (const std::string& path : {fifo, conf, folder.path}) {
    const auto file = SlurmConf::load(path);
    cr_assert_not(file.ok());
    cr_assert(file.error().message().find("it is not a file") != std::string::npos, "%s",
              file.error().message().c_str());
  }
}

Test(gather, a_plugin_that_cannot_be_read_is_told_from_one_that_is_not_there) {
  const Folder folder;
  cr_assert(find_plugin("job_submit_swell.so", folder.path).unreadable.empty());
  // A circle of links can be read by nobody, not even by root.
  std::filesystem::create_symlink("job_submit_swell.so", folder.path + "/job_submit_swell.so");
  const PluginFile found = find_plugin("job_submit_swell.so", "/nowhere:" + folder.path);
  cr_assert(found.path.empty());
  cr_assert_neq(found.unreadable.find(folder.path + "/job_submit_swell.so: "), std::string::npos);
}
