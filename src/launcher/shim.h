// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "control/client.h"
#include "control/socket.h"
#include "control/wake_fd.h"
#include "launcher/held_port.h"
#include "launcher/leave_file.h"
#include "launcher/program.h"
#include "launcher/program_socket.h"
#include "launcher/runtime_host.h"

namespace swell::launcher {

/// The task of a step (swell-worker): starts the program each time that swellrun says so, stays
/// when the program leaves, and ends it if swellrun is gone.
class Shim {
 public:
  struct Options {
    char** program = nullptr;  ///< and its arguments; a null pointer at the end
    std::string network;       ///< as --switch-network of swellrun
    int node = -1;             ///< the node's number, as swellrun gave it
    int local_rank = 0;        ///< of the task on its node
    /// Given to the program of each generation as its standard input; none: the shim's own.
    std::optional<SpooledInput> input;
    std::string one_program;  ///< why its GPUs take no second program; empty: they do
    std::string misfit;       ///< as in WorkerHello
    /// Connects to the agent again; may be empty.
    std::function<Result<std::unique_ptr<control::Client>>()> reconnect;
  };
  /// `client`: connected to the agent. `signals`: a signalfd of those that the shim handles.
  Shim(Options options, std::unique_ptr<control::Client> client, Descriptor signals)
      : options_(std::move(options)), client_(std::move(client)), signals_(std::move(signals)) {}

  /// Runs until swellrun has no more work or is gone. @return the shim's wait status: how the
  /// program ended.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  /// The program of one generation. During a live switch there are two.
  struct Run {
    Program program;
    HeldPort port;  ///< MASTER_PORT if this worker has rank 0; held while the program runs
    int restart_signal = 0;
    bool listens = false;                 ///< it handles the restart signal
    bool keeps_signal = false;            ///< a restart signal came before its handler
    bool heard_signal = false;            ///< the restart signal has come from Slurm
    std::chrono::milliseconds pause{20};  ///< first interval of looks for its handler
    Clock::time_point next_look = Clock::now() + pause;
    /// The variables that the program was given, as long as the shim looks for a launcher among its
    /// child processes; empty: it does not look.
    std::vector<std::pair<std::string, std::string>> given;
    Clock::time_point since = Clock::now(), next_inner_look = since + pause;
  };
  bool hello();

  /// Connects again if the agent closed the connection to make room for others, before it had read
  /// this worker's hello. Returns false if it was closed for another reason, or cannot connect.
  bool come_back();
  bool take_signals();
  bool notice(int signal);
  bool hear_late_signal(const Run& one);
  bool take_messages();
  void signal_program(Run& one, int signal);
  int looks_in_ms() const;

  /// Tells the agent, once for each program, that it handles the restart signal, and sends the
  /// program a signal that was kept back.
  bool look();
  /// Tells the agent, once, if the program is a launcher that has started workers of its own.
  bool look_within(int generation, Run& one);
  bool start_program(const control::WorkerStart& start);

  /// Starts the keeper before the program; if there can be none, tells the agent why.
  bool offer_runtime(const control::WorkerStart& start,
                     std::vector<std::pair<std::string, std::string>>& environment);

  /// Tells the agent what programs have reported. The runtime's generations begin with 1.
  bool pass_reports();

  /// Notes that a program trains `generation` from now on. If the program of the generation before
  /// stays for it, the agent is told that it has ended there. The process that trains may be a
  /// descendant of the one that was started.
  bool take_over(int generation);

  /// Tells the program that the generation for which it was to stay was cancelled.
  bool withdraw_staying(int signal);
  /// Reads what programs have reported, and passes their numbers of workers on to the agent.
  bool pass_sizes();
  bool reports_steps() const { return options_.local_rank == 0 && !runs_.empty(); }
  /// Tells the agent how many steps the program has made, and from time to time that this worker is
  /// alive: one worker of each node and allocation does so.
  bool report_steps();

  /// Returns the pid of a running program of another generation; 0: there is none.
  pid_t beside(int generation) const;
  bool reap();
  void end_programs();

  const Options options_;
  std::unique_ptr<control::Client> client_;
  Descriptor signals_;
  HeldPort port_;          ///< for the next program
  HeldPort staying_port_;  ///< of the generation that the running program prepares for
  /// Reports that the keeper's threads leave for the shim's thread. Outlives those threads.
  struct Reported {
    Mutex mutex;
    std::vector<std::pair<std::uint64_t, std::string>> profiles SWELL_GUARDED_BY(mutex);
    std::vector<std::uint64_t> adopted SWELL_GUARDED_BY(mutex);
    control::WakeFd wake;
  } reported_;
  std::unique_ptr<RuntimeHost> runtime_;  ///< live mode, from the first start on
  std::optional<ProgramSocket> said_;
  std::optional<LeaveFile> leave_file_;
  std::map<int, Run> runs_;  ///< by generation
  /// The generation that the running program has been asked to stay for.
  std::optional<int> staying_;
  int trains_ = -1;        ///< the generation that was taken over last
  bool is_known_ = false;  ///< the agent has answered
  struct Steps {
    MadeSteps said;  ///< by the program that was started last
    Clock::time_point said_at;
    MadeSteps told;
    Clock::time_point next_look, next_report;
  } steps_;
  int status_ = 0;
  int ended_ = 0;  ///< number of programs that have ended
  bool asked_to_leave_ = false;
};

}  // namespace swell::launcher
