// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "control/elastic_spec.h"
#include "control/server.h"
#include "control/wake_fd.h"
#include "core/cluster/node_description.h"
#include "launcher/basic_workers.h"
#include "launcher/children.h"
#include "launcher/command.h"
#include "launcher/controller_link.h"
#include "launcher/generation_machine.h"
#include "launcher/live_driver.h"
#include "launcher/lost_time.h"
#include "launcher/output_watch.h"
#include "launcher/profile_book.h"
#include "launcher/program_socket.h"

namespace swell::launcher {

/// The agent of one elastic job: carries out what its GenerationMachine decides, and tells it what
/// happens. One poll() loop; its server and its link to the controller have threads of their own.
class Agent {
 public:
  struct Setup {
    Options options;
    BasicWorkers basic;
    control::ElasticSpec spec;
    ControllerAddress controller;
    bool elastic = true;  ///< false: the controller is not looked for
    control::Hello hello;
    std::string address;              ///< where its workers find it; empty: on the way to slurmctld
    std::string shim;                 ///< swell-worker's path
    std::vector<std::string> loader;  ///< what runs it in a container: ContainerShim
    std::string munge_socket;
    std::string shim_munge_socket;  ///< as shims see it
    std::optional<std::time_t> slurmctld_since;
    control::PortRange
        srun_ports;  ///< those that a firewall may leave open for srun, and so for it
    /// Live mode: what the job's nodes say of themselves, by name, and whether companions' nodes
    /// are to be asked, too.
    std::map<std::string, cluster::NodeDescription> descriptions;
    bool wants_ports = false;
    std::shared_ptr<const InputPlan> input;
  };
  /// Signals must be blocked already. The error says what this machine does not allow.
  static Result<std::unique_ptr<Agent>> start(Setup setup);
  /// Runs the program until it ends; swellrun's exit code.
  int run();

 private:
  /// One Grow that is being tried.
  struct Request {
    std::vector<control::Offer> offers;
    std::vector<Granted> results;
    std::size_t open = 0;
    double expires = 0;
    std::map<pid_t, std::size_t> sallocs, shows;  ///< by the offer they are for
    std::set<pid_t> node_shows;
    bool is_slow = false;         ///< its node still runs the Prolog
    std::set<std::size_t> moved;  ///< offers that became slow requests of their own
  };
  /// An srun that runs shims.
  struct Step {
    JobId job = 0;
    Command command;
    bool foreground = false;  ///< of the job's own the first, which has standard input
    int launches = 1;
  };
  /// An srun that failed, until it is seen whether slurmctld went away meanwhile.
  struct Failed {
    Step step;
    Exit exit;
  };
  struct Leaving {
    double cancel_by = 0;  ///< its step may end by itself until then
    bool cancelling = false;
  };

  explicit Agent(Setup setup, GenerationMachine::Settings settings);
  void wait();
  void take_signals();
  void prepare_to_stop(bool is_slurm);
  void take_server_events();
  void take_controller_messages();
  void say_dropped(const control::Server::Event& event);
  void take_steps(WorkerId worker, const control::WorkerSteps& made);
  void tell(control::Message message);
  void take_ended_children();
  bool ended_salloc(const Children::Ended& ended);
  void request_done(std::size_t index);
  void expire_requests(double time);
  void cancel_unused(const std::string& name, JobId companion);
  void give_up(const std::string& name, Granted& result, std::string why);
  void launch(Step step);
  bool may_launch_again(const Step& step) const;
  bool launches_again(const Step& step, const Exit& exit);
  bool asks_for_slurmctld(const Step& step, const Exit& exit);
  void answered(const Failed& failed, const Children::Ended& config);
  void launch_later(Step step, const Exit& exit, const char* why, double pause_s);
  void refuse(WorkerId worker, const std::string& why, const std::string& misfit = {});
  // agent_end.cc
  void look_at_output(double now);
  void look_at_limit(double now);
  bool ended_limit_look(const Children::Ended& ended, double now);
  void requeue() const;
  void check_deadlines();
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
  // agent_live.cc
  void give_live_order();
  void take_live_news();
  void answer_live(const Error& why);
  void take_stopped(const LiveDriver::Stopped& stopped);
  void take_switch_report(const runtime::SwitchReport& report);
  std::vector<WorkerId> workers_of(const std::vector<runtime::Shim>& shims) const;
  Result<std::vector<runtime::Shim>> shims_of(const std::vector<WorkerId>& ranks) const;
  std::vector<runtime::Shim> own_shims() const;
  cluster::Cluster cluster_of_nodes() const;
  void cancel(JobId companion);
  bool step_runs(JobId job) const;
  std::string ports_of(WorkerId worker) const;

  const Setup setup_;
  const RunNames names_;
  const Environment job_environment_;
  GenerationMachine machine_;
  control::WakeFd wake_;
  Descriptor signals_;
  std::unique_ptr<control::Server> server_;
  std::string address_;                   ///< where the workers find it
  std::unique_ptr<ControllerLink> link_;  ///< null: the job is not elastic
  Children children_;
  std::ofstream events_;

  std::map<WorkerId, control::ConnectionId> connections_;
  std::map<control::ConnectionId, WorkerId> workers_;
  /// Allocation and Slurm's number of the step that each is a task of.
  std::map<WorkerId, std::pair<JobId, JobId>> steps_of_;
  std::map<int, JobId> node_job_;
  std::map<pid_t, Step> steps_;
  std::vector<std::pair<double, Step>> launches_;  ///< of steps that were lost, and when
  std::map<pid_t, Failed> failed_;                 ///< by the scontrol that asks
  std::map<pid_t, JobId> cancels_;
  std::vector<Request> requests_;
  std::map<JobId, Leaving> leaving_;
  std::map<JobId, std::string> companion_names_;
  std::vector<JobId> told_companions_;
  double next_heartbeat_ = 0;
  /// Slurm is asked when the job ends.
  struct LimitLook {
    pid_t pid = 0;
    double next = 0;
  } limit_look_;
  struct OutputLook {
    OutputWatch watch;
    double period_s = 0, last = 0;  ///< period: 0: hangs are not looked for
  } output_look_;
  int dropped_left_ = 5;  ///< messages that could not be read and are yet to be told
  bool requeues_ = false;
  const std::time_t began_ = std::time(nullptr);
  ProfileBook profiles_;
  LostTime lost_;
  MadeSteps made_;  ///< by the running program, as far as is known
  // live mode
  struct Keeper {
    std::string address, problem;
  };
  std::string key_;                     ///< the job's; empty: no live mode
  std::unique_ptr<LiveDriver> driver_;  ///< null: no live mode
  std::map<WorkerId, Keeper> keepers_;
  bool told_of_tmp_ = false, told_of_memory_ = false;
  std::set<std::string> told_notes_;  ///< of ways that are slower than was asked for
  std::map<int, WorkerNode> nodes_;
  std::set<JobId> refused_;  ///< the job's own, or companions, whose shims cannot be used
  std::map<std::string, cluster::NodeDescription> descriptions_;  ///< of nodes that publish one
  /// Waits until the keepers of its workers listen.
  std::variant<std::monostate, action::BeginLive, action::SwitchLive> live_order_;
  std::optional<int> code_;  ///< the program has ended
  double finish_by_ = 0;
  int finish_kills_ = 0;
};

/// Returns the names of the job that this process runs in.
RunNames names_of(const Agent::Setup& setup);

/// Writes "swellrun: LINE" to standard error.
void say(const std::string& line);

}  // namespace swell::launcher
