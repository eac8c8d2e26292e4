// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/companion_requests.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <iterator>
#include <unistd.h>
#include <utility>

#include "launcher/command.h"
#include "launcher/companion_check.h"
#include "launcher/node_look.h"
#include "launcher/slurm_env.h"
#include "launcher/switch_network.h"

namespace swell::launcher {

void CompanionRequests::begin(const control::Grow& grow, double now) {
  Request request;
  request.offers = grow.offers;
  request.expires = now + std::max(1, grow.expires_s);
  const auto environment = outside_environment(environ);
  for (std::size_t i = 0; i < request.offers.size(); ++i) {
    Granted& result = request.results.emplace_back();
    result.nonce = request.offers[i].nonce;
    const Result<pid_t> pid = runner_.start(salloc_command(request.offers[i], settings_.warning),
                                            environment, {.capture = true});
    if (!pid) {
      result.reason = pid.error().message();
      continue;
    }
    request.sallocs[*pid] = i;
    ++request.open;
  }
  requests_.push_back(std::move(request));
  finish(requests_.size() - 1);
}

bool CompanionRequests::take(const ProcessRunner::Ended& ended) {
  for (std::size_t index = 0; index < requests_.size(); ++index) {
    Request& request = requests_[index];
    bool goes_on = false;
    if (const auto salloc = request.sallocs.find(ended.pid); salloc != request.sallocs.end()) {
      const std::size_t offer = salloc->second;
      request.sallocs.erase(salloc);
      goes_on = salloc_ended(request, offer, ended);
    } else if (const auto found = request.looks.find(ended.pid); found != request.looks.end()) {
      const Look look = found->second;
      request.looks.erase(found);
      goes_on = look_ended(request, look, ended);
    } else if (request.node_shows.erase(ended.pid) > 0) {
      descriptions_.merge(read_descriptions(ended.output));
    } else {
      continue;
    }
    if (goes_on) return true;
    --request.open;
    finish(index);
    return true;
  }
  return false;
}

bool CompanionRequests::salloc_ended(Request& request, std::size_t offer,
                                     const ProcessRunner::Ended& ended) {
  Granted& result = request.results[offer];
  const JobId job = granted_job(ended.output);
  if (job == 0 || ended.exit.status() != 0) {
    result.reason = refusal(ended.output);
    // Slurm granted it, but salloc was ended here as too slow: salloc or this call cancels the job.
    if (job != 0) cancel_unused(request.offers[offer].name, job);
    return false;
  }
  result.job = job;
  // Only now can Slurm tell which GPUs they are.
  if (begin_look(request, {offer, LookBy::details})) return true;
  give_up(request.offers[offer].name, result, "nothing could look in time at what Slurm granted");
  return false;
}

bool CompanionRequests::begin_look(Request& request, const Look& look) {
  if (request.is_over) return false;
  const JobId job = request.results[look.offer].job;
  Command command = {"scontrol", "show", "job", std::to_string(job)};
  if (look.by == LookBy::details) command.insert(command.begin() + 1, "-d");
  if (look.by == LookBy::step) command = node_look_command(job, 1);
  const auto pid = runner_.start(command, outside_environment(environ), {.capture = true});
  if (pid) request.looks[*pid] = look;
  return pid.ok();
}

bool CompanionRequests::look_ended(Request& request, const Look& look,
                                   const ProcessRunner::Ended& ended) {
  Granted& result = request.results[look.offer];
  const control::Offer& offered = request.offers[look.offer];
  if (request.is_over && ended.exit.status() != 0) {
    give_up(offered.name, result, "Slurm did not tell in time what it has granted");
    return false;
  }
  if (look.by == LookBy::details && ended.exit.status() != 0) {
    if (begin_look(request, {look.offer, LookBy::summary})) return true;
    give_up(offered.name, result, "nothing could look in time at what Slurm granted");
    return false;
  }
  if (look.by != LookBy::step)
    if (const Result<void> good = check_companion(ended.output, result.job, settings_.job, offered);
        !good) {
      give_up(shown_name(ended.output, result.job, offered.name), result, good.error().message());
      return false;
    }
  const auto shares = look.by == LookBy::step
                          ? read_node_look(ended.output, 1, "")
                          : read_job(ended.output, result.job, {{"JobName", offered.name}});
  if (shares && shares->size() == 1) {
    WorkerNode node;
    node.name = shares->front().node;
    node.cpus = shares->front().cpus;
    node.gpus = shares->front().gpus;
    node.gpu_list = shares->front().gpu_list;
    result.nodes.push_back(std::move(node));
  } else if (look.by != LookBy::step && begin_look(request, {look.offer, LookBy::step})) {
    return true;
  }
  return describe_node(request, offered);
}

/// Asks Slurm which network cards are near the companion's GPUs, if this is needed.
bool CompanionRequests::describe_node(Request& request, const control::Offer& offered) {
  if (request.is_over || !settings_.wants_ports || descriptions_.contains(offered.node))
    return false;
  const auto pid = runner_.start({"scontrol", "show", "node", offered.node},
                                 outside_environment(environ), {.capture = true});
  if (pid) request.node_shows.insert(*pid);
  return pid.ok();
}

void CompanionRequests::cancel_unused(const std::string& name, JobId companion) {
  static_cast<void>(runner_.start(cancel_command(name, companion), outside_environment(environ),
                                  {.capture = true}));
}

/// Cancels a granted companion before it is used; sets `why` as the reason of `result`.
void CompanionRequests::give_up(const std::string& name, Granted& result, std::string why) {
  cancel_unused(name, result.job);
  result.job = 0;
  result.reason = std::move(why);
}

std::optional<double> CompanionRequests::deadline() const {
  std::optional<double> first;
  for (const Request& request : requests_)
    if (request.open > 0) first = std::min(first.value_or(request.expires), request.expires);
  return first;
}

void CompanionRequests::expire(double now) {
  std::vector<Request> slow_ones;
  for (std::size_t index = requests_.size(); index-- > 0;) {
    Request& request = requests_[index];
    if (request.open == 0 || now < request.expires) continue;
    request.expires = now + 5;
    // A look that began just before has these 5 s.
    if (std::exchange(request.is_over, true)) {
      for (const pid_t pid : request.node_shows) runner_.signal(pid, SIGKILL);
      for (const auto& [pid, look] : request.looks) runner_.signal(pid, SIGKILL);
    }
    for (auto each = request.sallocs.begin(); each != request.sallocs.end();) {
      const auto [pid, offer] = *each;
      const JobId granted = granted_job(runner_.output_so_far(pid));
      if (granted == 0 || request.is_slow) runner_.signal(pid, SIGTERM);
      if (granted == 0) {
        ++each;
        continue;
      }
      Granted& result = request.results[offer];
      if (request.is_slow) {
        result.job = granted;
        give_up(request.offers[offer].name, result,
                fmt::format("its node was not ready within {:g} s of Slurm's grant (Prolog)",
                            kProlog_s));
      } else {
        Request slow;
        slow.offers = {request.offers[offer]};
        slow.results = {result};
        slow.sallocs[pid] = 0;
        slow.open = 1;
        slow.expires = now + kProlog_s;
        slow.is_slow = true;
        slow_ones.push_back(std::move(slow));
        request.moved.insert(offer);
      }
      each = request.sallocs.erase(each);
      --request.open;
    }
    finish(index);
  }
  std::move(slow_ones.begin(), slow_ones.end(), std::back_inserter(requests_));
}

void CompanionRequests::finish(std::size_t index) {
  if (requests_[index].open > 0) return;
  Request request = std::move(requests_[index]);
  requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::size_t i = 0; i < request.results.size(); ++i) {
    Granted& result = request.results[i];
    if (result.job == 0) continue;
    const control::Offer& offer = request.offers[i];
    // A slurmctld that was killed gives its last ids again. Two companions with one id could not be
    // told apart here, so this one goes back; the next offer gets an id of its own.
    if (!names_.emplace(result.job, offer.name).second) {
      give_up(offer.name, result, "Slurm gave it the id of a companion that it has forgotten");
      continue;
    }
    if (result.nodes.empty() || result.nodes.front().gpus == 0) {
      WorkerNode node;
      node.name = offer.node;
      node.cpus = offer.cpus;
      node.gpus = offer.gpus;
      result.nodes = {node};
    }
    WorkerNode& node = result.nodes.front();
    node.workers = std::min(offer.workers, node.gpus / settings_.gpus_per_worker);
  }
  std::vector<Granted> results;
  for (std::size_t i = 0; i < request.results.size(); ++i)
    if (!request.moved.contains(i)) results.push_back(std::move(request.results[i]));
  done_(results);
}

void CompanionRequests::kill() const {
  for (const Request& request : requests_)
    for (const auto& [pid, offer] : request.sallocs) runner_.signal(pid, SIGKILL);
}

std::string CompanionRequests::name_of(JobId companion) const {
  const auto found = names_.find(companion);
  return found != names_.end() ? found->second : std::string();
}

}  // namespace swell::launcher
