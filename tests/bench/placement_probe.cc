// SPDX-License-Identifier: GPL-2.0-or-later
// The job stream of tests/bench/placement, over Slurm's public API: allocations without processes, which
// arrive at fixed times, hold nodes for fixed times, and are seen to start where slurmctld puts them.
//
//   placement_probe SEED JOBS NODES LOAD SECONDS RACK...   RACK: which rack node1, node2, ... stands in
//
// prints: switches (mean over jobs of several nodes), least (the mean that no placement could go below, were the
// cluster empty), delay_s (mean from submission to start), busy (mean share of nodes in use), multi (such jobs)
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "placement_probe: %s: %s\n", what, slurm_strerror(errno));
  std::exit(1);
}

struct Job {
  double arrives_s = 0, lasts_s = 0;
  int nodes = 1, gpus = 8;
  std::uint32_t id = 0;
  double submitted_s = 0, started_s = -1;
  bool ended = false;
  std::vector<int> on;  ///< nodes, from 0
};

/// Jobs of 1 to 8 nodes, small ones more often, as training queues have them; one in four takes half of
/// each node. They arrive so that `load` of all nodes is asked for on average.
std::vector<Job> stream(unsigned seed, int count, int nodes, double load, double seconds) {
  std::mt19937 random(seed);
  std::discrete_distribution<int> size({0, 22, 22, 13, 17, 7, 7, 4, 8});
  std::uniform_real_distribution<double> length(0.4, 1.6);
  std::vector<Job> jobs(static_cast<std::size_t>(count));
  double work = 0;
  for (Job& job : jobs) {
    job.nodes = size(random);
    job.gpus = std::uniform_int_distribution<int>(0, 3)(random) == 0 ? 4 : 8;
    job.lasts_s = length(random);
    work += job.nodes * (job.gpus / 8.0) * job.lasts_s;
  }
  // The mean length follows from how long the stream may take at this load.
  const double scale = seconds * load * nodes / work;
  std::exponential_distribution<double> pause(count / seconds);
  double now = 0;
  for (Job& job : jobs) {
    job.lasts_s *= scale;
    job.arrives_s = now;
    now += pause(random);
  }
  return jobs;
}

void submit(Job& job) {
  static char host[256] = "";
  if (host[0] == '\0') gethostname(host, sizeof host - 1);
  std::string gpus = "gres:gpu:" + std::to_string(job.gpus), name = "placement", folder = "/";
  job_desc_msg_t description;
  slurm_init_job_desc_msg(&description);
  description.name = name.data();
  description.user_id = getuid();
  description.group_id = getgid();
  description.min_nodes = description.max_nodes = static_cast<std::uint32_t>(job.nodes);
  description.tres_per_node = gpus.data();
  description.time_limit = 1;
  description.work_dir = folder.data();
  description.alloc_node = host;
  resource_allocation_response_msg_t* response = nullptr;
  if (slurm_allocate_resources(&description, &response) != SLURM_SUCCESS) die("slurm_allocate_resources");
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  job.id = response->step_id.job_id;
#else
  job.id = response->job_id;
#endif
  slurm_free_resource_allocation_response_msg(response);
}

std::vector<int> expand(const char* list) {
  std::vector<int> nodes;
  hostlist_t hosts = slurm_hostlist_create(list);
  while (char* host = slurm_hostlist_shift(hosts)) {
    nodes.push_back(std::atoi(host + 4) - 1);
    std::free(host);
  }
  slurm_hostlist_destroy(hosts);
  return nodes;
}

/// Notes which of the jobs have started by now.
void look(std::map<std::uint32_t, Job*>& waiting, double now) {
  job_info_msg_t* message = nullptr;
  if (slurm_load_jobs(0, &message, SHOW_ALL) != SLURM_SUCCESS) die("slurm_load_jobs");
  for (std::uint32_t i = 0; i < message->record_count; ++i) {
    const job_info_t& info = message->job_array[i];
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    const std::uint32_t id = info.step_id.job_id;
#else
    const std::uint32_t id = info.job_id;
#endif
    const auto found = waiting.find(id);
    if (found == waiting.end() || (info.job_state & JOB_STATE_BASE) != JOB_RUNNING || info.nodes == nullptr) continue;
    found->second->started_s = now;
    found->second->on = expand(info.nodes);
    waiting.erase(found);
  }
  slurm_free_job_info_msg(message);
}

/// @return the mean share of nodes that jobs held, until the last one arrived.
double run(std::vector<Job>& jobs, int nodes) {
  std::map<std::uint32_t, Job*> waiting;
  std::size_t next = 0, ended = 0;
  double busy = 0;
  const auto begin = Clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  int looks = 0;
  while (ended < jobs.size()) {
    for (; next < jobs.size() && jobs[next].arrives_s <= seconds(); ++next) {
      submit(jobs[next]);
      jobs[next].submitted_s = seconds();
      waiting[jobs[next].id] = &jobs[next];
    }
    look(waiting, seconds());
    double held = 0;
    for (Job& job : jobs) {
      if (job.started_s < 0 || job.ended) continue;
      held += job.nodes * (job.gpus / 8.0);
      if (seconds() < job.started_s + job.lasts_s) continue;
      slurm_kill_job(job.id, SIGKILL, 0);
      job.ended = true;
      ++ended;
    }
    if (next < jobs.size()) {
      busy += held / nodes;
      ++looks;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  return looks > 0 ? busy / looks : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: placement_probe SEED JOBS NODES LOAD SECONDS RACK...\n");
    return 2;
  }
  slurm_init(nullptr);
  const int nodes = std::atoi(argv[3]);
  std::vector<std::string> rack(argv + 6, argv + argc);
  std::map<std::string, int> rack_size;
  for (const std::string& each : rack) ++rack_size[each];
  const int largest = std::max_element(rack_size.begin(), rack_size.end(), [](auto& a, auto& b) { return a.second < b.second; })->second;

  std::vector<Job> jobs = stream(static_cast<unsigned>(std::atoi(argv[1])), std::atoi(argv[2]), nodes, std::atof(argv[4]), std::atof(argv[5]));
  const double busy = run(jobs, nodes);
  double switches = 0, least = 0, delay = 0;
  int multi = 0;
  for (const Job& job : jobs) {
    delay += job.started_s - job.submitted_s;
    if (job.nodes < 2) continue;
    ++multi;
    std::set<std::string> under;
    for (int node : job.on) under.insert(rack.at(static_cast<std::size_t>(node)));
    switches += static_cast<double>(under.size());
    least += (job.nodes + largest - 1) / largest;
  }
  std::printf("%.4f %.4f %.4f %.4f %d\n", switches / multi, least / multi, delay / static_cast<double>(jobs.size()), busy, multi);
  return 0;
}
