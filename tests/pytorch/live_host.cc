// SPDX-License-Identifier: GPL-2.0-or-later
// Keepers and a coordinator for tests in Python, as shims and swellrun have them: real switches
// without a cluster. Reads one command a line, and answers each with a line of JSON:
//   keepers N FOLDER [MIB]  {"sockets": [path, ...]}; with slabs of so many MiB on GPUs
//   begin GENERATION RANKS       {} or {"why": sentence}; waits until all programs have adopted
//   offer KEEPER GENERATION [NAME=VALUE...]  {"stays": whether its program keeps its process for
//   GENERATION,
//                            with these variables}; no program of that generation is new
//   withdraw KEEPER         {}; the generation that was offered does not come
//   switch GENERATION FROM TO S  {"committed", "why", "step", "phase", "stopped_s", "chunks",
//                            "bytes": {path: n}, "phases": [[name, seconds], ...]}; of each that
//                            was begun, how long
//   profile RANKS           {"profile": what perf::solve() takes, "launch_s", "comp_s": of the
//                           coefficients that it gives}; waits until the programs of the first
//                           keepers have reported
//   predict M SAMPLES LAYERS  {"step_s", "peak_bytes"}: what the coefficients of the last profile
//   say of
//                           one worker with LAYERS layers and M micro-batches of SAMPLES samples
//   verify WHAT             {}; what later switches compare by checksum, as swellrun
//                           --switch-verify=: network, all (until it is said) or none
//   hold PHASE FILE         {}; from now on that phase of a switch begins when FILE is gone, and
//                           FILE.reached says that it would begin
// RANKS is how many, the first of the keepers; FROM and TO are keepers, "0,1,2" in the order of
// ranks. All are of one node. New programs have S seconds to be ready.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/models/model.h"
#include "core/perf/peak_memory.h"
#include "core/perf/profile_json.h"
#include "core/perf/solve.h"
#include "profiler/assemble.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/keeper/keeper.h"
#include "support/random_worlds.h"

using namespace swell;

namespace {

class Host {
 public:
  Json keepers(std::size_t count, const std::string& folder, std::uint64_t slab_mib) {
    std::filesystem::create_directories(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    std::vector<Json> sockets;
    while (keepers_.size() < count) {
      runtime::Keeper::Options options;
      options.unix_socket = fmt::format("{}/{}", folder, keepers_.size());
      options.arena_bytes = std::uint64_t{8} << 30;
      if (slab_mib > 0) options.slab_bytes = slab_mib << 20;
      options.on_profile = [this, at = keepers_.size()](std::uint64_t, std::string body) {
        std::lock_guard lock(mutex_);
        reported_[at] = std::move(body);
        has_reported_.notify_all();
      };
      auto made = runtime::Keeper::start(std::move(options));
      if (!made) return why(made.error().message());
      keepers_.push_back(std::move(*made));
    }
    for (const auto& keeper : keepers_) sockets.push_back(keeper->unix_socket());
    return Json::object({{"sockets", array_of(sockets)}});
  }

  Json begin(std::uint64_t generation, std::size_t ranks) {
    std::vector<std::size_t> first(std::min(ranks, keepers_.size()));
    std::iota(first.begin(), first.end(), 0);
    const auto done = coordinator(std::chrono::seconds(60)).begin(shims(first), generation);
    return done ? Json::object({}) : why(done.error().message());
  }

  Json offer(std::size_t keeper, std::uint64_t generation, runtime::Variables variables) {
    return Json::object(
        {{"stays", keepers_.at(keeper)->offer_next(generation, std::move(variables), true)}});
  }

  Json withdraw(std::size_t keeper) {
    keepers_.at(keeper)->withdraw_next();
    return Json::object({});
  }

  Json profile(std::size_t ranks) {
    const cluster::Cluster machines = support::host_cluster(1, 8);
    std::vector<profiler::PlacedRank> placed;
    std::vector<profiler::RankProfile> seen;
    std::unique_lock lock(mutex_);
    if (!has_reported_.wait_for(lock, std::chrono::seconds(120), [&] {
          return std::all_of(reported_.begin(), reported_.begin() + static_cast<long>(ranks),
                             [](const std::string& body) { return !body.empty(); });
        }))
      return why("no profile of all ranks within 120 s");
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto read = profiler::read_rank_profile(reported_[rank]);
      if (!read) return why(read.error().message());
      placed.push_back({machines.nodes().front().name,
                        machines.types().front().name,
                        {static_cast<int>(rank)},
                        *read});
      seen.push_back(*read);
    }
    const auto plan = profiler::plan_of(placed);
    if (!plan) return why(plan.error().message());
    const auto profile = profiler::assemble(*plan, seen);
    if (!profile) return why(profile.error().message());
    auto solved = perf::solve(*profile, machines);
    if (!solved) return why(solved.error().message());
    solved_ = *solved;
    return Json::object({{"profile", perf::to_json(*profile)},
                         {"launch_s", solved->types.front().launch_s},
                         {"comp_s", solved->types.front().comp_s}});
  }

  Json predict(int micro_batches, int samples, int layers) const {
    if (!solved_) return why("there is no profile");
    models::Model model{};
    model.layers = layers;
    model.global_batch = micro_batches * samples;
    plan::StageLayout stage{layers, 1, {}};
    stage.groups.push_back({0, 0, samples, plan::GpuMask{1}});
    const plan::Layout layout{micro_batches, {stage}};
    const cluster::Cluster machines = support::host_cluster(1, 8);
    const perf::PerformanceModel predictor(model, machines, *solved_);
    const perf::PeakMemory peak = perf::MemoryModel(predictor).stage_peak(layout, 0);
    return Json::object({{"step_s", predictor.iteration_time(layout).total()},
                         {"peak_bytes", peak.total() - peak.overhead}});
  }

  Json verify(const std::string& what) {
    if (what == "network") verify_ = runtime::Verify::network;
    else if (what == "all") verify_ = runtime::Verify::all;
    else if (what == "none") verify_ = runtime::Verify::none;
    else return why("verify " + what + ": it must be network, all or none");
    return Json::object({});
  }

  Json hold(std::string phase, std::string file) {
    held_ = {std::move(phase), std::move(file)};
    return Json::object({});
  }

  Json change(std::uint64_t generation, const std::vector<std::size_t>& from,
              const std::vector<std::size_t>& to, std::chrono::seconds limit) {
    began_.clear();
    const auto report = coordinator(limit).switch_plan(shims(from), shims(to), generation);
    begins("");
    if (!report) return why(report.error().message());
    Json bytes = Json::object({});
    for (const runtime::PathBytes& path : report->paths)
      bytes.set(path.path.c_str(), static_cast<std::int64_t>(path.bytes));
    return Json::object({{"committed", report->committed},
                         {"why", report->why},
                         {"step", static_cast<std::int64_t>(report->step)},
                         {"phase", runtime::to_text(report->failed_in)},
                         {"stopped_s", report->stopped_s()},
                         {"chunks", static_cast<std::int64_t>(report->chunks)},
                         {"bytes", bytes},
                         {"phases", lasted()}});
  }

 private:
  using Clock = std::chrono::steady_clock;
  void begins(const std::string& phase) {
    began_.emplace_back(phase, Clock::now());
    const auto& [held, file] = held_;
    if (held != phase || file.empty()) return;
    std::ofstream(file + ".reached").put('\n');
    while (std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Json lasted() const {
    std::vector<Json> phases;
    for (std::size_t i = 0; i + 1 < began_.size(); ++i)
      phases.push_back(array_of(std::vector<Json>{
          began_[i].first,
          std::chrono::duration<double>(began_[i + 1].second - began_[i].second).count()}));
    return array_of(phases);
  }
  static Json why(const std::string& text) { return Json::object({{"why", text}}); }
  runtime::Coordinator coordinator(std::chrono::seconds limit) {
    runtime::Coordinator::Options limits;
    limits.prepare_limit = limit;
    limits.verify = verify_;
    limits.on_phase = [this](runtime::SwitchMachine::Phase phase) {
      begins(runtime::to_text(phase));
    };
    return {support::host_cluster(1, 8), limits};
  }
  std::vector<runtime::Shim> shims(const std::vector<std::size_t>& keepers) const {
    std::vector<runtime::Shim> shims;
    for (const std::size_t each : keepers)
      shims.push_back({keepers_.at(each)->unix_socket(), "", {0, static_cast<int>(each)}});
    return shims;
  }
  std::mutex mutex_;
  std::condition_variable has_reported_;
  std::array<std::string, 16> reported_;  ///< by keeper, what its program reported last
  std::vector<std::unique_ptr<runtime::Keeper>> keepers_;
  std::optional<perf::Coefficients> solved_;  ///< from the last profile
  runtime::Verify verify_ = runtime::Verify::all;
  std::pair<std::string, std::string> held_;                      ///< phase and file
  std::vector<std::pair<std::string, Clock::time_point>> began_;  ///< of the last switch
};

std::vector<std::size_t> numbers(const std::string& list) {
  std::istringstream words(list);
  std::vector<std::size_t> found;
  for (std::string one; std::getline(words, one, ',');) found.push_back(std::stoul(one));
  return found;
}

}  // namespace

int main() {
  Host host;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what, folder;
    std::uint64_t number = 0;
    std::size_t ranks = 0;
    std::uint64_t generation = 0;
    std::string from, to;
    int limit_s = 0;
    words >> what;
    std::string phase;
    if (what == "hold") words >> phase >> folder;
    else if (what == "verify") words >> phase;
    else words >> number;
    Json answer = Json::object({{"why", "no such command: " + line}});
    std::uint64_t slab_mib = 0;
    if (what == "keepers" && words >> folder)
      answer = host.keepers(number, folder, words >> slab_mib ? slab_mib : 0);
    else if (what == "hold" && !folder.empty()) answer = host.hold(phase, folder);
    else if (what == "begin" && words >> ranks) answer = host.begin(number, ranks);
    else if (what == "profile") answer = host.profile(number);
    else if (what == "verify") answer = host.verify(phase);
    else if (int samples = 0, layers = 0; what == "predict" && words >> samples >> layers)
      answer = host.predict(static_cast<int>(number), samples, layers);
    else if (what == "withdraw") answer = host.withdraw(number);
    else if (what == "switch" && words >> from >> to >> limit_s)
      answer = host.change(number, numbers(from), numbers(to), std::chrono::seconds(limit_s));
    else if (what == "offer" && words >> generation) {
      runtime::Variables variables;
      for (std::string one; words >> one;)
        variables.emplace_back(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
      answer = host.offer(number, generation, std::move(variables));
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
