// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/inner_launcher.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "launcher/processes.h"

namespace swell::launcher {

namespace {

using Given = std::vector<std::pair<std::string, std::string>>;

constexpr int kMaxProcesses = 512;  // maximum to look at below one program
constexpr std::size_t kMaxValue = 64;

/// Variables that launchers other than torchrun give to their workers.
constexpr const char* kOfMpi[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",       "PMIX_RANK",
                                  "MV2_COMM_WORLD_RANK",  "FLUX_TASK_RANK", "HOROVOD_RANK"};

/// Any of these tells a program which worker it is.
constexpr const char* kRanks[] = {"RANK",       "SWELL_RANK",           "SLURM_PROCID",
                                  "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

std::optional<std::string> value_of(const std::vector<std::string>& environment,
                                    std::string_view name) {
  for (const std::string& each : environment)
    if (each.size() > name.size() && each.starts_with(name) && each[name.size()] == '=')
      return each.substr(name.size() + 1);
  return std::nullopt;
}

/// Returns the variable's value: its last one in `given`, else this process's own.
std::optional<std::string> given_value(const Given& given, const char* name) {
  const auto found = std::find_if(given.rbegin(), given.rend(),
                                  [name](const auto& each) { return each.first == name; });
  if (found != given.rend()) return found->second;
  const char* own = std::getenv(name);
  return own != nullptr ? std::optional<std::string>(own) : std::nullopt;
}

std::string shown(const char* name, const std::string& value) {
  std::string text = fmt::format("{}={}", name, value.substr(0, kMaxValue));
  for (char& each : text)
    if (each < 0x20 || each > 0x7e) each = '?';
  return text;
}

/// Returns the variables that show that the process is another launcher's worker; empty: none.
std::string own_ranks(const std::vector<std::string>& environment, const Given& given,
                      bool only_of_torchrun) {
  const auto differs = [&](const char* name) {
    const auto value = value_of(environment, name);
    return value && value != given_value(given, name);
  };
  const auto say = [&](const char* name) {
    return shown(name, value_of(environment, name).value_or(""));
  };
  const bool has_ranks = value_of(environment, "RANK") && value_of(environment, "WORLD_SIZE");
  // torchrun gives each of its workers an error file, even if its run id is the job's.
  if (has_ranks && (differs("TORCHELASTIC_RUN_ID") || differs("TORCHELASTIC_ERROR_FILE")))
    return fmt::format("{}, {}, {}", say("RANK"), say("WORLD_SIZE"), say("TORCHELASTIC_RUN_ID"));
  if (only_of_torchrun) return {};
  if (has_ranks && (differs("RANK") || differs("WORLD_SIZE")))
    return fmt::format("{}, {}", say("RANK"), say("WORLD_SIZE"));
  for (const char* name : kOfMpi)
    if (differs(name)) return say(name);
  return {};
}

}  // namespace

std::optional<std::string> inner_worker(pid_t program, const Given& given, int restart_signal,
                                        pid_t shim) {
  // A child before its exec() still has the variables that the shim was started with, which may
  // include ranks that the user's script or a TaskProlog set.
  const std::vector<std::string> of_shim = environment_of(shim);
  struct Process {
    pid_t pid = 0, parent = 0;
    bool is_below_handler = false;
  };
  std::vector<Process> open = {{program, 0, false}};
  for (int looked = 0; !open.empty() && looked < kMaxProcesses; ++looked) {
    const Process one = open.back();
    open.pop_back();
    const std::vector<std::string> environment = environment_of(one.pid);
    if (environment == of_shim) continue;
    if (const std::string ranks = own_ranks(environment, given, one.is_below_handler);
        !ranks.empty())
      return fmt::format("{}{} with {}", one.parent == 0 ? "" : name_of(one.parent) + " runs ",
                         name_of(one.pid), ranks);
    const bool is_below = one.is_below_handler || handles(one.pid, restart_signal);
    for (const pid_t child : children_of(one.pid)) open.push_back({child, one.pid, is_below});
  }
  return std::nullopt;
}

std::optional<std::string> worker_without_rank(pid_t program, int restart_signal, pid_t shim) {
  const std::vector<std::string> of_shim = environment_of(shim);
  std::vector<pid_t> open = {program};
  for (int looked = 0; !open.empty() && looked < kMaxProcesses; ++looked) {
    const pid_t one = open.back();
    open.pop_back();
    const std::vector<std::string> environment = environment_of(one);
    if (environment == of_shim) continue;
    const std::vector<pid_t> children = children_of(one);
    if (handles(one, restart_signal)) {
      // A program that changes its title (setproctitle) overwrites its variables. If PATH is still
      // there, the variables are those that it was started with.
      const bool has_rank =
          std::any_of(std::begin(kRanks), std::end(kRanks),
                      [&](const char* name) { return value_of(environment, name).has_value(); });
      if (!has_rank && value_of(environment, "PATH")) return name_of(one);
      // Processes that a training starts are not workers; the only child of a wrapper may be one.
      if (children.size() != 1) continue;
    }
    open.insert(open.end(), children.begin(), children.end());
  }
  return std::nullopt;
}

}  // namespace swell::launcher
