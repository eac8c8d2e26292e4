// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/options.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>

#include "control/messages.h"
#include "core/near_name.h"
#include "core/number.h"
#include "core/slurm_text/hostlist.h"
#include "launcher/exit.h"
#include "launcher/signals.h"
#include "launcher/srun_option.h"

namespace swell::launcher {

namespace {

using Argument = SrunOption::Argument;
using Use = SrunOption::Use;

/// Returns the total of GPUs in "4", "h100:4", "gpu:h100:4" or "gpu:h100:4,gpu:a100:2"; nullopt for
/// other resources.
std::optional<int> gpu_count(std::string_view text, bool gres) {
  int total = 0;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    if (gres) {
      for (const std::string_view prefix : {"gres/", "gres:"})
        if (item.starts_with(prefix)) item.remove_prefix(prefix.size());
      if (item == "gpu") {
        ++total;
        continue;
      }
      if (!item.starts_with("gpu:")) return std::nullopt;
      item.remove_prefix(4);
    }
    const auto colon = item.rfind(':');
    const auto count =
        read_whole<int>(colon == std::string_view::npos ? item : item.substr(colon + 1));
    if (!count && !(gres && colon == std::string_view::npos)) return std::nullopt;
    total += count.value_or(1);
  }
  return total;
}

/// Returns the bytes in "1000", "64K", "512M", "2G" or "1T", with powers of 1,024.
std::optional<std::uint64_t> byte_count(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const auto unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  if (unit != kUnits.npos) text.remove_suffix(1);
  const auto count = read_whole<std::uint64_t>(text);
  const int shift = unit == kUnits.npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  if (!count || *count > (UINT64_MAX >> shift)) return std::nullopt;
  return *count << shift;
}

/// Devices are written as in UCX_NET_DEVICES.
bool is_network(std::string_view text) {
  if (text == "auto" || text == "tcp" || text == "nccl" || text == "ucx") return true;
  return text.starts_with("ucx:") && text.size() > 4 &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:,") == text.npos;
}

/// Returns the minimum and the maximum number of nodes in "2" or "1-4".
std::optional<std::pair<int, int>> node_range(std::string_view text) {
  const auto dash = text.find('-');
  const auto least = read_whole<int>(text.substr(0, dash));
  const auto most = dash == text.npos ? least : read_whole<int>(text.substr(dash + 1));
  if (least.value_or(0) == 0 || !most || *most < *least) return std::nullopt;
  return std::pair{*least, *most};
}

constexpr std::string_view kOwn[] = {
    "restart-signal", "restart-timeout", "max-restarts",   "recover",       "swell-events",
    "profile-out",    "switch-memory",   "switch-network", "switch-verify", "first-wait",
    "model",          "global-batch",    "leave-code",     "before-end",    "interface",
    "hang-factor",    "hang-minimum",    "steps"};

class Parser {
 public:
  Parser(const std::vector<std::string>& arguments, Options& options, const AskSrun& ask_srun,
         const char* own_job)
      : arguments_(arguments),
        options_(options),
        ask_srun_(ask_srun),
        own_job_(own_job != nullptr ? own_job : "") {}

  Result<void> run() {
    for (; at_ < arguments_.size(); ++at_) {
      const std::string& argument = arguments_[at_];
      if (argument == "--") {
        ++at_;
        break;
      }
      if (argument.size() < 2 || argument[0] != '-') break;
      const Result<void> read = argument[1] == '-' ? long_option(argument) : letters(argument);
      if (!read) return read;
      if (options_.help || options_.version || stopped_) break;
    }
    for (std::size_t i = at_; i < arguments_.size(); ++i) {
      options_.srun.push_back(arguments_[i]);
      options_.program.push_back(arguments_[i]);
      if (arguments_[i] == ":") leave_to_srun("the command line is a heterogeneous one (\":\")");
    }
    return {};
  }

 private:
  Result<void> long_option(const std::string& argument) {
    const auto equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (name == "help") options_.help = true;
    else if (name == "version") options_.version = true;
    else if (name == "requeue") options_.requeue = true;
    else if (std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn))
      return own_option(name, value);
    else if (const SrunOption* option = find_option(name))
      return srun_option(*option, {argument}, value);
    else {
      if (const auto meant = near_name(name, {std::begin(kOwn), std::end(kOwn)}))
        return Error(fmt::format("unknown option --{}; meant: --{}?", name, *meant));
      other_option(argument, value.has_value());
    }
    return {};
  }

  /// Handles an option of a SPANK plugin, or one newer than the table: srun knows whether the next
  /// word is its value.
  void other_option(const std::string& argument, bool has_value) {
    std::vector<std::string> words = {argument};
    if (!has_value) {
      const std::string said = ask_srun_ ? ask_srun_(argument) : "";
      const bool is_known = said.find("unrecognized option") == std::string::npos && !said.empty();
      const bool is_alone = said.find("Usage: srun") != std::string::npos;
      if (!is_known || (!is_alone && at_ + 1 >= arguments_.size())) {
        options_.srun.push_back(argument);
        leave_to_srun(fmt::format("{} is not known to swellrun", argument));
        stopped_ = true;
        ++at_;
        return;
      }
      if (!is_alone) words.push_back(arguments_[++at_]);
    }
    options_.srun.insert(options_.srun.end(), words.begin(), words.end());
    options_.each_step.insert(options_.each_step.end(), words.begin(), words.end());
  }

  Result<void> letters(const std::string& argument) {
    for (std::size_t i = 1; i < argument.size(); ++i) {
      const std::string word = {'-', argument[i]};
      const SrunOption* option = find_option(argument[i]);
      if (option == nullptr) {
        options_.srun.push_back("-" + argument.substr(i));
        leave_to_srun(fmt::format("{} is not known to swellrun", word));
        stopped_ = true;
        ++at_;
        return {};
      }
      if (option->letter == 'h') {
        options_.help = true;
        return {};
      }
      if (option->argument == Argument::none) {
        const Result<void> read = srun_option(*option, {word}, std::nullopt);
        if (!read) return read;
        continue;
      }
      std::optional<std::string> value;
      if (i + 1 < argument.size()) value = argument.substr(i + 1);
      return srun_option(*option, {value ? word + *value : word}, value);
    }
    return {};
  }

  Result<void> own_option(const std::string& name, std::optional<std::string> value) {
    if (!value) {
      if (++at_ >= arguments_.size()) return Error(fmt::format("--{} needs a value", name));
      value = arguments_[at_];
    }
    return set_own(name, *value);
  }

 public:
  Result<void> set_own(const std::string& name, const std::string& value) {
    if (name == "swell-events") {
      options_.events_file = value;
    } else if (name == "profile-out") {
      options_.profile_file = value;
    } else if (name == "model") {
      options_.model = value;
    } else if (name == "interface") {
      if (value.empty())
        return Error(
            "--interface: it must be an interface such as ib0, or a network such as 10.1.0.0/16");
      options_.interface = value;
    } else if (name == "global-batch") {
      options_.global_batch = read_whole<int>(value);
      if (options_.global_batch.value_or(0) < 1)
        return Error(fmt::format("--global-batch={}: it must be a whole number, 1 or more", value));
    } else if (name == "steps") {
      options_.steps = read_whole<std::int64_t>(value);
      if (options_.steps.value_or(0) < 1 || *options_.steps > control::kMostSteps)
        return Error(fmt::format(
            "--steps={}: it must be the steps of the whole training, a whole number from 1 to {}",
            value, control::kMostSteps));
    } else if (name == "switch-memory") {
      const auto bytes = byte_count(value);
      if (!bytes)
        return Error(
            fmt::format("--switch-memory={}: it must be a size such as 512M or 2G, or 0", value));
      options_.switch_memory_bytes = *bytes;
    } else if (name == "switch-network") {
      if (!is_network(value))
        return Error(
            fmt::format("--switch-network={}: it must be auto, tcp, nccl, ucx or ucx: with devices "
                        "as UCX calls them, such as ucx:mlx5_0:1",
                        value));
      options_.switch_network = value;
    } else if (name == "switch-verify") {
      if (value == "network") options_.switch_verify = runtime::Verify::network;
      else if (value == "all") options_.switch_verify = runtime::Verify::all;
      else if (value == "none") options_.switch_verify = runtime::Verify::none;
      else return Error(fmt::format("--switch-verify={}: it must be network, all or none", value));
    } else if (name == "restart-signal") {
      const auto number = signal_from(value);
      if (!number || *number == SIGKILL || *number == SIGSTOP || *number == SIGCHLD ||
          *number == SIGCONT)
        return Error(fmt::format(
            "--restart-signal={}: it must be a signal that a program can handle, such as USR1",
            value));
      options_.restart_signal = *number;
    } else if (name == "leave-code") {
      const auto code = read_whole<int>(value);
      if (!code || *code < 1 || *code > 125 || *code == kRequeueCode)
        return Error(
            fmt::format("--leave-code={}: it must be an exit code from 1 to 125, and not {}", value,
                        kRequeueCode));
      options_.leave_code = *code;
    } else if (name == "hang-factor") {
      const auto factor = read_number<double>(value);
      if (!factor || !std::isfinite(*factor) || *factor < 0 || (*factor > 0 && *factor < 2))
        return Error(fmt::format(
            "--hang-factor={}: it must be 2 or more usual durations of a step, or 0 for never",
            value));
      options_.hang.factor = *factor;
    } else if (name == "restart-timeout" || name == "first-wait" || name == "recover" ||
               name == "before-end" || name == "hang-minimum") {
      char* end = nullptr;
      const double seconds = std::strtod(value.c_str(), &end);
      if (end == value.c_str() || *end != '\0' || !std::isfinite(seconds) || seconds < 0)
        return Error(fmt::format("--{}={}: it must be seconds, 0 or more", name, value));
      if (name == "first-wait") options_.first_wait_s = seconds;
      else if (name == "recover") options_.recover_s = seconds;
      else if (name == "hang-minimum") options_.hang.minimum_s = seconds;
      else if (name == "before-end") options_.before_end_s = seconds;
      else options_.restart_timeout_s = seconds;
    } else {
      const auto count = read_whole<int>(value);
      if (!count)
        return Error(fmt::format("--max-restarts={}: it must be a whole number, 0 or more", value));
      options_.max_restarts = *count;
    }
    return {};
  }

 private:
  Result<void> srun_option(const SrunOption& option, std::vector<std::string> words,
                           std::optional<std::string> value) {
    if (option.argument == Argument::required && !value) {
      if (++at_ >= arguments_.size()) return Error(fmt::format("--{} needs a value", option.name));
      value = arguments_[at_];
      words.push_back(*value);
    }
    options_.srun.insert(options_.srun.end(), words.begin(), words.end());
    if (option.name == "open-mode") options_.open_mode = *value;
    if (option.name == "input") options_.input = value;
    switch (option.use) {
      case Use::each:
        options_.each_step.insert(options_.each_step.end(), words.begin(), words.end());
        break;
      case Use::basic:
        options_.basic_step.insert(options_.basic_step.end(), words.begin(), words.end());
        break;
      case Use::layout: layout_option(option, value); break;
      case Use::left_out: options_.left_out.push_back(fmt::format("--{}", option.name)); break;
      case Use::plain: leave_to_srun(fmt::format("--{} is given", option.name)); break;
    }
    return {};
  }

  void layout_option(const SrunOption& option, const std::optional<std::string>& value) {
    if (option.name == "wait") return;
    if (option.name == "kill-on-bad-exit") {
      options_.kill_on_bad_exit = !value || *value != "0";
      return;
    }
    if (option.name == "output" || option.name == "error") {
      (option.name == "output" ? options_.output : options_.error) = value;
      return;
    }
    if (option.name == "jobid" && *value != own_job_) return leave_to_srun("--jobid is given");
    if (!read_place(option.name, *value) && !read_binding(option.name, *value) &&
        !read_count(option.name, *value))
      leave_to_srun(fmt::format("--{}={} is given", option.name, *value));
  }

  /// Reads an option that chooses nodes. Returns false if it is not one, or cannot be read.
  bool read_place(std::string_view name, const std::string& value) {
    if (name == "nodes") {
      const auto range = node_range(value);
      if (range) options_.nodes = range;
      return range.has_value();
    }
    if (name == "nodelist" || name == "exclude") {
      auto names = slurm_text::expand_hostlist(value);
      if (!names || value.find('/') != std::string::npos) return false;  // a file of names
      (name == "exclude" ? options_.excluded : options_.node_list) = std::move(*names);
      return true;
    }
    if (name == "relative") {
      const auto first = read_whole<int>(value);
      options_.relative = first.value_or(0);
      return first.has_value();
    }
    return name == "jobid" && value == own_job_;
  }

  /// Reads an option that says which GPUs a worker sees. By default, and with "none", it sees all
  /// GPUs of its allocation; srun with "none" would show it all GPUs of the node if no cgroup hides
  /// them. All other values can be passed on to each step, except for a list, which holds for one
  /// node only.
  bool read_binding(std::string_view name, std::string_view value) {
    if (name == "tres-bind") {
      const auto begin = std::min(value.find("gpu:"), value.size());
      if (value.substr(0, begin) != "gres/" && value.substr(0, begin) != "gres:") return false;
      value.remove_prefix(begin + std::string_view("gpu:").size());
    } else if (name != "gpu-bind") {
      return false;
    }
    if (value == "none") return true;
    const std::string word = fmt::format("--gpu-bind={}", value);
    const bool is_list = value.find("map") != value.npos || value.find("mask") != value.npos;
    (is_list ? options_.basic_step : options_.each_step).push_back(word);
    if (is_list) takes_no_more(word);
    return true;
  }

  bool read_count(std::string_view name, const std::string& value) {
    if (name == "tres-per-task") return read_tres_per_task(value);
    const bool gres = name == "gres";
    if (gres && value == "none") {
      options_.no_gpus = true;
      takes_no_more("--gres=none");
      return true;
    }
    const std::optional<int> count =
        gres || (name.starts_with("gpus")) ? gpu_count(value, gres) : read_whole<int>(value);
    if (name == "ntasks-per-gpu" || name == "ntasks-per-tres") return count == 1;
    if (!count || (*count == 0 && !gres)) return false;
    if (name == "ntasks") options_.ntasks = count;
    else if (name == "ntasks-per-node") options_.ntasks_per_node = count;
    else if (name == "cpus-per-task") options_.cpus_per_task = count;
    else if (name == "cpus-per-gpu") options_.cpus_per_gpu = count;
    else if (name == "gpus-per-task") options_.gpus_per_task = count;
    else if (name == "gpus") options_.gpus = count;
    else options_.gpus_per_node = count;
    return true;
  }

  /// Reads "gres/gpu:2,cpu=4", which combines -c and --gpus-per-task.
  bool read_tres_per_task(std::string_view value) {
    while (!value.empty()) {
      std::string item(value.substr(0, value.find(',')));
      value.remove_prefix(std::min(value.size(), item.size() + 1));
      std::replace(item.begin(), item.end(), '=', ':');
      std::optional<int>& read =
          item.starts_with("cpu:") ? options_.cpus_per_task : options_.gpus_per_task;
      read = item.starts_with("cpu:") ? read_whole<int>(item.substr(4)) : gpu_count(item, true);
      if (read.value_or(0) == 0) return false;
    }
    return true;
  }

  void takes_no_more(const std::string& option) {
    if (options_.no_growth.empty())
      options_.no_growth = fmt::format("{} is given to swellrun", option);
  }

  void leave_to_srun(std::string reason) {
    if (options_.plain_reason.empty()) options_.plain_reason = std::move(reason);
  }

  const std::vector<std::string>& arguments_;
  Options& options_;
  const AskSrun& ask_srun_;
  const std::string own_job_;
  std::size_t at_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Options> Options::parse(const std::vector<std::string>& arguments,
                               const char* (*env)(const char*), const AskSrun& ask_srun) {
  Options options;
  Parser parser(arguments, options, ask_srun, env("SLURM_JOB_ID"));
  constexpr std::pair<const char*, const char*> variables[] = {
      {"SWELL_RESTART_SIGNAL", "restart-signal"},
      {"SWELL_RESTART_TIMEOUT", "restart-timeout"},
      {"SWELL_RECOVER", "recover"},
      {"SWELL_LEAVE_CODE", "leave-code"},
      {"SWELL_BEFORE_END", "before-end"},
      {"SWELL_HANG_FACTOR", "hang-factor"},
      {"SWELL_HANG_MINIMUM", "hang-minimum"},
      {"SWELL_EVENTS", "swell-events"},
      {"SWELL_PROFILE_OUT", "profile-out"},
      {"SWELL_SWITCH_MEMORY", "switch-memory"},
      {"SWELL_FIRST_WAIT", "first-wait"},
      {"SWELL_MODEL", "model"},
      {"SWELL_GLOBAL_BATCH", "global-batch"},
      {"SWELL_STEPS", "steps"},
      {"SWELL_SWITCH_NETWORK", "switch-network"},
      {"SWELL_SWITCH_VERIFY", "switch-verify"},
      {"SWELL_INTERFACE", "interface"}};
  for (const auto& [variable, name] : variables) {
    const char* value = env(variable);
    if (value == nullptr || *value == '\0') continue;
    const Result<void> set = parser.set_own(name, value);
    if (!set) return set.error().while_doing(variable);
  }
  const Result<void> read = parser.run();
  if (!read) return read.error();
  const auto stands_for = [env](std::optional<std::string>& option, const char* variable) {
    if (const char* value = env(variable); !option && value != nullptr) option = value;
  };
  if (const char* mode = env("SLURM_OPEN_MODE"); options.open_mode.empty() && mode != nullptr)
    options.open_mode = mode;
  stands_for(options.output, "SRUN_OUTPUT");
  stands_for(options.output, "SLURM_STDOUTMODE");
  stands_for(options.error, "SRUN_ERROR");
  stands_for(options.error, "SLURM_STDERRMODE");
  if (options.global_batch && options.model.empty())
    return Error(fmt::format(
        "--global-batch={} describes the model of --model=FILE, which is missing; add it, or leave --global-batch out",
        *options.global_batch));
  if (options.requeue && !options.before_end_s)
    return Error(
        "--requeue needs --before-end=SECONDS, the time before the job's end at which it is requeued; add it, or leave --requeue out");
  return options;
}

const char* help_text() noexcept {
  return "Usage: swellrun [OPTIONS] [srun options] program [arguments]\n"
         "\n"
         "Runs a training program on all GPUs of an elastic job (sbatch --elastic), and again over\n"
         "more or fewer GPUs as they are lent and taken back. In any other job, and without a Swell\n"
         "controller, it runs the same workers on the job's own GPUs; outside of a job it is srun.\n"
         "\n"
         "      --restart-signal=SIG    ask the workers to checkpoint and leave (USR1)\n"
         "      --restart-timeout=S     seconds they have for it (the job's grace)\n"
         "      --max-restarts=N        restarts after losses within ten minutes (3)\n"
         "      --recover=S             start a program that fails again, unless it did S seconds before (0: no)\n"
         "      --hang-factor=N         start a program again that makes no step for N usual durations of one,\n"
         "                              first without lent GPUs (20; 0: never)\n"
         "      --hang-minimum=S        seconds that are never taken for a hang (1800)\n"
         "      --leave-code=N          the program leaves for a resize with exit code N: 0 is then its end\n"
         "      --before-end=S          the workers leave S seconds before the job's time limit, and\n"
         "                              swellrun ends with 75\n"
         "      --requeue               with --before-end: requeue the job then\n"
         "      --swell-events=FILE     append what happens to FILE, as JSON lines\n"
         "      --profile-out=FILE      live mode: write what the running plan was seen to do to FILE\n"
         "      --switch-memory=SIZE    live mode: what a switch may take beside a worker's state (2G)\n"
         "      --switch-network=HOW    live mode: state between nodes goes by tcp, ucx, ucx:DEVICES, or\n"
         "                              by UCX where both nodes have RDMA, else by TCP (auto); or\n"
         "                              as with auto, but from GPU to GPU by NCCL (nccl)\n"
         "      --switch-verify=WHAT    live mode: checksums of state from other nodes (network), of\n"
         "                              all state that moves, or of none\n"
         "      --first-wait=S          live mode: wait so long for offered GPUs before the start (15)\n"
         "      --model=NAME|FILE       live mode: what is trained, as `swell plan --model` reads it; by its\n"
         "                              GPUs' data sheets the job is lent GPUs before its first step\n"
         "      --global-batch=N        samples of one step, in place of the model's own\n"
         "      --steps=N               steps of the whole training, where the program does not say them:\n"
         "                              what is left decides what a resize may cost, and deadlines\n"
         "      --interface=NAME|NET    the workers' network: MASTER_ADDR is of this interface, such as ib0,\n"
         "                              or in this network, such as 10.1.0.0/16\n"
         "      --help, --version\n"
         "\n"
         "srun's options are given to every step; -n, -c, --gpus-per-task shape the workers (one per\n"
         "GPU by default). See swellrun(1).\n";
}

}  // namespace swell::launcher
