// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how long training stops when a job of two ranks gets a third, in one run: by a
// checkpoint on disk (written through) from which the new programs resume; by swellrun's restart
// mode on a real cluster (if SWELL_STAGE names an installed Swell); live with memory that the
// programs allocated; live with arenas. Two of six layers move to the new rank, so that 2/3 of the
// state stays. A pause is from the end of the old programs' last step (the first rank's) to the end
// of the new ones' first step (the last rank's). Programs are real processes, this one executed
// again; shims are threads here, except in restart mode. A real program also loads libraries and
// builds a model; that time is not included. usage: redeploy [MIB [FOLDER]]; or redeploy --network
// [MIB [FOLDER]]: live with arenas between shims of different hosts over loopback, with TCP, UCX's
// TCP and UCX's preferred transport in turn; or redeploy --gpu [MIB [FOLDER]]: live with state on
// GPUs of the stand-in for the driver, each four fifths full with its rank's state and the contexts
// of two programs. This exits with 1 if the switch is cancelled, a reused byte was copied, or more
// memory was taken than the bound. Last line: JSON.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "redeploy_program.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/keeper/keeper.h"
#include "runtime/stand_in_gpus.h"
#include "support/random_worlds.h"

using namespace swell;
using namespace bench;

namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 40;  // steps before the switch

/// Returns the CPU time of this process, which runs the shims as threads.
double cpu_s() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

struct Started {
  pid_t pid = 0;
  Clock* clock = nullptr;
};

Started start(Way way, std::size_t bytes, const std::string& folder, const std::string& socket,
              const std::vector<int>& layers, const std::vector<std::string>& more = {}) {
  const int fd = memfd_create("clock", 0);
  if (fd < 0 || ftruncate(fd, sizeof(Clock)) != 0) die("memfd");
  Started started{0, map_shared<Clock>(fd, sizeof(Clock))};
  std::string list;
  for (const int layer : layers) list += static_cast<char>('0' + layer);
  const std::string words[] = {"redeploy",
                               "--program",
                               std::to_string(static_cast<int>(way)),
                               std::to_string(bytes),
                               folder,
                               std::to_string(fd),
                               list};
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string runtime = "SWELL_RUNTIME=" + socket;
  std::vector<char*> envp{const_cast<char*>(runtime.c_str())};
  for (const std::string& one : more) envp.push_back(const_cast<char*>(one.c_str()));
  const auto is_set = [&](const char* variable) {
    const std::string name(variable, std::strcspn(variable, "=") + 1);
    return std::any_of(more.begin(), more.end(),
                       [&](const std::string& one) { return one.starts_with(name); });
  };
  for (char** each = environ; *each != nullptr; ++each)
    if (!is_set(*each)) envp.push_back(*each);
  envp.push_back(nullptr);
  const pid_t own = getpid();
  started.pid = fork();
  if (started.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == own) execve("/proc/self/exe", argv.data(), envp.data());
    _exit(127);
  }
  close(fd);
  return started;
}

void wait_for_steps(const std::vector<Started>& programs, int steps) {
  for (const Started& each : programs)
    while (each.clock->steps < steps) {
      if (waitpid(each.pid, nullptr, WNOHANG) != 0) die("a program has ended");
      const timespec pause{0, 1000000};
      nanosleep(&pause, nullptr);
    }
}

struct Measured {
  double pause_s = 0;
  double move_cpu_s = 0;  ///< total of all shims
  runtime::SwitchReport report;
};

/// Memory that a switch on GPUs may take in addition to the state: swellrun's default.
constexpr std::uint64_t kBoundBytes = std::uint64_t{2} << 30;

constexpr const char* kKey = "a key of one job, 32 bytes long..";

/// Share of a rank's GPU memory that the state of three layers and the context of each program
/// fill.
constexpr double kUsed = 0.8;
constexpr std::uint64_t kContextBytes = std::uint64_t{4} << 20;

/// Sets the file that stands for the GPUs of the ranks.
struct GpuFile {
  explicit GpuFile(const std::string& base) : path(base + "/gpus") {}
  std::vector<std::string> of(std::size_t rank) const {
    const char* libraries = std::getenv("LD_LIBRARY_PATH");  // libtool's value, for libswell
    return {"STAND_IN_MEMORY=" + path, fmt::format("STAND_IN_FIRST={}", rank),
            fmt::format("LD_LIBRARY_PATH={}:{}", SWELL_STAND_INS, libraries ? libraries : "")};
  }
  const std::string path;
};

/// Transports of UCX between hosts; empty: only TCP.
struct Network {
  std::string ucx_transports;
};

Measured measure(Way way, std::size_t bytes, const std::string& base,
                 const std::optional<Network>& network = std::nullopt) {
  const bool is_live = way == Way::copies || way == Way::arenas || way == Way::gpu;
  if (network && !network->ucx_transports.empty())
    setenv("UCX_TLS", network->ucx_transports.c_str(), 1);
  const std::string folder = base + "/state";
  fs::create_directory(folder);
  std::vector<std::unique_ptr<runtime::Keeper>> keepers;
  std::vector<runtime::Shim> shims;
  for (int i = 0; is_live && i < 3; ++i) {
    runtime::Keeper::Options options;
    options.unix_socket = fmt::format("{}/{}/socket", base, i);
    options.arena_bytes = 2 * kLayers * bytes + (std::uint64_t{1} << 30);
    if (network) {
      options.host = fmt::format("host {}", i);
      options.tcp_host = "127.0.0.1";
      options.key = kKey;
      if (!network->ucx_transports.empty()) options.ucx = runtime::Ucx::Options{.devices = "lo"};
    }
    auto keeper = runtime::Keeper::start(std::move(options));
    if (!keeper) die(keeper.error().message());
    shims.push_back({(*keeper)->unix_socket(), "", {0, i}});
    keepers.push_back(std::move(*keeper));
  }
  const auto socket = [&](std::size_t i) { return is_live ? shims[i].unix_socket : ""; };
  std::vector<Started> old, next;
  const GpuFile gpus(base);
  const auto where = [&](std::size_t rank) {
    return way == Way::gpu ? gpus.of(rank) : std::vector<std::string>();
  };
  for (std::size_t i = 0; i < kOld.size(); ++i)
    old.push_back(start(way, bytes, folder, socket(i), kOld[i], where(i)));
  runtime::Coordinator::Options options;
  options.max_extra_bytes = way == Way::gpu ? kBoundBytes : UINT64_MAX;
  Measured measured;
  options.on_phase = [&](runtime::SwitchMachine::Phase phase) {
    if (phase == runtime::SwitchMachine::Phase::move) measured.move_cpu_s -= cpu_s();
    if (phase == runtime::SwitchMachine::Phase::commit) measured.move_cpu_s += cpu_s();
  };
  runtime::Coordinator coordinator(support::host_cluster(1, 4), options);
  if (is_live)
    if (auto begun = coordinator.begin({shims[0], shims[1]}, 1); !begun)
      die(begun.error().message());
  wait_for_steps(old, kSteps);

  const auto start_next = [&] {
    for (std::size_t i = 0; i < kNew.size(); ++i)
      next.push_back(start(way, bytes, folder, socket(i), kNew[i], where(i)));
  };
  if (is_live) {
    start_next();
    auto report = coordinator.switch_plan({shims[0], shims[1]}, shims, 2);
    if (!report || !report->committed) die(report ? report->summary() : report.error().message());
    measured.report = std::move(*report);
  } else {
    for (const Started& each : old) kill(each.pid, SIGUSR1);
  }
  for (const Started& each : old) {
    int status = 0;
    waitpid(each.pid, &status, 0);
    if (status != 0) die("an old program failed");
  }
  if (!is_live) start_next();
  wait_for_steps(next, 2);
  std::int64_t last = INT64_MAX, first = 0;
  for (const Started& each : old) last = std::min<std::int64_t>(last, each.clock->last_ns);
  for (const Started& each : next) first = std::max<std::int64_t>(first, each.clock->first_ns);
  measured.pause_s = static_cast<double>(first - last) / 1e9;
  for (const Started& each : next) kill(each.pid, SIGKILL);
  for (const Started& each : next) waitpid(each.pid, nullptr, 0);
  fs::remove_all(folder);
  return measured;
}

/// Returns the seconds of swellrun's restart mode; nothing without an installed Swell.
std::optional<double> restart_pause(std::size_t bytes, const std::string& base) {
  if (std::getenv("SWELL_STAGE") == nullptr) return std::nullopt;
  const std::string own = fs::read_symlink("/proc/self/exe"), folder = base + "/restart";
  std::FILE* script = popen(
      fmt::format("'{}/restart_pause' '{}' {} '{}'", SWELL_BENCH, own, bytes, folder).c_str(), "r");
  double seconds = 0;
  const bool is_read = script != nullptr && std::fscanf(script, "%lf", &seconds) == 1;
  if (script == nullptr || pclose(script) != 0 || !is_read) die("restart_pause failed");
  fs::remove_all(folder);
  return seconds;
}

/// Bytes a second of one memcpy: by wall clock, and by its CPU time.
struct Rate {
  double by_clock = 0, by_cpu = 0;
};

/// Measures memcpy between memfds, as arenas are, whose pages are resident.
Rate memcpy_rate(std::size_t bytes) {
  const int from = memfd_create("from", 0), to = memfd_create("to", 0);
  if (ftruncate(from, static_cast<off_t>(bytes)) != 0 ||
      ftruncate(to, static_cast<off_t>(bytes)) != 0)
    die("memfd");
  char *source = map_shared<char>(from, bytes), *target = map_shared<char>(to, bytes);
  std::memset(source, 1, bytes);
  std::memset(target, 2, bytes);
  const std::int64_t start = now_ns();
  const double cpu_before = cpu_s();
  std::memcpy(target, source, bytes);
  const double cpu = cpu_s() - cpu_before, seconds = static_cast<double>(now_ns() - start) / 1e9;
  munmap(source, bytes);
  munmap(target, bytes);
  close(from);
  close(to);
  return {static_cast<double>(bytes) / seconds, static_cast<double>(bytes) / cpu};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Compares the networks in turn, so that other programs on this host slow all of them down.
int compare_networks(std::size_t bytes, const std::string& base) {
  const Network networks[] = {{""}, {"tcp"}, {"all"}};
  std::vector<double> rates[3], pauses[3];
  std::string paths[3];
  for (int turn = 0; turn < 3; ++turn)
    for (std::size_t i = 0; i < std::size(networks); ++i) {
      const Measured measured = measure(Way::arenas, bytes, base, networks[i]);
      for (const std::string& note : measured.report.notes) die(note);
      std::uint64_t moved = 0;
      for (const runtime::PathBytes& path : measured.report.paths) {
        if (path.path == "in place") continue;
        moved += path.bytes;
        paths[i] = path.path;
      }
      rates[i].push_back(static_cast<double>(moved) / measured.report.move_s / 1e9);
      pauses[i].push_back(measured.pause_s);
      std::printf("%-14s %.3f GB/s, pause %.3f s\n", paths[i].c_str(), rates[i].back(),
                  pauses[i].back());
      std::fflush(stdout);
    }
  fs::remove_all(base);
  double loads[1] = {};
  if (getloadavg(loads, 1) != 1) loads[0] = -1;
  std::printf(
      "{\"tcp_GB_s\":%.3f,\"ucx_tcp_GB_s\":%.3f,\"ucx_GB_s\":%.3f,\"ucx_tcp_vs_tcp\":%.2f,"
      "\"ucx_vs_tcp\":%.2f,\"ucx_path\":\"%s\",\"load\":%.1f}\n",
      median(rates[0]), median(rates[1]), median(rates[2]), median(rates[1]) / median(rates[0]),
      median(rates[2]) / median(rates[0]), paths[2].c_str(), loads[0]);
  return 0;
}

std::uint64_t copied(const runtime::SwitchReport& report) {
  std::uint64_t bytes = 0;
  for (const runtime::PathBytes& path : report.paths)
    if (path.path != "in place") bytes += path.bytes;
  return bytes;
}

/// Measures a growth on GPUs that the state and one context fill by kUsed.
int hand_over_on_gpus(std::size_t bytes, const std::string& base) {
  constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;
  const std::uint64_t layer = (bytes + kUnit - 1) / kUnit * kUnit, state = 3 * layer;
  const auto gpu = static_cast<std::uint64_t>(static_cast<double>(state + kContextBytes) / kUsed);
  stand_in::Gpus::make(GpuFile(base).path, gpu, kContextBytes);
  const Measured measured = measure(Way::gpu, layer, base);
  const stand_in::Gpus seen(GpuFile(base).path);
  const runtime::SwitchReport& report = measured.report;
  const std::uint64_t most = std::max(seen.most(0), seen.most(1));
  std::printf("live, GPUs               pause %.3f s; %s\n", measured.pause_s,
              report.summary().c_str());
  const auto reused_copied =
      static_cast<long long>(copied(report)) - static_cast<long long>(2 * layer);
  fs::remove_all(base);
  std::printf(
      "{\"gpu_bytes\":%llu,\"used\":%.3f,\"committed\":%s,\"pause_s\":%.4f,\"copied_bytes\":%llu,"
      "\"reused_bytes_copied\":%lld,\"extra_bytes\":%llu,\"bound_bytes\":%llu,"
      "\"most_beside_state_bytes\":%llu,\"stand_in\":true}\n",
      static_cast<unsigned long long>(gpu),
      static_cast<double>(state + kContextBytes) / static_cast<double>(gpu),
      report.committed ? "true" : "false", measured.pause_s,
      static_cast<unsigned long long>(copied(report)), reused_copied,
      static_cast<unsigned long long>(report.max_extra_bytes),
      static_cast<unsigned long long>(kBoundBytes),
      static_cast<unsigned long long>(most - state - 2 * kContextBytes));
  return report.committed && reused_copied <= 0 && report.max_extra_bytes <= kBoundBytes ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 7 && std::string(argv[1]) == "--program") {
    std::vector<int> layers;
    for (const char* each = argv[6]; *each != '\0'; ++each) layers.push_back(*each - '0');
    return program(static_cast<Way>(std::atoi(argv[2])), std::strtoull(argv[3], nullptr, 10),
                   argv[4], std::atoi(argv[5]), layers);
  }
  if (argc == 4 && std::string(argv[1]) == "--worker")
    return worker(std::strtoull(argv[2], nullptr, 10), argv[3]);
  if (argc == 3 && std::string(argv[1]) == "--pause") return print_pause(argv[2]);
  const bool compares = argc > 1 && std::string(argv[1]) == "--network";
  const bool on_gpus = argc > 1 && std::string(argv[1]) == "--gpu";
  if (compares || on_gpus) {
    --argc;
    ++argv;
  }
  const std::size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024;
  const std::size_t bytes = mib * 1024 * 1024 / kLayers / 4096 * 4096;
  std::string base = std::string(argc > 2 ? argv[2] : "/var/tmp") + "/swell-redeploy-XXXXXX";
  if (mkdtemp(base.data()) == nullptr) die(base);
  if (compares) return compare_networks(bytes, base);
  if (on_gpus) return hand_over_on_gpus(bytes, base);
  double pauses[4] = {};
  static constexpr const char* kNames[] = {"checkpoint on disk", "swellrun's restart mode",
                                           "live, copies", "live, arenas"};
  // Other programs of this host sometimes slow a copy down: with arenas it is measured three times,
  // each beside a memcpy of as many bytes before and after it, and the median counts. If more
  // threads run than the host has cores, CPU time tells more about the copy than the clock.
  std::vector<double> rates, costs;
  std::vector<Measured> with_arenas;
  for (const Way way : {Way::disk, Way::copies, Way::arenas, Way::arenas, Way::arenas}) {
    const auto i = static_cast<std::size_t>(way);
    const Rate before = way == Way::arenas ? memcpy_rate(2 * bytes) : Rate();
    Measured measured = measure(way, bytes, base);
    if (way == Way::arenas) {
      const Rate after = memcpy_rate(2 * bytes);
      const double moved = static_cast<double>(copied(measured.report));
      rates.push_back(2 * moved / measured.report.move_s / (before.by_clock + after.by_clock));
      costs.push_back(measured.move_cpu_s / moved * (before.by_cpu + after.by_cpu) / 2);
      with_arenas.push_back(measured);
    }
    pauses[i] = measured.pause_s;
    std::printf("%-24s pause %.3f s%s%s\n", kNames[i], pauses[i],
                measured.report.committed ? "; " : "",
                measured.report.committed ? measured.report.summary().c_str() : "");
    std::fflush(stdout);
  }
  std::sort(with_arenas.begin(), with_arenas.end(),
            [](const Measured& a, const Measured& b) { return a.pause_s < b.pause_s; });
  pauses[3] = with_arenas[1].pause_s;
  const auto restart_s = restart_pause(bytes, base);
  if (restart_s) std::printf("%-24s pause %.3f s\n", kNames[1], *restart_s);
  else std::printf("%-24s not measured: SWELL_STAGE names no installed Swell\n", kNames[1]);
  fs::remove_all(base);
  const runtime::SwitchReport& live = with_arenas[1].report;
  const std::uint64_t needed = 2 * bytes;
  double loads[1] = {};
  if (getloadavg(loads, 1) != 1) loads[0] = -1;
  std::printf("as memcpy, rate (CPU time a byte):");
  for (std::size_t i = 0; i < rates.size(); ++i) std::printf(" %.3f (%.2f)", rates[i], costs[i]);
  std::printf("\n");
  std::printf("%zu bytes of state; live with copies %.4f s\n", bytes * kLayers, pauses[2]);
  std::printf(
      "{\"pause_ckpt_s\":%.4f,\"pause_restart_s\":%s,\"pause_live_s\":%.4f,\"ratio\":%.1f,"
      "\"copy_rate_vs_memcpy\":%.3f,\"copy_cpu_vs_memcpy\":%.2f,\"extra_bytes\":%llu,\"reused_bytes_copied\":%lld,"
      "\"load\":%.1f}\n",
      pauses[0], restart_s ? fmt::format("{:.4f}", *restart_s).c_str() : "null", pauses[3],
      pauses[0] / pauses[3], median(rates), median(costs),
      static_cast<unsigned long long>(live.max_extra_bytes),
      static_cast<long long>(copied(live)) - static_cast<long long>(needed), loads[0]);
  return 0;
}
