// SPDX-License-Identifier: GPL-2.0-or-later
// Creates the load and the measurements of tests/bench/slurmctld over Slurm's public API. It starts
// no client process for a sample, so that only slurmctld is timed.
//
//   slurmctld_probe fill NODES FIRST RUNNING PENDING
//       creates allocations that hold GPUs, from node FIRST + 1 on, cyclically, and jobs that
//       cannot start
//   slurmctld_probe elastic FIRST COUNT NODES
//       creates COUNT elastic allocations of one GPU of the user who calls it, from node FIRST + 1
//       on, cyclically
//   slurmctld_probe load SECONDS [FOLDER]
//       sends the same mix of requests for every scheduler; with FOLDER, appends each request's
//       time in us to FOLDER/KIND, and sdiag's cycles to FOLDER/{main,backfill}_cycle
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "bench/request.h"
#include "slurm/versions.h"

namespace {

namespace slurm = swell::slurm;

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "slurmctld_probe: %s: %s\n", what, slurm_strerror(errno));
  std::exit(1);
}

/// A job of this benchmark. Its texts must outlive it.
struct Job : swell::bench::Request {
  std::string node, script = "#!/bin/sh\nsleep 1\n", output = "/dev/null",
                    path = "PATH=/usr/bin:/bin", elastic;
  char* environment[2] = {};

  using Request::Request;
  /// As sbatch passes --elastic where the SPANK plugin is not loaded.
  void be_elastic() {
    elastic = "SWELL_ELASTIC=mode=live,consistency=relaxed";
    environment[0] = elastic.data();
    description.environment = environment;
    description.env_size = 1;
  }
  void allocate_on(const std::string& wanted) {
    node = wanted;
    description.req_nodes = node.data();
    description.immediate = 1;
    if (allocate().id == 0) die("slurm_allocate_resources");
  }
  std::uint32_t submit() {
    environment[0] = path.data();
    description.environment = environment;
    description.env_size = 1;
    description.script = script.data();
    description.std_out = description.std_err = output.data();
    submit_response_msg_t* response = nullptr;
    if (slurm_submit_batch_job(&description, &response) != SLURM_SUCCESS)
      die("slurm_submit_batch_job");
    const std::uint32_t id = slurm::job_id_of(*response);
    slurm_free_submit_response_response_msg(response);
    return id;
  }
};

/// Gives every node a job, so that none is idle: jobs of 8 GPUs a node then wait.
void fill(int nodes, int first, int running, int pending) {
  for (int i = first; i < first + running; ++i)
    Job("running", 1, 4, 1440).allocate_on("node" + std::to_string(i % nodes + 1));
  constexpr int sizes[] = {1, 2, 4, 1, 8, 2, 16, 1, 32, 64};
  for (int i = 0; i < pending; ++i)
    Job("pending", std::min(sizes[i % std::size(sizes)], nodes), 8,
        static_cast<unsigned>(30 + 37 * i % 690))
        .submit();
}

void allocate_elastic(int first, int count, int nodes) {
  for (int i = first; i < first + count; ++i) {
    Job job("elastic", 1, 1, 1440);
    job.be_elastic();
    job.allocate_on("node" + std::to_string(i % nodes + 1));
  }
}

/// Times of requests, by kind.
class Times {
 public:
  template <typename Request>
  void time(const char* kind, Request request) {
    const auto begin = Clock::now();
    request();
    times_[kind].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  void write(const std::string& folder) const {
    for (const auto& [kind, times] : times_) {
      std::ofstream out(folder + "/" + kind, std::ios::app);
      for (double each : times) out << each << '\n';
    }
  }

 private:
  std::map<std::string, std::vector<double>> times_;
};

void list_jobs() {
  job_info_msg_t* message = nullptr;
  if (slurm_load_jobs(0, &message, SHOW_ALL) != SLURM_SUCCESS) die("slurm_load_jobs");
  slurm_free_job_info_msg(message);
}

void show_job(std::uint32_t id) {
  job_info_msg_t* message = nullptr;
  if (slurm::load_job(id, &message) != SLURM_SUCCESS) die("slurm_load_job");
  slurm_free_job_info_msg(message);
}

void list_nodes() {
  node_info_msg_t* message = nullptr;
  if (slurm_load_node(0, &message, SHOW_ALL) != SLURM_SUCCESS) die("slurm_load_node");
  slurm_free_node_info_msg(message);
}

std::uint32_t first_job() {
  job_info_msg_t* message = nullptr;
  if (slurm_load_jobs(0, &message, SHOW_ALL) != SLURM_SUCCESS || message->record_count == 0)
    die("slurm_load_jobs");
  const std::uint32_t id = slurm::job_id_of(message->job_array[0]);
  slurm_free_job_info_msg(message);
  return id;
}

/// sdiag's last cycles, each recorded once. The median is used, since other work of the host
/// affects it less than the mean. Cycles shorter than the pause between two polls may be missed.
class Cycles {
 public:
  void look() {
    stats_info_request_msg_t request{STAT_COMMAND_GET};
    stats_info_response_msg_t* stats = nullptr;
    if (slurm_get_statistics(&stats, &request) != SLURM_SUCCESS) die("slurm_get_statistics");
    main_.note(stats->schedule_cycle_counter, stats->schedule_cycle_last);
    backfill_.note(stats->bf_cycle_counter, stats->bf_cycle_last);
    // There is no public function to free the answer; a few hundred of some KiB remain.
  }
  void write(const std::string& folder) const {
    main_.write(folder + "/main_cycle");
    backfill_.write(folder + "/backfill_cycle");
  }

 private:
  struct Kind {
    bool seen = false;
    std::uint32_t counter = 0;
    std::vector<std::uint32_t> times;
    void note(std::uint32_t now, std::uint32_t last) {
      if (seen && now != counter) times.push_back(last);
      counter = now;
      seen = true;
    }
    void write(const std::string& path) const {
      std::ofstream out(path, std::ios::app);
      for (std::uint32_t each : times) out << each << '\n';
    }
  } main_, backfill_;
};

/// Sends 100 small requests a second, and four times a second the whole queue, all nodes, a
/// submission and a cancellation, in a new order each time: a fixed order would coincide with the
/// controller's own rhythm, which follows submissions.
void load(double seconds, const std::string& folder) {
  const std::uint32_t job = first_job();
  Times times;
  Cycles cycles;
  std::deque<std::uint32_t> fresh;
  const std::vector<std::function<void()>> requests{
      [&] { times.time("list_jobs", list_jobs); },
      [&] { times.time("list_nodes", list_nodes); },
      [&] { times.time("submit", [&] { fresh.push_back(Job("fresh", 1, 8, 30).submit()); }); },
      [&] {
        if (fresh.empty()) return;
        times.time("cancel", [&] { slurm::kill_job(fresh.front(), SIGKILL); });
        fresh.pop_front();
      },
      [&] { cycles.look(); },
  };
  constexpr std::size_t ticks = 25;  // ticks of 10 ms
  std::vector<std::size_t> order(ticks);
  std::iota(order.begin(), order.end(), 0);
  std::minstd_rand random(1);
  const auto begin = Clock::now();
  auto next = begin;
  for (std::size_t tick = 0; Clock::now() - begin < std::chrono::duration<double>(seconds);
       ++tick) {
    if (tick % ticks == 0) std::shuffle(order.begin(), order.end(), random);
    times.time("show_job", [&] { show_job(job); });
    if (order[tick % ticks] < requests.size()) requests[order[tick % ticks]]();
    next += std::chrono::milliseconds(10);
    std::this_thread::sleep_until(next);
  }
  for (std::uint32_t each : fresh) slurm::kill_job(each, SIGKILL);
  if (folder.empty()) return;
  times.write(folder);
  cycles.write(folder);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  slurm_init(nullptr);
  if (command == "fill" && argc == 6)
    fill(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
  else if (command == "elastic" && argc == 5)
    allocate_elastic(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  else if (command == "load" && argc >= 3) load(std::atof(argv[2]), argc > 3 ? argv[3] : "");
  else {
    std::fprintf(
        stderr,
        "usage: slurmctld_probe fill NODES FIRST RUNNING PENDING | elastic FIRST COUNT NODES | load SECONDS [FOLDER]\n");
    return 2;
  }
  return 0;
}
