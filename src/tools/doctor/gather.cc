// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/gather.h"

#include <algorithm>
#include <fmt/format.h>
#include <munge.h>
#include <sys/stat.h>
#include <thread>
#include <utility>

#include "control/socket.h"
#include "core/compute_mode.h"
#include "core/number.h"
#include "tools/doctor/child_process.h"
#include "tools/doctor/elf_symbol.h"
#include "tools/doctor/slurm_conf.h"

namespace swell::tools::doctor {

namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr auto kConnectPatience = std::chrono::seconds(2);
/// How long attempts to reach slurmctld, or its controller, are repeated.
constexpr auto kStartPatience = std::chrono::seconds(5);
constexpr auto kAskAgain = std::chrono::milliseconds(250);

Result<Accounting> ask_slurmdbd(const std::string& cluster) {
  const auto qos = output_of(
      {"sacctmgr", "-nP", "show", "qos", fmt::format("format={}", kQosFormat)}, kPatience);
  if (!qos) return qos.error();
  const auto associations =
      output_of({"sacctmgr", "-nP", "show", "assoc", fmt::format("cluster={}", cluster),
                 fmt::format("format={}", kAssociationFormat)},
                kPatience);
  if (!associations) return associations.error();
  return accounting_from(*qos, *associations);
}

/// Signs a message and verifies it, as slurmctld and swellrun do with each connection.
Result<void> try_munge(const std::string& socket) {
  munge_ctx_t context = munge_ctx_create();
  if (context == nullptr) return Error("no memory for a munge context");
  auto failed = [&](const char* what, munge_err_t problem) {
    const char* said = munge_ctx_strerror(context);
    Error error(fmt::format("munge does not {}: {}", what,
                            said != nullptr ? said : munge_strerror(problem)));
    munge_ctx_destroy(context);
    return error;
  };
  if (!socket.empty())
    if (const auto problem = munge_ctx_set(context, MUNGE_OPT_SOCKET, socket.c_str());
        problem != EMUNGE_SUCCESS)
      return failed("take the socket", problem);
  char* credential = nullptr;
  if (const auto problem = munge_encode(&credential, context, nullptr, 0);
      problem != EMUNGE_SUCCESS)
    return failed("sign", problem);
  const auto problem = munge_decode(credential, context, nullptr, nullptr, nullptr, nullptr);
  std::free(credential);
  if (problem != EMUNGE_SUCCESS) return failed("verify what it signed", problem);
  munge_ctx_destroy(context);
  return {};
}

/// Returns whether everybody may read the file, by its own permissions; those of its folder concern
/// slurm.conf, too.
bool readable_by_all(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) != 0 || (status.st_mode & S_IROTH) != 0;
}

/// Returns the path of the slurm.conf that Slurm's programs on this host read.
std::string local_slurm_conf() {
  const char* named = std::getenv("SLURM_CONF");
  return named != nullptr ? named : "/etc/slurm/slurm.conf";
}

/// Returns the version, such as "22.05.8", of the slurmctld (or the commands) installed here; empty
/// if there is none.
std::string installed_version() {
  for (const char* program : {"slurmctld", "scontrol"})
    if (const auto said = output_of({program, "-V"}, kPatience)) {
      const std::size_t space = said->find(' ');
      return said->substr(space + 1, said->find_last_not_of(" \n") - space);
    }
  return {};
}

/// Returns the configuration as far as it is known before slurmctld has answered.
slurm::ControllerConfig unasked() {
  slurm::ControllerConfig config;
  config.plugin_dir = SLURM_PLUGINDIR;
  config.select_type = "select/cons_tres";
  config.version = installed_version();
  return config;
}

std::string beside(const std::string& slurm_conf, const char* name) {
  return slurm_conf.substr(0, slurm_conf.rfind('/') + 1) + name;
}

void gather_files(Site& site, const slurm::ControllerConfig& slurmctld) {
  site.swell_conf_path = beside(slurmctld.slurm_conf, "swell.conf");
  site.swell_conf = controller::load_config(site.swell_conf_path);
  site.swell_conf_for_all = readable_by_all(site.swell_conf_path);
  site.missing_folders = missing_folders(slurmctld.plugin_dir);
  site.named_plugins = named_plugins(slurmctld);
  bool comes_first = false;
  site.shadow = find_shadow("sched_backfill.so", slurmctld.plugin_dir, comes_first);
  site.under_stock_name =
      slurmctld.scheduler_type == "sched/backfill" && comes_first && !site.shadow.path.empty();
  site.slurmctld_plugins = {
      site.under_stock_name ? site.shadow : find_plugin("sched_swell.so", slurmctld.plugin_dir),
      find_plugin("job_submit_swell.so", slurmctld.plugin_dir)};
  site.select = find_shadow("select_cons_tres.so", slurmctld.plugin_dir, site.select_comes_first);
  const bool named = !slurmctld.plugstack.empty() && slurmctld.plugstack != "(null)";
  site.plugstack_path =
      named ? slurmctld.plugstack : beside(slurmctld.slurm_conf, "plugstack.conf");
  site.plugstack = plugstack_entry(site.plugstack_path, slurmctld.plugin_dir);
}

void try_services(Site& site, const slurm::ControllerConfig& slurmctld) {
  if (!site.swell_conf || !site.answers) return;
  site.control_host = site.swell_conf->control_address;
  if (site.control_host.empty() && !slurmctld.hosts.empty())
    site.control_host = slurmctld.hosts.front();
  site.control_port = try_for(kStartPatience, [&]() -> Result<void> {
    const auto connected = control::connect_to(
        site.control_host, static_cast<std::uint16_t>(site.swell_conf->control_port),
        std::chrono::seconds(3));
    return connected ? Result<void>() : Result<void>(connected.error());
  });
}

/// Checks whether slurmctld listens at the addresses of slurm.conf, since libslurm itself would try
/// for 20 s. No error if the file names no addresses.
Result<void> try_slurmctld(const SlurmConf& file) {
  const std::string* named = file.find("SlurmctldPort");  // may be a range
  const auto port =
      read_number<std::uint16_t>(named != nullptr ? named->substr(0, named->find('-')) : "6817");
  if (file.addresses.empty() || !port) return {};
  Result<void> answer;
  for (const std::string& address : file.addresses) {
    const auto connected = control::connect_to(address, *port, kConnectPatience);
    if (connected) return {};
    answer = connected.error();
  }
  return answer;
}

/// Returns whether Slurm's programs, and this one once it calls libslurm, start with slurm.conf's
/// PluginDir: all folders exist, and one has the plugin of AuthType.
bool starts_programs(const slurm::ControllerConfig& of_file) {
  if (!missing_folders(of_file.plugin_dir).empty()) return false;
  for (const NamedPlugin& plugin : named_plugins(of_file))
    if (plugin.key == "AuthType" && plugin.is_missing()) return false;
  return true;
}

/// Asks slurmctld. Site::answers is an error if it does not answer, or cannot be asked: without
/// munge (unless auth/slurm), or with a PluginDir for which libslurm would end this program.
void ask_slurmctld(Site& site, const Result<SlurmConf>& file,
                   const slurm::ControllerConfig& first) {
  if (!site.munge && first.auth_type != "auth/slurm") {
    site.cannot_ask = true;
    site.answers = Error("it cannot be asked without munge");
    return;
  }
  if (file && file->find("PluginDir") != nullptr && !starts_programs(first)) {
    site.cannot_ask = true;
    site.answers = Error("it cannot be asked: no program of Slurm starts with this PluginDir");
    return;
  }
  // Without a slurm.conf here, libslurm may get one from slurmctld's host. If it does not, it ends
  // this program with a message of its own; so scontrol is tried first.
  if (!file)
    if (const auto found = output_of({"scontrol", "show", "config"}, kPatience); !found) {
      site.cannot_ask = true;
      site.answers = found.error();
      return;
    }
  bool is_initialised = false;
  site.answers = try_for(kStartPatience, [&]() -> Result<void> {
    if (file)
      if (Result<void> listens = try_slurmctld(*file); !listens) return listens;
    if (!std::exchange(is_initialised, true)) slurm::init_libslurm();
    site.slurmctld = slurm::load_controller_config();
    return site.slurmctld ? Result<void>() : Result<void>(site.slurmctld.error());
  });
  if (!site.answers) return;
  if (auto config = slurm::load_site_config()) site.config = *config;
  if (auto partitions = slurm::load_site_partitions()) site.partitions = *partitions;
  if (auto queue = slurm::make_live_slurm()->load(); queue && queue->has_value())
    site.queue = **queue;
}

/// Gathers the configuration from the file, if this host has it, and from slurmctld, if it
/// answers.
void gather_configuration(Site& site) {
  const std::string path = local_slurm_conf();
  const Result<SlurmConf> file = SlurmConf::load(path);
  // Without a readable slurm.conf, libslurm would end this program with a message of its own.
  if (!file && std::getenv("SLURM_CONF") != nullptr) {
    site.slurmctld = file.error();
    return;
  }
  const slurm::ControllerConfig first = file ? with_file(unasked(), *file, path) : unasked();
  site.munge = try_munge(slurm::munge_socket_of(first.auth_info));
  ask_slurmctld(site, file, first);
  if (!site.answers) {
    if (!file) {
      site.slurmctld = file.error();
      return;
    }
    site.slurmctld = first;
    site.config = with_file(slurm::SiteConfig{}, *file, path);
    return;
  }
  // On hosts other than slurmctld's, slurmctld's own configuration counts, not this host's file.
  const slurm::SiteConfig site_of_file = file ? with_file(site.config, *file, path) : site.config;
  if (!file || !site.on_controller() || site.slurmctld->slurm_conf != path) return;
  const slurm::ControllerConfig of_file = with_file(*site.slurmctld, *file, path);
  site.not_yet_running = not_yet_running(of_file, *site.slurmctld, site_of_file, site.config);
  site.slurmctld = of_file;
  site.config = site_of_file;
}

}  // namespace

Result<void> try_for(std::chrono::milliseconds patience,
                     const std::function<Result<void>()>& attempt) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    Result<void> done = attempt();
    if (done || std::chrono::steady_clock::now() + kAskAgain > deadline) return done;
    std::this_thread::sleep_for(kAskAgain);
  }
}

Site gather_site() {
  Site site;
  site.host = slurm::short_host_name();
  site.one_program_gpus = one_program_gpus();
  gather_configuration(site);
  if (!site.slurmctld) return site;
  gather_files(site, *site.slurmctld);
  try_services(site, *site.slurmctld);
  if (site.swell_conf && !site.swell_conf->expansion_qos.empty()) {
    if (site.cannot_ask) site.accounting = Error("slurmdbd cannot be asked either");
    else if (site.slurmctld->accounting_storage_type == "accounting_storage/slurmdbd")
      site.accounting = ask_slurmdbd(site.config.cluster_name);
    else
      site.accounting = Error(
          "AccountingStorageType is not accounting_storage/slurmdbd, and without slurmdbd there are no QOS");
  }
  return site;
}

}  // namespace swell::tools::doctor
