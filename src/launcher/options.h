// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "launcher/progress.h"
#include "runtime/wire/verify.h"

namespace swell::launcher {

/// Returns the output of `srun OPTION --help`: help if OPTION does not take the next word as value.
using AskSrun = std::function<std::string(const std::string& option)>;

/// swellrun's command line, and how an elastic run uses srun's part of it.
struct Options {
  // swellrun's own
  int restart_signal = SIGUSR1;
  std::optional<double> restart_timeout_s;  ///< none: the job's grace
  int max_restarts = 3;
  /// Exit code of a program that leaves for a resize; 0 then only means the end of training.
  /// nullopt: 0 may mean either.
  std::optional<int> leave_code;
  std::optional<double>
      before_end_s;      ///< seconds before the job's time limit at which workers leave
  bool requeue = false;  ///< the job is requeued when they have left
  double recover_s = 0;  ///< a failed program is started again, unless it failed this soon before
  Progress::Settings hang = {};  ///< what counts as a hang
  std::string events_file;
  std::string profile_file;  ///< live mode: where the running plan's profile is written
  /// Live mode: memory that a switch may use in a worker beside its state.
  std::uint64_t switch_memory_bytes = std::uint64_t{2} << 30;
  runtime::Verify switch_verify = runtime::Verify::network;  ///< live mode
  /// Live mode: how state moves between nodes: "auto", "tcp", "nccl", "ucx" or "ucx:DEVICES".
  std::string switch_network = "auto";
  /// Live mode: seconds that the job's own workers wait for offered GPUs before they begin.
  double first_wait_s = 15;
  /// Live mode: the model that is trained, a file or a catalogue's name; empty: not given.
  std::string model;
  /// Steps of the whole training, if the program does not report them.
  std::optional<std::int64_t> steps;
  std::optional<int> global_batch;  ///< samples of a step, in place of the model's own
  std::string
      interface;  ///< the workers' network: an interface or ADDRESS/BITS; empty: slurmctld's
  bool help = false;
  bool version = false;

  // number of workers, if given
  std::optional<int> ntasks, ntasks_per_node, cpus_per_task, cpus_per_gpu, gpus_per_task;
  std::optional<int> gpus, gpus_per_node;  ///< of -G; of --gpus-per-node or --gres
  bool no_gpus = false;                    ///< --gres=none: its steps have no GPUs
  // nodes to use, if given
  std::optional<std::pair<int, int>> nodes;  ///< -N: minimum and maximum
  std::vector<std::string> node_list, excluded;
  int relative = 0;                  ///< -r: number of nodes at the beginning that are left out
  bool kill_on_bad_exit = true;      ///< torchrun's way; srun's own default is to wait
  std::optional<std::string> input;  ///< of srun's --input
  std::string open_mode;             ///< the user's choice: append or truncate; empty: none

  std::optional<std::string> output, error;  ///< of -o and -e, or of srun's variables for them

  std::vector<std::string> each_step;   ///< srun options for every step
  std::vector<std::string> basic_step;  ///< srun options for the basic demand's step
  std::vector<std::string> program;
  std::vector<std::string> srun;  ///< all words but swellrun's own: what plain srun gets
  std::string plain_reason;       ///< why only srun can run this; empty: swellrun can
  /// Why the job is lent nothing, although swellrun runs its workers; empty: no option forbids it.
  std::string no_growth;
  std::vector<std::string> left_out;  ///< names of options that are not passed on

  /// `arguments` without the program's name. SWELL_RESTART_SIGNAL, SWELL_RESTART_TIMEOUT,
  /// SWELL_RECOVER, SWELL_LEAVE_CODE, SWELL_BEFORE_END, SWELL_HANG_FACTOR, SWELL_HANG_MINIMUM,
  /// SWELL_EVENTS, SWELL_MODEL, SWELL_PROFILE_OUT, SWELL_SWITCH_MEMORY, SWELL_STEPS,
  /// SWELL_SWITCH_NETWORK, SWELL_SWITCH_VERIFY, SWELL_FIRST_WAIT, SWELL_GLOBAL_BATCH and
  /// SWELL_INTERFACE, read with `env`, stand for options that are not given. `ask_srun` says how
  /// srun reads an option that swellrun does not know (SPANK plugins). The error names the option.
  static Result<Options> parse(const std::vector<std::string>& arguments,
                               const char* (*env)(const char*), const AskSrun& ask_srun = {});
};

/// Returns the text of `swellrun --help`.
const char* help_text() noexcept;

}  // namespace swell::launcher
