// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/options.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>

#include "core/near_name.h"
#include "core/number.h"
#include "launcher/exit.h"
#include "launcher/signals.h"
#include "launcher/srun_option.h"

namespace swell::launcher {

namespace {

using Argument = SrunOption::Argument;
using Use = SrunOption::Use;

/// "4", "h100:4", "gpu:h100:4", "gpu:h100:4,gpu:a100:2": the GPUs in all. Nothing for other
/// resources.
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

/// "1000", "64K", "512M", "2G", "1T": bytes, in powers of 1,024.
std::optional<std::uint64_t> byte_count(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const auto unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  if (unit != kUnits.npos) text.remove_suffix(1);
  const auto count = read_whole<std::uint64_t>(text);
  const int shift = unit == kUnits.npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  if (!count || *count > (UINT64_MAX >> shift)) return std::nullopt;
  return *count << shift;
}

/// Devices are as UCX_NET_DEVICES has them.
bool is_network(std::string_view text) {
  if (text == "auto" || text == "tcp" || text == "nccl" || text == "ucx") return true;
  return text.starts_with("ucx:") && text.size() > 4 &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:,") == text.npos;
}

constexpr std::string_view kOwn[] = {
    "restart-signal", "restart-timeout", "max-restarts",   "recover",    "swell-events",
    "profile-out",    "switch-memory",   "switch-network", "first-wait", "model",
    "global-batch",   "leave-code",      "before-end"};

class Parser {
 public:
  Parser(const std::vector<std::string>& arguments, Options& options)
      : arguments_(arguments), options_(options) {}

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
      // Newer than the table: without "=" it cannot be told whether the next word belongs to it.
      options_.srun.push_back(argument);
      options_.each_step.push_back(argument);
      if (!value) {
        leave_to_srun(fmt::format("--{} is not known to swellrun", name));
        stopped_ = true;
        ++at_;
      }
    }
    return {};
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
    } else if (name == "global-batch") {
      options_.global_batch = read_whole<int>(value);
      if (options_.global_batch.value_or(0) < 1)
        return Error(fmt::format("--global-batch={}: it must be a whole number, 1 or more", value));
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
    } else if (name == "restart-timeout" || name == "first-wait" || name == "recover" ||
               name == "before-end") {
      char* end = nullptr;
      const double seconds = std::strtod(value.c_str(), &end);
      if (end == value.c_str() || *end != '\0' || !std::isfinite(seconds) || seconds < 0)
        return Error(fmt::format("--{}={}: it must be seconds, 0 or more", name, value));
      if (name == "first-wait") options_.first_wait_s = seconds;
      else if (name == "recover") options_.recover_s = seconds;
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
    if (option.name == "open-mode") options_.own_open_mode = true;
    if (option.name == "input") options_.input = value;
    switch (option.use) {
      case Use::each:
        options_.each_step.insert(options_.each_step.end(), words.begin(), words.end());
        break;
      case Use::basic:
        options_.basic_step.insert(options_.basic_step.end(), words.begin(), words.end());
        break;
      case Use::layout: layout_option(option, value); break;
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
    const bool gres = option.name == "gres";
    const std::optional<int> count =
        gres || option.name.starts_with("gpus") ? gpu_count(*value, gres) : read_whole<int>(*value);
    if (!count || (*count == 0 && !gres)) {
      leave_to_srun(fmt::format("--{}={} is given", option.name, *value));
      return;
    }
    if (option.name == "ntasks") options_.ntasks = count;
    else if (option.name == "nodes") options_.nodes = count;
    else if (option.name == "ntasks-per-node") options_.ntasks_per_node = count;
    else if (option.name == "cpus-per-task") options_.cpus_per_task = count;
    else if (option.name == "gpus-per-task") options_.gpus_per_task = count;
    else if (option.name == "gpus") options_.gpus = count;
    else options_.gpus_per_node = count;
  }

  void leave_to_srun(std::string reason) {
    if (options_.plain_reason.empty()) options_.plain_reason = std::move(reason);
  }

  const std::vector<std::string>& arguments_;
  Options& options_;
  std::size_t at_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Options> Options::parse(const std::vector<std::string>& arguments,
                               const char* (*env)(const char*)) {
  Options options;
  Parser parser(arguments, options);
  constexpr std::pair<const char*, const char*> variables[] = {
      {"SWELL_RESTART_SIGNAL", "restart-signal"},
      {"SWELL_RESTART_TIMEOUT", "restart-timeout"},
      {"SWELL_RECOVER", "recover"},
      {"SWELL_LEAVE_CODE", "leave-code"},
      {"SWELL_BEFORE_END", "before-end"},
      {"SWELL_EVENTS", "swell-events"},
      {"SWELL_PROFILE_OUT", "profile-out"},
      {"SWELL_SWITCH_MEMORY", "switch-memory"},
      {"SWELL_FIRST_WAIT", "first-wait"},
      {"SWELL_MODEL", "model"},
      {"SWELL_GLOBAL_BATCH", "global-batch"},
      {"SWELL_SWITCH_NETWORK", "switch-network"}};
  for (const auto& [variable, name] : variables) {
    const char* value = env(variable);
    if (value == nullptr || *value == '\0') continue;
    const Result<void> set = parser.set_own(name, value);
    if (!set) return set.error().while_doing(variable);
  }
  const Result<void> read = parser.run();
  if (!read) return read.error();
  if (options.global_batch && options.model.empty())
    return Error(fmt::format("--global-batch={}: it is of a --model, and none is given",
                             *options.global_batch));
  if (options.requeue && !options.before_end_s)
    return Error("--requeue: it is of --before-end=SECONDS, and that is not given");
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
         "      --first-wait=S          live mode: wait so long for offered GPUs before the start (15)\n"
         "      --model=NAME|FILE       live mode: what is trained, as `swell plan --model` reads it; by its\n"
         "                              GPUs' data sheets the job is lent GPUs before its first step\n"
         "      --global-batch=N        samples of one step, in place of the model's own\n"
         "      --help, --version\n"
         "\n"
         "srun's options are given to every step; -n, -c, --gpus-per-task shape the workers (one per\n"
         "GPU by default). See swellrun(1).\n";
}

}  // namespace swell::launcher
