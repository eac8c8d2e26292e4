// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/command.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <tuple>

#include "core/slurm_text/gres.h"
#include "launcher/signals.h"

namespace swell::launcher {

namespace {

/// Returns "gpu:a100:2,gpu:v100:1" for "a100:2,v100:1".
std::string gres_of(std::string_view types) {
  std::string gres = "gpu:";
  for (const char each : types) gres += each == ',' ? std::string(",gpu:") : std::string(1, each);
  return gres;
}

/// Returns "a100:4,v100:2" for "a100:2,v100:1" a node, on two nodes.
std::string on_nodes(std::string_view types, std::size_t nodes) {
  std::string all;
  for (const slurm_text::GpuRequest& one : slurm_text::parse_gpus(gres_of(types)))
    all += fmt::format("{}{}:{}", all.empty() ? "" : ",", one.type,
                       static_cast<std::size_t>(one.count) * nodes);
  return all;
}

/// Returns a step's GPU option for its `nodes`. If the job's nodes have different numbers of GPUs,
/// Slurm refuses --gres on nodes with more GPUs than the job's average, so --gpus is used;
/// select/linear, which has no such jobs, does not know --gpus.
std::string gpus_for(const Options& options, const WorkerNode& node, std::size_t nodes,
                     bool all_alike) {
  if (options.no_gpus) return "--gres=none";
  if (!all_alike)
    return "--gpus=" + (node.gpu_types.empty()
                            ? std::to_string(nodes * static_cast<std::size_t>(node.gpus))
                            : on_nodes(node.gpu_types, nodes));
  return "--gres=" +
         (node.gpu_types.empty() ? fmt::format("gpu:{}", node.gpus) : gres_of(node.gpu_types));
}

/// Adds --output and --error. Returns whether steps of several allocations may write one file.
bool add_output(Command& command, const Options& options, const RunNames& run,
                const WorkerNode& first, bool companion, std::size_t workers) {
  bool is_shared = false;
  for (const auto& [option, name] :
       {std::pair{"--output=", &options.output}, std::pair{"--error=", &options.error}}) {
    if (!*name) continue;
    is_shared = is_shared || may_share_output(**name);
    command.push_back(
        option +
        (companion ? companion_output(**name, run, first.id, static_cast<int>(workers)) : **name));
  }
  return is_shared;
}

}  // namespace

std::vector<Command> step_commands(const Options& options, JobId job, const RunNames& run,
                                   const std::vector<WorkerNode>& nodes, int cpus_per_worker,
                                   bool shares_cpus, const ShimAddress& shim) {
  const bool companion = job != run.job;
  std::map<std::tuple<int, int, std::string>, std::vector<const WorkerNode*>> alike;
  for (const WorkerNode& node : nodes)
    alike[{-node.gpus, -node.workers, node.gpu_types}].push_back(&node);
  std::string program = options.program.empty() ? "swell" : options.program.front();
  program = program.substr(program.rfind('/') + 1);

  std::vector<Command> commands;
  for (const auto& [size, same] : alike) {
    const int gpus = -std::get<0>(size), workers = -std::get<1>(size);
    const std::size_t tasks = same.size() * static_cast<std::size_t>(workers);
    Command command = {"srun", "--job-name=" + program};
    if (companion) command.push_back(fmt::format("--jobid={}", job));
    else command.insert(command.end(), options.basic_step.begin(), options.basic_step.end());
    command.insert(command.end(), options.each_step.begin(), options.each_step.end());
    std::string list, known;
    for (const WorkerNode* node : same) {
      list += (list.empty() ? "" : ",") + node->name;
      known += fmt::format("{}{}={}", known.empty() ? "" : ",", node->name, node->id);
    }
    // A worker that ends must not end the others: swellrun decides whether they go on.
    for (std::string word :
         {fmt::format("--nodes={}", same.size()), "--nodelist=" + list,
          fmt::format("--ntasks={}", tasks), fmt::format("--ntasks-per-node={}", workers),
          fmt::format("--cpus-per-task={}", std::max(1, cpus_per_worker)),
          std::string("--kill-on-bad-exit=0"), std::string("--wait=0")})
      command.push_back(std::move(word));
    if (shares_cpus) command.push_back("--overcommit");
    if (gpus > 0)
      command.push_back(gpus_for(options, *same.front(), same.size(), alike.size() == 1));
    const bool is_shared = add_output(command, options, run, *same.front(), companion, tasks);
    const bool first = !companion && commands.empty();
    if (shim.gives_input) command.push_back("--input=all");
    else if (!first) command.push_back("--input=none");
    // Appends even if the user has chosen truncate: swellrun has truncated the file already, and a
    // step that begins later would erase what others have written.
    if (!first || is_shared) command.push_back("--open-mode=append");
    if (companion) command.push_back("--mem=0");
    command.insert(command.end(), shim.loader.begin(), shim.loader.end());
    command.insert(command.end(),
                   {shim.program, "--agent", fmt::format("{}:{}", shim.host, shim.port), "--nodes",
                    known, "--workers", std::to_string(workers)});
    if (gpus > 0 && !options.no_gpus)
      command.insert(command.end(), {"--gpus", std::to_string(gpus)});
    if (!shim.munge_socket.empty())
      command.insert(command.end(), {"--munge-socket", shim.munge_socket});
    if (shim.gives_input) command.insert(command.end(), {"--input", "kept"});
    if (shim.live) command.insert(command.end(), {"--live", "yes"});
    if (options.switch_network != "auto")
      command.insert(command.end(), {"--switch-network", options.switch_network});
    command.push_back("--");
    command.insert(command.end(), options.program.begin(), options.program.end());
    commands.push_back(std::move(command));
  }
  return commands;
}

Command probe_of(const Command& step, const ShimAddress& shim) {
  const std::string& first = shim.loader.empty() ? shim.program : shim.loader.front();
  Command probe(step.begin(), std::find(step.begin(), step.end(), first));
  probe.insert(probe.end(), {"--immediate=1", "--quiet", "--output=none", "--error=none", "true"});
  return probe;
}

Command salloc_command(const control::Offer& offer, int restart_signal) {
  const int workers = std::max(1, offer.workers);
  Command command = {"salloc",
                     "--no-shell",
                     "--immediate=1",
                     "--job-name=" + offer.name,
                     std::string("--comment=") + control::kGrantComment + offer.nonce,
                     "--nodelist=" + offer.node,
                     "--nodes=1",
                     fmt::format("--ntasks={}", workers),
                     fmt::format("--cpus-per-task={}", std::max(1, offer.cpus / workers)),
                     fmt::format("--gres=gpu:{}{}",
                                 offer.gpu_type.empty() ? "" : offer.gpu_type + ":", offer.gpus)};
  if (!offer.partition.empty()) command.push_back("--partition=" + offer.partition);
  if (!offer.account.empty()) command.push_back("--account=" + offer.account);
  if (offer.memory_mib > 0) command.push_back(fmt::format("--mem={}M", offer.memory_mib));
  command.push_back(offer.time_limit_min > 0 ? fmt::format("--time={}", offer.time_limit_min)
                                             : "--time=UNLIMITED");
  if (offer.warn_s > 0)
    command.push_back(fmt::format("--signal={}@{}", signal_name(restart_signal), offer.warn_s));
  return command;
}

Command cancel_command(const std::string& name, JobId companion) {
  return {"scancel", "--name=" + name, std::to_string(companion)};
}

JobId granted_job(const std::string& output) {
  constexpr std::string_view words = "Granted job allocation ";
  const auto at = output.find(words);
  JobId job = 0;
  if (at != std::string::npos)
    std::from_chars(output.data() + at + words.size(), output.data() + output.size(), job);
  return job;
}

std::string refusal(const std::string& output) {
  std::string text;
  std::size_t begin = 0;
  while (begin < output.size()) {
    const auto end = std::min(output.find('\n', begin), output.size());
    std::string line = output.substr(begin, end - begin);
    begin = end + 1;
    for (const std::string_view prefix : {"salloc: ", "error: "})
      if (line.starts_with(prefix)) line.erase(0, prefix.size());
    if (line.empty() || line.starts_with("Pending job allocation") ||
        line.find("queued and waiting") != line.npos)
      continue;
    text += (text.empty() ? "" : "; ") + line;
  }
  if (text.size() > 1000) text.resize(1000);
  return text.empty() ? "salloc gave no reason" : text;
}

}  // namespace swell::launcher
