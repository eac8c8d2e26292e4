// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/runtime_host.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

#include "core/number.h"
#include "launcher/switch_network.h"

namespace swell::launcher {

namespace {

namespace fs = std::filesystem;

std::string temporary_folder() {
  const char* set = std::getenv("TMPDIR");
  return set != nullptr && *set != '\0' ? set : "/tmp";
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot;
}

/// Nodes by Slurm's name and boot: slurmds that share a machine stay apart, as their jobs may.
std::string host_name(const std::string& node) { return boot_id() + "/" + node; }

/// Of folders whose owners' pids mean something here: TMPDIR may be one of all nodes, or of several
/// PID namespaces.
std::string prefix() {
  struct stat pids {};
  stat("/proc/self/ns/pid", &pids);
  const std::size_t place = std::hash<std::string>()(fmt::format("{}/{}", boot_id(), pids.st_ino));
  return fmt::format("swell-worker-{}-{:08x}-", geteuid(), place & 0xffffffff);
}

/// Folders of ours whose process is gone: "swell-worker-UID-PLACE-PID-RANDOM".
void remove_leftovers(const std::string& folder) {
  const std::string ours = prefix();
  std::error_code ignored;
  for (auto each = fs::directory_iterator(folder, ignored);
       !ignored && each != fs::directory_iterator(); each.increment(ignored)) {
    const std::string name = each->path().filename();
    struct stat found {};
    if (!name.starts_with(ours) || lstat(each->path().c_str(), &found) != 0 ||
        !S_ISDIR(found.st_mode) || found.st_uid != geteuid())
      continue;
    const std::string rest = name.substr(ours.size());
    const auto pid = read_number<int>(rest.substr(0, rest.find('-')));
    std::error_code kept;
    if (pid && *pid > 0 && kill(*pid, 0) != 0 && errno == ESRCH) fs::remove_all(each->path(), kept);
  }
}

/// Address space of the arena is twice that: of a switch in chunks both states have places there,
/// though never both all of their memory. What is not written takes none.
std::uint64_t memory_of_this_machine() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// SWELL_TEST_HOLD=verify:FILE: between the first block that was verified and the last, or, with
/// rest:FILE, before the first block that a rank has that stays, or, with chunk:FILE, between two
/// chunks, a move makes FILE.reached and waits until FILE is gone, so that a test can kill
/// something just then. As LiveDriver does at the beginning of each phase.
std::function<bool(runtime::Keeper::Options::Hold)> hold_for_a_test() {
  using Hold = runtime::Keeper::Options::Hold;
  const char* set = std::getenv("SWELL_TEST_HOLD");
  const std::string text = set != nullptr ? set : "", key = text.substr(0, text.find(':') + 1);
  if (key != "verify:" && key != "rest:" && key != "chunk:") return {};
  const Hold wanted = key == "rest:" ? Hold::rest : key == "chunk:" ? Hold::chunk : Hold::verified;
  return [wanted, file = text.substr(key.size())](Hold hold) {
    if (hold != wanted || access(file.c_str(), F_OK) != 0) return false;
    std::ofstream(file + ".reached", std::ios::app).flush();
    return true;
  };
}

}  // namespace

Result<std::unique_ptr<RuntimeHost>> RuntimeHost::start(const Options& options) {
  const std::string base = options.folder.empty() ? temporary_folder() : options.folder;
  remove_leftovers(base);
  std::string folder = fmt::format("{}/{}{}-XXXXXX", base, prefix(), getpid());
  if (mkdtemp(folder.data()) == nullptr)
    return Error(fmt::format("{}: {}", folder, std::strerror(errno)));
  runtime::Keeper::Options its;
  its.unix_socket = folder + "/socket";
  its.tcp_host = options.address;
  its.key = options.key;
  its.ucx = ucx_of(options.network, options.ports, options.address);
  its.nccl = nccl_of(options.network);
  its.on_profile = options.on_profile;
  its.on_adopted = options.on_adopted;
  its.holds = hold_for_a_test();
  its.host = host_name(options.node);
  its.arena_bytes = 2 * memory_of_this_machine();
  auto keeper = runtime::Keeper::start(std::move(its));
  if (!keeper) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return keeper.error().while_doing("the runtime of this worker");
  }
  return std::unique_ptr<RuntimeHost>(new RuntimeHost(std::move(folder), std::move(*keeper)));
}

bool RuntimeHost::ask_to_stop() const {
  auto channel = runtime::Channel::connect_unix(unix_socket());
  if (!channel) return false;
  return runtime::ask(*channel, runtime::Op::request,
                      runtime::Writer().put(runtime::kStopWish).take(),
                      runtime::within(std::chrono::seconds(1)))
      .ok();
}

RuntimeHost::~RuntimeHost() {
  keeper_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace swell::launcher
