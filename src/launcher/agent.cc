// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/agent.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "core/saturating.h"
#include "launcher/file_limit.h"
#include "launcher/signals.h"
#include "launcher/step_fit.h"

namespace swell::launcher {

namespace {

constexpr double kHeartbeat_s = 20;
/// Share of a core that strangers at the agent's port may take.
constexpr double kStrangersShare = 0.25;
constexpr double kFirstOffer_s = 2;
constexpr double kOutputLook_s = 5;

constexpr double kFirstMessageSeconds = 10;  // for a worker to say who it is
constexpr int kMaxRefusalLines = 5;
constexpr std::size_t kMaxLeftOutLines = 5;  // variables named to the user
constexpr std::size_t kMaxEnvironment = 40 * 1024, kMaxLiveEnvironment = 14 * 1024;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_live(const Agent::Setup& setup) {
  return setup.elastic && setup.spec.mode == control::Mode::live;
}

/// Returns whether a program that is started again finds the first one's standard input again.
bool can_start_again(const Agent::Setup& setup) {
  if (!setup.input->no_growth.empty()) return false;
  if (setup.input->spooled || setup.options.input == "none") return true;
  struct stat input {};  // a terminal and /dev/null can be read on
  return fstat(STDIN_FILENO, &input) != 0 || S_ISCHR(input.st_mode);
}

GenerationMachine::Settings settings_for(const Agent::Setup& setup) {
  GenerationMachine::Settings settings;
  settings.job = setup.hello.job;
  settings.run = fmt::format("{}-{}-{:x}", setup.hello.host, getpid(),
                             std::chrono::system_clock::now().time_since_epoch().count());
  settings.gpus_per_worker = setup.basic.gpus_per_worker;
  settings.tells_gpus = std::getenv("SLURM_GPUS") != nullptr;
  settings.sizes = setup.spec.sizes;
  settings.step = setup.spec.step;
  settings.exact = setup.spec.consistency == control::Consistency::exact;
  settings.grow_s = setup.spec.grow_s;
  settings.restart_signal = setup.options.restart_signal;
  settings.restart_timeout_s = setup.options.restart_timeout_s.value_or(setup.spec.grace_s);
  settings.max_restarts = setup.options.max_restarts;
  settings.recover_s = setup.options.recover_s;
  settings.kill_on_bad_exit = setup.options.kill_on_bad_exit;
  settings.live = is_live(setup);
  settings.leave_code = setup.options.leave_code;
  settings.before_end_s = setup.options.before_end_s;
  settings.hang = setup.options.hang;
  if (!can_start_again(setup)) settings.hang.factor = 0;
  settings.never_grows = setup.basic.no_growth;
  if (setup.elastic && settings.never_grows.empty()) settings.never_grows = setup.input->no_growth;
  // The controller hears of a job and its agent at about the same time, and may offer GPUs at once.
  settings.first_wait_s = setup.options.first_wait_s;
  settings.first_offer_s = settings.live ? std::min(kFirstOffer_s, settings.first_wait_s) : 0;
  return settings;
}

/// Returns the interval at which the program's output is looked at; 0: never.
double look_period_s(const Progress::Settings& hang) {
  return hang.factor > 0 ? std::clamp(hang.minimum_s / 20, 0.2, kOutputLook_s) : 0;
}

/// Returns the job's own variables, and tells the user which ones are left out. Their size is
/// limited, since the message also holds the plan and the run's variables.
Environment environment_for(const Agent::Setup& setup) {
  std::vector<std::string> left_out;
  Environment kept =
      job_environment(environ, is_live(setup) ? kMaxLiveEnvironment : kMaxEnvironment, left_out);
  for (std::size_t i = 0; i < left_out.size() && i < kMaxLeftOutLines; ++i)
    say(fmt::format("{} does not reach the workers: it is too long, or not valid UTF-8",
                    left_out[i]));
  if (left_out.size() > kMaxLeftOutLines)
    say(fmt::format("{} more variables do not reach the workers",
                    left_out.size() - kMaxLeftOutLines));
  return kept;
}

/// Returns 32 random bytes in hexadecimal digits.
Result<std::string> random_key() {
  std::array<unsigned char, 32> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Error(fmt::format("no random numbers for the job's key: {}", std::strerror(errno)));
  std::string text;
  for (const unsigned char each : bytes) text += fmt::format("{:02x}", each);
  return text;
}

std::string user_name() {
  std::array<char, 16384> text{};
  passwd entry{}, *found = nullptr;
  getpwuid_r(geteuid(), &entry, text.data(), text.size(), &found);
  return found != nullptr ? found->pw_name : "";
}

}  // namespace

RunNames names_of(const Agent::Setup& setup) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  return {setup.hello.job,     variable("SLURM_ARRAY_JOB_ID"), variable("SLURM_ARRAY_TASK_ID"),
          setup.basic.workers, variable("SLURM_JOB_NAME"),     user_name()};
}

Agent::Agent(Setup setup, GenerationMachine::Settings settings,
             std::unique_ptr<ProcessRunner> processes)
    : setup_(std::move(setup)),
      names_(names_of(setup_)),
      job_environment_(environment_for(setup_)),
      machine_(std::move(settings), setup_.basic.nodes),
      processes_(std::move(processes)),
      descriptions_(setup_.descriptions),
      steps_(
          {setup_.hello.job, setup_.input, setup_.slurmctld_since}, *processes_,
          [this](JobId job, const Exit& exit) { step_ended(job, exit); }, say),
      requests_({.job = setup_.hello.job,
                 .gpus_per_worker = setup_.basic.gpus_per_worker,
                 .warning = is_live(setup_) ? kQuietSignal : setup_.options.restart_signal,
                 .wants_ports = setup_.wants_ports},
                *processes_, descriptions_,
                [this](const std::vector<Granted>& results) {
                  machine_.handle(now(), event::Allocated{results});
                }),
      leaving_(
          *processes_, [this](JobId companion) { return requests_.name_of(companion); },
          [this](JobId companion) { machine_.handle(now(), event::Released{companion}); }),
      limit_watch_(
          setup_.hello.job, setup_.options.before_end_s.value_or(0), *processes_,
          [this](std::optional<double> at) { machine_.handle(now(), event::JobEnds{at}); }),
      output_look_{OutputWatch(setup_.options, names_), look_period_s(setup_.options.hang)},
      step_reports_(setup_.options.steps.value_or(0)) {}

Result<std::unique_ptr<Agent>> Agent::start(Setup setup, AgentParts parts) {
  // Standard input is kept, since a program that is started again gets it again from the beginning.
  setup.input = std::make_shared<const InputPlan>(
      setup.elastic || setup.options.recover_s > 0 ? plan_input(setup.options.input, STDIN_FILENO)
                                                   : InputPlan());
  // srun reads the same input if the agent cannot start.
  if (setup.input->spooled) setup.input->spooled->become_standard_input();
  GenerationMachine::Settings settings = settings_for(setup);
  std::unique_ptr<Agent> agent(
      new Agent(std::move(setup), std::move(settings), std::move(parts.processes)));
  if (!agent->setup_.options.events_file.empty()) {
    const std::string& path = agent->setup_.options.events_file;
    // Opening a FIFO that nobody reads fails here; opening it as a stream below would block.
    const Descriptor file(
        open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666));
    if (file) agent->events_.open(path, std::ios::app);
    if (!file || !agent->events_) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  sigset_t handled;
  sigemptyset(&handled);
  for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP})
    sigaddset(&handled, each);
  agent->signals_ = Descriptor(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!agent->signals_ || agent->wake_.fd() < 0) return Error("too many open files");

  control::WakeFd* wake = &agent->wake_;
  // The network on which slurmctld is reached is the one on which nodes reach each other.
  Result<std::string> address =
      !agent->setup_.address.empty()
          ? Result<std::string>(agent->setup_.address)
          : control::address_towards(agent->setup_.controller.hosts.empty()
                                         ? std::string()
                                         : agent->setup_.controller.hosts.front());
  if (!address) return address.error();
  control::Server::Options options;
  options.address = agent->address_ = std::move(*address);
  options.munge_socket = agent->setup_.munge_socket;
  options.allow = [own = geteuid()](uid_t uid) { return uid == own; };
  const BasicWorkers& basic = agent->setup_.basic;
  int on_one_node = 0;
  for (const WorkerNode& node : basic.nodes) on_one_node = std::max(on_one_node, node.workers);
  // If the job has `min=`, only the controller knows the GPUs that a factor of max= multiplies.
  const control::ElasticSpec& spec = agent->setup_.spec;
  const int most_asked =
      saturated_int(saturating_product(basic.gpus, spec.min_gpus ? spec.kMaxLowering : 1));
  const int gpus = agent->setup_.elastic ? spec.max_total(most_asked, false) : basic.gpus;
  const FileBudget budget = file_budget(
      raise_file_limit(), std::max(basic.workers, gpus / basic.gpus_per_worker), on_one_node);
  if (!budget.problem.empty()) say(budget.problem);
  options.max_connections = options.max_connections_per_user = budget.max_connections;
  options.max_unauthenticated = budget.max_strangers;
  options.max_unauthenticated_per_address = budget.max_strangers_per_address;
  options.first_message_s = kFirstMessageSeconds;
  options.strangers_share = kStrangersShare;
  options.log = [left = kMaxRefusalLines](const std::string& line) mutable {
    if (left <= 0) return;
    say(line);
    if (--left == 0) say("more lines of this kind are left out");
  };
  options.ports = agent->setup_.srun_ports;
  auto server = parts.serve(options, [wake] { wake->signal(); });
  if (!server && options.ports.first != 0) {
    say(server.error().message() + " (SrunPortRange); any other port is taken");
    options.ports = {};
    server = parts.serve(options, [wake] { wake->signal(); });
  }
  if (!server) return server.error();
  agent->server_ = std::move(*server);
  try {
    if (is_live(agent->setup_)) {
      auto key = random_key();
      if (!key) return key.error();
      agent->live_ = std::make_unique<LiveOrders>(
          LiveOrders::Settings{std::move(*key), agent->setup_.hello.job, basic.gpus_per_worker,
                               agent->setup_.options.switch_verify,
                               agent->setup_.options.switch_memory_bytes},
          agent->workers_, agent->machine_, [wake] { wake->signal(); });
    }
    if (agent->setup_.elastic) {
      control::Hello hello = agent->setup_.hello;
      hello.no_growth = agent->machine_.status().no_growth;
      agent->link_ = std::make_unique<ControllerLink>(
          agent->setup_.controller, std::move(hello), [wake] { wake->signal(); },
          std::move(parts.connect));
    }
  } catch (const std::system_error& problem) {
    return Error(fmt::format("no thread can be started ({}); see ulimit -u", problem.what()));
  }
  return agent;
}

int Agent::run() {
  if (setup_.elastic && !setup_.input->no_growth.empty())
    say("the job is lent no GPUs: " + setup_.input->no_growth);
  machine_.start(now());
  next_heartbeat_ = now() + kHeartbeat_s;
  carry_out();
  while (!ending_.code || !processes_->none()) {
    wait();
    take_signals();
    take_server_events();
    take_controller_messages();
    if (live_) live_->take_news([this] { carry_out(); });
    take_ended_children();
    check_deadlines();
    carry_out();
    if (ending_.code && ending_.kills > 2) break;
  }
  tell(control::Bye{*ending_.code});
  // A controller that cannot be reached now must not keep the job from ending.
  if (link_ && !link_->flush(std::chrono::seconds(1))) static_cast<void>(link_.release());
  if (ending_.requeues) requeue();
  return *ending_.code;
}

void Agent::wait() {
  double until = next_heartbeat_;
  for (const std::optional<double> deadline :
       {machine_.deadline(), requests_.deadline(), leaving_.deadline(), steps_.deadline(),
        ending_.code ? std::optional(ending_.by) : limit_watch_.deadline()})
    if (deadline) until = std::min(until, *deadline);
  if (output_look_.period_s > 0) until = std::min(until, output_look_.last + output_look_.period_s);
  std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}};
  processes_->add_to(polled);
  const double left = std::clamp(until - now(), 0.0, 60.0);
  poll(polled.data(), polled.size(), static_cast<int>(left * 1000) + (left > 0 ? 1 : 0));
  wake_.clear();
  processes_->read();
}

void Agent::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info)
    if (info.ssi_signo == SIGTSTP) prepare_to_stop(info.ssi_code == SI_USER);
    else if (info.ssi_signo != SIGCHLD)
      machine_.handle(now(), event::Signalled{static_cast<int>(info.ssi_signo)});
}

/// Gives all companions back if Slurm suspends the job: it sends TSTP to each process, and STOP 2 s
/// later. A stopped srun would keep Slurm from ending its step, and after UnkillableStepTimeout
/// Slurm drains the node. So the sruns of companions are killed before.
void Agent::prepare_to_stop(bool is_slurm) {
  if (!is_slurm) {  // a terminal's ^Z
    raise(SIGSTOP);
    return;
  }
  control::Shrink all;
  all.companions = steps_.companions();
  if (all.companions.empty()) return;
  all.reason = "Slurm suspends the job";
  machine_.handle(now(), all);
  steps_.kill_companions();
}

void Agent::take_server_events() {
  for (const control::Server::Event& event : server_->take()) {
    const auto known = workers_.worker(event.connection);
    if (event.kind == control::Server::Event::Kind::closed) {
      const auto worker = workers_.disconnect(event.connection);
      if (!worker) continue;
      if (live_) live_->lost(*worker);
      machine_.handle(now(), event::Lost{*worker});
    } else if (event.kind == control::Server::Event::Kind::dropped) {
      say_dropped(event);
      // Without what an exit or a keeper's message says, the run would wait for ever.
      if (event.type == control::WorkerExit::type || event.type == control::WorkerRuntime::type)
        server_->close(event.connection);
    } else if (const auto* hello = std::get_if<control::WorkerHello>(&event.message)) {
      greet(event, *hello);
    } else if (!known) {
      continue;
    } else if (const auto* notice = std::get_if<control::WorkerNotice>(&event.message)) {
      machine_.handle(now(), event::Notice{*known, notice->signal});
    } else if (const auto* listens = std::get_if<control::WorkerListens>(&event.message)) {
      machine_.handle(now(), event::Listens{*known, listens->generation});
    } else if (const auto* exit = std::get_if<control::WorkerExit>(&event.message)) {
      machine_.handle(now(),
                      event::Exited{*known, {exit->exit_code, exit->signal}, exit->generation});
    } else if (const auto* keeper = std::get_if<control::WorkerRuntime>(&event.message)) {
      if (live_) live_->keeper_listens(*known, keeper->address, keeper->problem);
    } else if (const auto* sizes = std::get_if<control::WorkerSizes>(&event.message)) {
      machine_.handle(now(), event::CanRunWith{sizes->workers, sizes->why});
    } else if (const auto* launches = std::get_if<control::WorkerLaunches>(&event.message)) {
      machine_.handle(now(), event::TrainsAlone{*known, launches->what, launches->no_rank});
    } else if (const auto* made = std::get_if<control::WorkerSteps>(&event.message)) {
      machine_.handle(now(),
                      event::MadeSteps{made->generation, static_cast<std::uint64_t>(made->steps)});
      take_steps(*known, *made);
    } else if (const auto* profile = std::get_if<control::WorkerProfile>(&event.message)) {
      take_profile(*known, *profile);
    }
    carry_out();
  }
}

/// Accepts a shim, or ends its step if it cannot be used.
void Agent::greet(const control::Server::Event& event, const control::WorkerHello& hello) {
  const WorkerId worker{hello.group, hello.local_rank};
  // Shims that come up too late are disconnected at once.
  if (ending_.code || !workers_.knows(worker.node) ||
      leaving_.contains(workers_.node(worker.node).job))
    return server_->close(event.connection);
  const std::string& node = workers_.node(worker.node).name;
  if (hello.build != control::build()) {
    refuse(
        worker,
        fmt::format("{} has Swell {}, this is {}: install one version of it on all nodes", node,
                    hello.build.empty() ? "of an older version" : hello.build, control::build()));
    return server_->close(event.connection);
  }
  if (!hello.misfit.empty()) {
    refuse(worker, hello.misfit, hello.misfit);
    return server_->close(event.connection);
  }
  if (workers_.is_taken(worker, event.connection, hello.step)) {
    const std::string why = same_local_id(worker.local, node);
    refuse(worker, why, why);
    return server_->close(event.connection);
  }
  // If the step was launched again, the connection of its first launch is closed.
  if (const auto before = workers_.connect(worker, event.connection, hello.step))
    server_->close(*before);
  machine_.handle(now(),
                  event::Hello{worker, hello.host, hello.port, hello.step, hello.one_program});
}

/// Reports the first few messages that cannot be read. Training goes on without them.
void Agent::say_dropped(const control::Server::Event& event) {
  const auto* dropped = std::get_if<control::Refused>(&event.message);
  if (dropped == nullptr || dropped_left_ <= 0) return;
  const auto known = workers_.worker(event.connection);
  say(fmt::format(
      "left out what {} says: {}{}",
      known ? fmt::format("worker {} on {}", known->local, workers_.node(known->node).name)
            : event.peer,
      dropped->reason, --dropped_left_ > 0 ? "" : "; more lines of this kind are left out"));
}

void Agent::take_steps(WorkerId worker, const control::WorkerSteps& made) {
  if (step_reports_.take(worker, made)) tell(machine_.status());
  const auto cost = step_reports_.take_time(worker, made, now());
  if (!cost) return;
  say(fmt::format("the change that led to generation {} cost {:.2f} s of training",
                  cost->generation, cost->lost_s));
  tell(machine_.status());
}

void Agent::tell(control::Message message) {
  if (auto* status = std::get_if<control::Status>(&message)) step_reports_.fill(*status);
  if (link_) link_->send(std::move(message));
}

/// Ends the worker's step, which cannot be used; `why` is said once for all of its workers.
void Agent::refuse(WorkerId worker, const std::string& why, const std::string& misfit) {
  const JobId job = workers_.node(worker.node).job;
  if (!refused_.insert(job).second) return;
  if (misfit.empty() || job == setup_.hello.job) say(why);  // the machine reports companions
  machine_.handle(now(), event::StepEnded{job, {1, 0}, misfit});
}

void Agent::take_controller_messages() {
  if (!link_) return;
  for (const std::string& line : link_->take_news()) say(line);
  for (const control::Message& message : link_->take()) {
    if (const auto* grow = std::get_if<control::Grow>(&message)) {
      // srun fails at once if its working folder is gone, on any node.
      if (std::error_code gone; std::filesystem::current_path(gone).empty() && gone)
        machine_.handle(now(), event::GrowsNoMore{"the working folder is gone"});
      machine_.handle(now(), *grow);
    } else if (const auto* shrink = std::get_if<control::Shrink>(&message))
      machine_.handle(now(), *shrink);
    else if (const auto* order = std::get_if<control::Replan>(&message))
      machine_.handle(now(), *order);
    else if (const auto* leave = std::get_if<control::Requeue>(&message))
      machine_.handle(now(), *leave);
    carry_out();
  }
}

void Agent::take_ended_children() {
  for (const Children::Ended& ended : processes_->reap()) {
    const bool may_begin_again = !machine_.has_begun() && !ending_.code;
    if (!steps_.take(ended, may_begin_again, now()) && !leaving_.take(ended) &&
        !limit_watch_.take(ended, now()))
      requests_.take(ended);
    carry_out();
  }
}

void Agent::step_ended(JobId job, const Exit& exit) {
  if (!steps_.runs(job)) leaving_.step_ended(job);
  machine_.handle(now(), event::StepEnded{job, exit});
}

/// If the last look was long ago, this process was stopped, and so was the job.
void Agent::look_at_output(double now) {
  OutputLook& look = output_look_;
  if (look.period_s <= 0 || now < look.last + look.period_s) return;
  if (now > look.last + 2 * look.period_s + 1) machine_.handle(now, event::StoodStill{});
  look.last = now;
  if (look.watch.has_written()) machine_.handle(now, event::Wrote{});
}

void Agent::check_deadlines() {
  const double time = now();
  if (!ending_.code) limit_watch_.look(time);
  look_at_output(time);
  if (const auto deadline = machine_.deadline(); deadline && time >= *deadline) machine_.tick(time);
  requests_.expire(time);
  leaving_.cancel_late(time);
  steps_.launch_due(time);
  if (time >= next_heartbeat_) {
    next_heartbeat_ = time + kHeartbeat_s;
    if (!ending_.code) tell(machine_.status());
  }
  if (ending_.code && time >= ending_.by) end_what_hangs(time);
}

/// Ends an srun or scancel that hangs: slurmctld or a node does not answer.
void Agent::end_what_hangs(double now) {
  ending_.by = now + 3;
  ++ending_.kills;
  steps_.end(ending_.kills == 1 ? SIGTERM : SIGKILL);
  leaving_.kill();
  limit_watch_.kill();
  requests_.kill();
}

void Agent::carry_out() {
  for (auto actions = machine_.take(); !actions.empty(); actions = machine_.take())
    for (const action::Any& action : actions)
      std::visit([this](const auto& one) { carry_out(one); }, action);
  if (link_) link_->set_companions(machine_.companions());
}

}  // namespace swell::launcher
