// SPDX-License-Identifier: GPL-2.0-or-later
// Plays the agents of running jobs for tests/bench/slurmctld. Each agent has a connection of its
// own, kept by swellrun's own code and signed by the real munged. It reports its state every 20 s
// and its profile once, and refuses the GPUs that it is lent, so that the load stays the same.
//
//   played_agents PORT MUNGE_SOCKET SLURM_UID < JOBS
//       JOBS has a line "JOB NODE GPU" for each job of this user, GPU is an index. Ends with
//       SIGTERM.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include <sys/prctl.h>

#include <csignal>

#include "core/json.h"
#include "launcher/controller_link.h"

namespace {

using namespace std::chrono_literals;
using swell::Json;
namespace control = swell::control;

struct Job {
  control::JobId id = 0;
  std::string node;
  int gpu = 0;
  std::unique_ptr<swell::launcher::ControllerLink> link;
  std::int64_t steps = 0;
  bool has_profile = false;
};

control::Hello hello_of(const Job& job) {
  control::Hello hello;
  hello.job = job.id;
  hello.host = "played";
  hello.workers = hello.gpus_per_worker = 1;
  return hello;
}

control::Status status_of(const Job& job) {
  control::Status status;
  status.state = control::JobState::active;
  status.generation = status.workers = 1;
  status.start_s = 20;
  status.steps = job.steps;
  status.total_steps = 100'000;
  return status;
}

/// A GPT-2 of 24 layers on one GPU, in 4 micro-batches of 2 samples. Jobs differ in their speed.
control::Profile profile_of(const Job& job) {
  const double fwd_s = 0.01 + 0.0005 * (job.id % 40);
  const double layer_bytes = 4.0 * 12 * 1024 * 1024;
  const Json group = Json::object(
      {{"node", job.node}, {"gpu_type", ""}, {"gpus", Json::array({job.gpu})}, {"local_batch", 2}});
  const Json stage = Json::object({{"layers", 24}, {"tp", 1}, {"groups", Json::array({group})}});
  const Json times = Json::object({{"stage", 0},
                                   {"fwd_s", fwd_s},
                                   {"fwd_commu_s", 0.0},
                                   {"bwd_s", 2 * fwd_s},
                                   {"optim_s", fwd_s / 2},
                                   {"commu_extra_s", 0.0},
                                   {"head_fwd_s", 0.0},
                                   {"head_bwd_s", 0.0},
                                   {"layer_param_bytes", layer_bytes},
                                   {"layer_state_bytes", 3 * layer_bytes},
                                   {"extra_param_bytes", 0},
                                   {"extra_state_bytes", 0},
                                   {"peak_bytes", 24 * 4.5 * layer_bytes + 1e9},
                                   {"group", 0}});
  control::Profile profile;
  profile.generation = 1;
  profile.step_s = 4 * 3 * fwd_s + fwd_s;
  profile.profile = Json::object(
      {{"plan", Json::object({{"micro_batches", 4}, {"stages", Json::array({stage})}})},
       {"groups", Json::array({times})},
       {"layer_launch_s", 0.0},
       {"activ_bytes", 1e8},
       {"last_activ_p_bytes", 0},
       {"tied_embedding", true},
       {"whole_activations", 5}});
  return profile;
}

/// Answers what the controller has sent.
void answer(Job& job) {
  for (const control::Message& message : job.link->take()) {
    const auto* grow = std::get_if<control::Grow>(&message);
    if (grow == nullptr) continue;
    control::GrowDone done;
    for (const control::Offer& offer : grow->offers)
      done.results.push_back({offer.nonce, 0, "a played agent takes no GPUs"});
    job.link->send(std::move(done));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: played_agents PORT MUNGE_SOCKET SLURM_UID < JOBS\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const swell::launcher::ControllerAddress address{{"127.0.0.1"},
                                                   static_cast<std::uint16_t>(std::atoi(argv[1])),
                                                   argv[2],
                                                   static_cast<uid_t>(std::atoi(argv[3]))};
  std::deque<Job> jobs;
  for (Job job; std::cin >> job.id >> job.node >> job.gpu;) jobs.push_back(std::move(job));
  for (Job& job : jobs) {
    job.link = std::make_unique<swell::launcher::ControllerLink>(address, hello_of(job), [] {});
    job.link->send(status_of(job));
  }
  // Each second another twentieth of the agents has its turn.
  for (std::size_t second = 0;; ++second) {
    for (std::size_t each = 0; each < jobs.size(); ++each) {
      Job& job = jobs[each];
      answer(job);
      for (const std::string& line : job.link->take_news())
        std::printf(
            "%.1f job %u: %s\n",
            std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
                .count(),
            job.id, line.c_str());
      if ((each + second) % 20 != 0) continue;
      job.steps += 40;
      job.link->send(status_of(job));
      if (!std::exchange(job.has_profile, true)) job.link->send(profile_of(job));
    }
    std::fflush(stdout);
    std::this_thread::sleep_for(1s);
  }
}
