// SPDX-License-Identifier: GPL-2.0-or-later
// Runs the job stream of tests/bench/placement over Slurm's public API: allocations without
// processes, which start where slurmctld puts them.
//
//   placement_probe HOW SEED JOBS NODES LOAD SECONDS LAYOUT...
//
// HOW: `arrive`: jobs arrive at given times, wait in Slurm's queue, and hold nodes for fixed times
// of the clock. `fill`: submits the next job whenever that brings the share in use nearer to LOAD,
// else ends the job with the earliest end. Its clock is counted, not waited for, so that the jobs
// that run together depend neither on the second between two passes of slurmctld's scheduler nor on
// the speed of this host. LAYOUT: racks of node1, node2, ..., as "a,a,b,b"
//
// prints: delay_s (mean from submission to start), busy (mean share of GPUs in use, from when a
// tenth of the jobs has arrived until the last has), least (mean switches of the jobs of several
// nodes in an empty cluster, the minimum of any placement), and for each layout the mean switches
// of the actual placement
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "bench/placement_jobs.h"
#include "bench/request.h"
#include "slurm/hostlist.h"
#include "slurm/versions.h"

namespace {

namespace slurm = swell::slurm;

using namespace swell::bench;
using Clock = std::chrono::steady_clock;
constexpr auto kLookAgain = std::chrono::milliseconds(15);

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "placement_probe: %s: %s\n", what, slurm_strerror(errno));
  std::exit(1);
}

std::vector<int> expand(const char* list) {
  std::vector<int> nodes;
  for (const std::string& host : slurm::expand_hosts(list))
    nodes.push_back(std::atoi(host.c_str() + 4) - 1);
  return nodes;
}

/// Submits a job. Returns whether it was accepted; `immediate`: whether it runs at once.
bool submit(Job& job, bool immediate) {
  Request request("placement", job.nodes, job.gpus,
                  immediate ? 10 : 1);  // the counted clock may be slower than the host's
  request.description.immediate = immediate ? 1 : 0;
  const Allocation made = request.allocate();
  if (made.id == 0) {
    if (immediate && (errno == ESLURM_NODES_BUSY || errno == ESLURM_CAN_NOT_START_IMMEDIATELY))
      return false;
    die("slurm_allocate_resources");
  }
  job.id = made.id;
  if (immediate) job.on = expand(made.nodes.c_str());
  return true;
}

/// Records which of the jobs have started by now.
void look(std::map<std::uint32_t, Job*>& waiting, double now) {
  job_info_msg_t* message = nullptr;
  if (slurm_load_jobs(0, &message, SHOW_ALL) != SLURM_SUCCESS) die("slurm_load_jobs");
  for (std::uint32_t i = 0; i < message->record_count; ++i) {
    const job_info_t& info = message->job_array[i];
    const std::uint32_t id = slurm::job_id_of(info);
    const auto found = waiting.find(id);
    if (found == waiting.end() || (info.job_state & JOB_STATE_BASE) != JOB_RUNNING ||
        info.nodes == nullptr)
      continue;
    found->second->started_s = now;
    found->second->on = expand(info.nodes);
    waiting.erase(found);
  }
  slurm_free_job_info_msg(message);
}

double share_of(const Job& job) { return job.nodes * (job.gpus / 8.0); }

/// Returns the mean share of GPUs that jobs held, from when a tenth of the jobs had arrived until
/// the last one did.
double arrive(std::vector<Job>& jobs, int nodes) {
  std::map<std::uint32_t, Job*> waiting;
  std::size_t next = 0, ended = 0;
  double busy = 0;
  const auto begin = Clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  int looks = 0;
  while (ended < jobs.size()) {
    for (; next < jobs.size() && jobs[next].arrives_s <= seconds(); ++next) {
      submit(jobs[next], false);
      jobs[next].submitted_s = seconds();
      waiting[jobs[next].id] = &jobs[next];
    }
    look(waiting, seconds());
    double held = 0;
    for (Job& job : jobs) {
      if (job.started_s < 0 || job.ended) continue;
      held += share_of(job);
      if (seconds() < job.started_s + job.lasts_s) continue;
      slurm::kill_job(job.id, SIGKILL);
      job.ended = true;
      ++ended;
    }
    if (next < jobs.size() && next >= jobs.size() / 10) {
      busy += held / nodes;
      ++looks;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return looks > 0 ? busy / looks : 0;
}

/// Ends a job, and waits until its nodes are free.
void end(Job& job) {
  slurm::kill_job(job.id, SIGKILL);
  job.ended = true;
  for (bool gone = false; !gone; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
    job_info_msg_t* message = nullptr;
    if (slurm::load_job(job.id, &message) != SLURM_SUCCESS) die("slurm_load_job");
    const std::uint32_t state = message->record_count > 0 ? message->job_array[0].job_state
                                                          : static_cast<std::uint32_t>(JOB_END);
    gone = (state & JOB_STATE_BASE) > JOB_SUSPENDED && (state & JOB_COMPLETING) == 0;
    slurm_free_job_info_msg(message);
  }
}

/// Returns the same share as arrive().
double fill(std::vector<Job>& jobs, int nodes, double load) {
  double now = 0, held = 0, busy = 0, measured_s = 0;
  std::vector<Job*> running;
  for (std::size_t next = 0; next < jobs.size(); ++next) {
    Job& job = jobs[next];
    const double share = share_of(job);
    job.submitted_s = -1;
    for (;;) {
      if (held + share / 2 <= load * nodes && held + share <= nodes) {
        if (job.submitted_s < 0) job.submitted_s = now;
        if (submit(job, true)) break;
      }
      const auto first =
          std::min_element(running.begin(), running.end(), [](const Job* a, const Job* b) {
            return a->started_s + a->lasts_s < b->started_s + b->lasts_s;
          });
      if (first == running.end()) die("a job does not start on an empty cluster");
      const double then = (*first)->started_s + (*first)->lasts_s;
      if (next >= jobs.size() / 10) {
        busy += held * (then - now);
        measured_s += then - now;
      }
      now = then;
      end(**first);
      held -= share_of(**first);
      running.erase(first);
    }
    job.started_s = now;
    held += share;
    running.push_back(&job);
  }
  for (Job* job : running) end(*job);
  return measured_s > 0 ? busy / (measured_s * nodes) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (argc < 8 || (how != "arrive" && how != "fill")) {
    std::fprintf(stderr,
                 "usage: placement_probe arrive|fill SEED JOBS NODES LOAD SECONDS LAYOUT...\n");
    return 2;
  }
  slurm_init(nullptr);
  const int nodes = std::atoi(argv[4]);
  const double load = std::atof(argv[5]);
  std::vector<Layout> layouts;
  for (int i = 7; i < argc; ++i) {
    layouts.push_back(layout_from(argv[i]));
    if (static_cast<int>(layouts.back().size()) != nodes) {
      std::fprintf(stderr, "placement_probe: layout %s is of %zu nodes; %d are needed\n", argv[i],
                   layouts.back().size(), nodes);
      return 2;
    }
  }

  std::vector<Job> jobs = stream(static_cast<unsigned>(std::atoi(argv[2])), std::atoi(argv[3]),
                                 nodes, load, std::atof(argv[6]));
  const double busy = how == "fill" ? fill(jobs, nodes, load) : arrive(jobs, nodes);
  double delay = 0;
  for (const Job& job : jobs) delay += job.started_s - job.submitted_s;
  std::printf("%.4f %.4f %.4f", delay / static_cast<double>(jobs.size()), busy,
              min_switches(jobs, largest_rack(layouts[0])));
  for (const Layout& layout : layouts) std::printf(" %.4f", mean_switches(jobs, layout));
  std::printf("\n");
  return 0;
}
