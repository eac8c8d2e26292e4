// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "control/elastic_spec.h"
#include "control/server.h"
#include "control/wake_fd.h"
#include "core/cluster/node_description.h"
#include "launcher/basic_workers.h"
#include "launcher/children.h"
#include "launcher/companion_requests.h"
#include "launcher/controller_link.h"
#include "launcher/generation_machine.h"
#include "launcher/leaving_companions.h"
#include "launcher/live_orders.h"
#include "launcher/output_watch.h"
#include "launcher/profile_book.h"
#include "launcher/say.h"
#include "launcher/step_launcher.h"
#include "launcher/step_reports.h"
#include "launcher/time_limit_watch.h"
#include "launcher/worker_connections.h"

namespace swell::launcher {

/// How an agent starts processes and opens connections; tests replace these.
struct AgentParts {
  using Serve = std::function<Result<std::unique_ptr<control::Server>>(
      const control::Server::Options&, std::function<void()> wake)>;

  std::unique_ptr<ProcessRunner> processes = std::make_unique<Children>();
  Serve serve = control::Server::start;
  Connect connect = control::Client::connect;
};

/// The agent of one elastic job: carries out what its GenerationMachine decides, and tells it what
/// happens. One poll() loop; its server and its link to the controller have threads of their own.
class Agent {
 public:
  struct Setup {
    Options options;
    BasicWorkers basic;
    control::ElasticSpec spec;
    ControllerAddress controller;
    bool elastic = true;  ///< false: no controller is contacted
    control::Hello hello;
    std::string address;              ///< where workers connect; empty: as routed to slurmctld
    std::string shim;                 ///< swell-worker's path
    std::vector<std::string> loader;  ///< command that runs it in a container: ContainerShim
    std::string munge_socket;
    std::string shim_munge_socket;  ///< munge's socket as shims see it
    std::optional<std::time_t> slurmctld_since;
    control::PortRange
        srun_ports;  ///< SrunPortRange, which firewalls leave open: the agent listens there
    /// Live mode: the descriptions that the job's nodes publish, by node name; with `wants_ports`
    /// those of companions' nodes are read, too.
    std::map<std::string, cluster::NodeDescription> descriptions;
    bool wants_ports = false;
    std::shared_ptr<const InputPlan> input;
  };
  /// Signals must be blocked already. The error says what this machine does not allow.
  static Result<std::unique_ptr<Agent>> start(Setup setup, AgentParts parts = {});
  /// Runs the program until it ends. Returns swellrun's exit code.
  int run();

 private:
  Agent(Setup setup, GenerationMachine::Settings settings,
        std::unique_ptr<ProcessRunner> processes);
  void wait();
  void take_signals();
  void prepare_to_stop(bool is_slurm);
  void take_server_events();
  void take_controller_messages();
  void say_dropped(const control::Server::Event& event);
  void take_steps(WorkerId worker, const control::WorkerSteps& made);
  void tell(control::Message message);
  void take_ended_children();
  void step_ended(JobId job, const Exit& exit);
  void refuse(WorkerId worker, const std::string& why, const std::string& misfit = {});
  void greet(const control::Server::Event& event, const control::WorkerHello& hello);
  void look_at_output(double now);
  void check_deadlines();
  void end_what_hangs(double now);
  void requeue() const;
  void carry_out();
  void carry_out(const action::StartStep& start);
  void carry_out(const action::StartWorkers& start);
  void carry_out(const action::SignalWorkers& signal);
  void carry_out(const action::Allocate& allocate);
  void carry_out(const action::Release& release);
  void carry_out(const action::Tell& tell);
  void carry_out(const action::Say& say);
  void carry_out(const action::Note& note);
  void carry_out(const action::BeginLive& begin);
  void carry_out(const action::SwitchLive& order);
  void carry_out(const action::StopLive& stop);
  void carry_out(const action::CallOffLive&);
  void carry_out(const action::Finish& finish);
  // agent_profile.cc
  void take_profile(WorkerId worker, const control::WorkerProfile& report);
  void tell_profile(int generation, const Json& profile);
  std::string ports_of(WorkerId worker) const;

  const Setup setup_;
  const RunNames names_;
  const Environment job_environment_;
  GenerationMachine machine_;
  control::WakeFd wake_;
  Descriptor signals_;
  std::unique_ptr<control::Server> server_;
  std::string address_;                   ///< where workers connect
  std::unique_ptr<ControllerLink> link_;  ///< null: the job is not elastic
  const std::unique_ptr<ProcessRunner> processes_;
  std::ofstream events_;

  WorkerConnections workers_;
  std::map<std::string, cluster::NodeDescription> descriptions_;  ///< of nodes that publish one
  StepLauncher steps_;
  CompanionRequests requests_;
  LeavingCompanions leaving_;
  std::unique_ptr<LiveOrders> live_;  ///< null: no live mode
  TimeLimitWatch limit_watch_;
  std::set<JobId> refused_;  ///< jobs, own or companions, whose shims cannot be used
  double next_heartbeat_ = 0;
  struct OutputLook {
    OutputWatch watch;
    double period_s = 0, last = 0;  ///< period 0: hangs are not detected
  } output_look_;
  int dropped_left_ = 5;  ///< number of further unreadable messages that are reported
  ProfileBook profiles_;
  StepReports step_reports_;
  /// The end of the run.
  struct Ending {
    std::optional<int> code;  ///< the program has ended
    bool requeues = false;
    double by = 0;  ///< processes that still run then are killed
    int kills = 0;
  } ending_;
};

/// Returns the names of the job that this process runs in.
RunNames names_of(const Agent::Setup& setup);

}  // namespace swell::launcher
