// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the agent: reports of the ranks about their steps.
#include <cerrno>
#include <cstring>
#include <fmt/format.h>

#include "launcher/agent.h"
#include "profiler/trace.h"

namespace swell::launcher {

void Agent::tell_profile(int generation, const Json& profile) {
  if (!link_) return;
  control::Profile message;
  message.generation = generation;
  if (const auto step_s = profile.number_at("step_s", 0, 1e9)) message.step_s = *step_s;
  std::set<JobId> companions;
  for (const Seat& seat : machine_.assignment().seats)
    if (const JobId job = workers_.node(seat.worker.node).job; job != setup_.hello.job)
      companions.insert(job);
  message.companions.assign(companions.begin(), companions.end());
  const auto bounded = bounded_profile(profile, control::kMaxDocument);
  if (!bounded)
    return say(fmt::format("profile: it has more than {} bytes; the controller is not told",
                           control::kMaxDocument));
  message.profile = *bounded;
  tell(std::move(message));
}

void Agent::take_profile(WorkerId worker, const control::WorkerProfile& report) {
  if (const auto added = profiles_.add(report.generation, worker, report.profile); !added) {
    say("profile: " + added.error().message());
    return;
  }
  const int generation = machine_.status().generation;
  std::vector<ProfileBook::Member> members;
  for (const Seat& seat : machine_.assignment().seats) {
    const WorkerNode& node = workers_.node(seat.worker.node);
    members.push_back(
        {seat.worker, node.name, gpus_of(node, seat.worker.local, setup_.basic.gpus_per_worker)});
  }
  const auto profile = profiles_.profile(generation, members, machine_.assignment().plan);
  if (!profile) {
    say("profile: " + profile.error().message());
    return;
  }
  if (!*profile) return;
  carry_out(action::Note{"profile", Json::object({{"profile", **profile}})});
  tell_profile(generation, **profile);
  const std::string& file = setup_.options.profile_file;
  if (file.empty()) return;
  if (const auto written = profiler::write_file(file, pretty_text(**profile) + "\n"); !written)
    say("profile: " + written.error().message());
}

}  // namespace swell::launcher
