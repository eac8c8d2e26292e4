// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "runtime/coordinator/coordinator.h"
#include "runtime/keeper/keeper.h"
#include "support/random_worlds.h"

namespace support {

namespace fs = std::filesystem;
using runtime::Keeper;
using runtime::Shim;

struct PlanShape {
  int pp = 1, dp = 1, tp = 1, zero = 0;
  int ranks() const { return pp * dp * tp; }
};

/// A job on this host: shims run in this process, programs of examples/regression as real
/// processes.
class LiveJob {
 public:
  static constexpr const char* kKey = "a key of one job, 32 bytes long..";

  /// `apart`: each shim treats the others as shims of other hosts, and so connects to them by TCP
  /// on loopback. `holds`: points at which a shim's move waits. `ucx`, `nccl`: options of UCX and
  /// NCCL for the shims; empty: not used. `slab_bytes`: size of a slab of GPU memory, which several
  /// tensors share.
  LiveJob(std::string program, int shims, std::vector<std::string> words, bool apart = false,
          const std::function<bool(Keeper::Options::Hold)>& holds = {},
          const std::function<runtime::Ucx::Options(int)>& ucx = {},
          const std::optional<runtime::NcclOptions>& nccl = {},
          std::uint64_t slab_bytes = runtime::Slabs::kSlabBytes)
      : arguments(std::move(words)), program_(std::move(program)) {
    std::string pattern = fs::temp_directory_path() / "swell-live-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    for (int i = 0; i < shims; ++i) {
      Keeper::Options options;
      options.unix_socket = folder_ + "/" + std::to_string(i) + "/socket";
      options.tcp_host = "127.0.0.1";
      options.key = kKey;
      if (apart) options.host = "host " + std::to_string(i);
      options.arena_bytes = std::uint64_t{16} << 30;
      options.holds = holds;
      if (ucx) options.ucx = ucx(i);
      options.nccl = nccl;
      options.slab_bytes = slab_bytes;
      keepers.push_back(std::move(Keeper::start(std::move(options)).value()));
      shims_.push_back({keepers.back()->unix_socket(), "", {i / kDevices, i % kDevices}});
    }
  }
  ~LiveJob() {
    for (auto& [pid, status] : programs_)
      if (!status) kill(pid, SIGKILL);
    for (auto& [pid, status] : programs_)
      if (!status) waitpid(pid, nullptr, 0);
    keepers.clear();
    fs::remove_all(folder_);
  }
  LiveJob(const LiveJob&) = delete;
  LiveJob& operator=(const LiveJob&) = delete;

  static cluster::Cluster cluster() { return host_cluster(4, kDevices); }
  /// Returns the shims of a plan's ranks, beginning with shim `first`.
  std::vector<Shim> shims(const PlanShape& plan, int first = 0) const {
    return {shims_.begin() + first, shims_.begin() + first + plan.ranks()};
  }
  const std::string& folder() const { return folder_; }

  /// Starts one process for each rank.
  std::vector<pid_t> start(const PlanShape& plan, int first = 0) {
    std::vector<std::size_t> shims;
    for (int rank = 0; rank < plan.ranks(); ++rank)
      shims.push_back(static_cast<std::size_t>(first + rank));
    return start_on(plan, shims);
  }
  /// Starts one process for each rank, on the given shims.
  std::vector<pid_t> start_on(const PlanShape& plan, const std::vector<std::size_t>& shims) {
    std::vector<pid_t> started;
    for (std::size_t rank = 0; rank < shims.size(); ++rank)
      started.push_back(start_rank(plan, rank, shims[rank]));
    return started;
  }
  /// Starts the process of one rank.
  pid_t start_rank(const PlanShape& plan, std::size_t rank, std::size_t shim) {
    std::vector<std::string> environment{
        "RANK=" + std::to_string(rank), "SWELL_RUNTIME=" + shims_[shim].unix_socket,
        "PLAN=" + std::to_string(plan.pp) + "," + std::to_string(plan.dp) + "," +
            std::to_string(plan.tp) + "," + std::to_string(plan.zero)};
    environment.insert(environment.end(), variables.begin(), variables.end());
    if (const char* options = std::getenv("TSAN_OPTIONS"))
      environment.push_back(std::string("TSAN_OPTIONS=") + options);
    std::vector<char*> argv{program_.data()}, envp;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    for (std::string& variable : environment) envp.push_back(variable.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const pid_t own = getpid(), pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      // A failed assertion ends this process at once; the kernel then kills its programs.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() == own) execve(program_.c_str(), argv.data(), envp.data());
      _exit(127);
    }
    programs_[pid] = std::nullopt;
    return pid;
  }
  /// Waits for the end of `pid`. Returns its wait status.
  int wait(pid_t pid) {
    auto& status = programs_[pid];
    if (status) return *status;
    int found = 0;
    waitpid(pid, &found, 0);
    status = found;
    return found;
  }
  void stop(pid_t pid) {
    kill(pid, SIGKILL);
    wait(pid);
  }

  /// Returns the tensors of a plan as the shims hold them. Aborts if replicas differ.
  std::map<std::string, std::vector<double>> state(const std::vector<Shim>& ranks) const {
    std::map<std::string, std::vector<double>> state;
    std::map<std::string, std::vector<bool>> known;
    for (const Shim& shim : ranks) {
      auto channel = runtime::Channel::connect_unix(shim.unix_socket).value();
      auto passed = ask(channel, runtime::Op::arena, {}).value();
      const auto bytes = swell::ByteReader(passed.body).get<std::uint64_t>();
      const auto arena = runtime::Arena::map(std::move(passed.fd), bytes).value();
      const auto table =
          runtime::read_table(ask(channel, runtime::Op::table, {}).value().body).value();
      for (const runtime::Held& held : table.second) {
        const runtime::Part all = runtime::Part::whole(held.entry.tensor.shape);
        auto& values = state[held.entry.tensor.name];
        auto& has = known[held.entry.tensor.name];
        values.resize(static_cast<std::size_t>(all.elements()));
        has.resize(values.size());
        const auto* memory = reinterpret_cast<const double*>(arena.data() + held.at);
        for (const runtime::Box& box : boxes_of(held.entry.part))
          each_run(
              box, held.entry.part, all,
              [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                for (std::int64_t k = 0; k < count; ++k) {
                  const auto at = static_cast<std::size_t>(to + k);
                  if (has[at] && std::memcmp(&values[at], memory + from + k, sizeof(double)) != 0)
                    std::abort();
                  values[at] = memory[from + k];
                  has[at] = true;
                }
              });
      }
    }
    return state;
  }

  runtime::Status status(int shim) const {
    auto channel =
        runtime::Channel::connect_unix(shims_[static_cast<std::size_t>(shim)].unix_socket).value();
    return runtime::read_status(ask(channel, runtime::Op::status, {}).value().body).value();
  }

  std::vector<std::unique_ptr<Keeper>> keepers;
  std::vector<std::string> arguments;  ///< of programs started from now on
  std::vector<std::string> variables;  ///< of the programs, in addition to their rank and plan

 private:
  static constexpr int kDevices = 4;
  std::string program_, folder_;
  std::vector<Shim> shims_;
  std::map<pid_t, std::optional<int>> programs_;
};

}  // namespace support
