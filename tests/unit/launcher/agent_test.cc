// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/agent.h"

#include <algorithm>
#include <atomic>
#include <criterion/criterion.h>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <set>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fake_runner.h"
#include "support/worker_nodes.h"

using namespace swell;
using namespace swell::launcher;
using control::ConnectionId;
using support::FakeRunner;

namespace {

constexpr JobId kJob = 5, kCompanion = 9;

/// The controller's side of one agent. Its members are used by the link's thread alone while the
/// agent runs.
struct Controller {
  std::string refuses;                 ///< the reason; empty: it does not
  std::vector<control::Message> says;  ///< after Welcome
  std::vector<control::Message> heard;
  std::function<void(Controller&, const control::Message&)> on_message;
  Descriptor event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void say(control::Message message) {
    says.push_back(std::move(message));
    const std::uint64_t one = 1;
    cr_assert_eq(write(event.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  template <typename T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const control::Message& message : heard)
      if (const auto* one = std::get_if<T>(&message)) found.push_back(*one);
    return found;
  }
};

class ControllerClient final : public control::Client {
 public:
  explicit ControllerClient(Controller& controller) : controller_(controller) {}
  int fd() const override { return controller_.event.get(); }
  std::string local_address() const override { return "127.0.0.1"; }
  Result<void> send(const control::Message& message) override {
    controller_.heard.push_back(message);
    if (controller_.on_message) controller_.on_message(controller_, message);
    return {};
  }
  Result<std::optional<control::Message>> receive(std::chrono::milliseconds) override {
    if (!std::exchange(has_greeted_, true)) {
      if (controller_.refuses.empty()) return std::optional<control::Message>(control::Welcome{});
      return std::optional<control::Message>(control::Refused{controller_.refuses});
    }
    std::uint64_t seen = 0;
    static_cast<void>(::read(controller_.event.get(), &seen, sizeof seen));
    if (controller_.says.empty()) return std::optional<control::Message>();
    control::Message first = std::move(controller_.says.front());
    controller_.says.erase(controller_.says.begin());
    return std::optional(std::move(first));
  }
  bool is_crowded_out() override { return false; }

 private:
  Controller& controller_;
  bool has_greeted_ = false;
};

/// Shims, their programs and Slurm's commands around one agent, whose job has two workers on node1.
/// Unless a test says otherwise, srun starts shims that say hello, and ends when all of them are
/// let go; a program ends with 0 at once.
class Trial {
 public:
  Trial() {
    sigset_t handled;
    sigemptyset(&handled);
    for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP})
      sigaddset(&handled, each);
    sigprocmask(SIG_BLOCK, &handled, nullptr);
    // An srun that may have read its input is not launched again.
    const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
    dup2(null.get(), STDIN_FILENO);
    setup.basic.nodes = {worker_node(0, kJob, "node1", 2)};
    setup.basic.workers = setup.basic.gpus = 2;
    setup.elastic = false;
    setup.hello.job = kJob;
    setup.hello.host = "node1";
    setup.address = "127.0.0.1";
    setup.shim = "/opt/swell-worker";
    setup.options.program = {"train"};
    setup.controller.hosts = {"head"};
    runner_->on_start = [this](const FakeRunner::Started& started) { starts(started); };
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Returns swellrun's exit code.
  int run() {
    const Descriptor before(dup(STDERR_FILENO));
    dup2(said_.get(), STDERR_FILENO);
    AgentParts parts;
    parts.processes = std::unique_ptr<ProcessRunner>(runner_);
    parts.serve = [this](const control::Server::Options&, std::function<void()> wake) {
      wake_ = std::move(wake);
      return Result<std::unique_ptr<control::Server>>(std::make_unique<Shims>(*this));
    };
    parts.connect = [this](const control::Client::Options&, std::chrono::milliseconds) {
      return Result<std::unique_ptr<control::Client>>(
          std::make_unique<ControllerClient>(controller));
    };
    auto agent = Agent::start(std::move(setup), std::move(parts));
    cr_assert(agent.ok());
    const int code = (*agent)->run();
    ended_ = runner_->started;
    agent->reset();
    dup2(before.get(), STDERR_FILENO);
    return code;
  }

  /// The worker's shim sends a message.
  void send(ConnectionId from, control::Message message) {
    events_.push_back({control::Server::Event::Kind::message, from, getuid(), "10.0.0.7",
                       std::move(message), ""});
    wake_();
  }
  /// The worker's shim sends a message of that type that cannot be read.
  void send_bad(ConnectionId from, const char* type, const char* why) {
    events_.push_back({control::Server::Event::Kind::dropped, from, getuid(), "10.0.0.7",
                       control::Refused{why}, type});
    wake_();
  }
  void hang_up(ConnectionId connection) {
    open_.erase(connection);
    events_.push_back(
        {control::Server::Event::Kind::closed, connection, getuid(), "10.0.0.7", {}, ""});
    wake_();
  }
  void say_hello(int worker, const control::WorkerHello& changed = {}) {
    control::WorkerHello hello = changed;
    hello.group = worker / 10;
    hello.local_rank = worker % 10;
    if (hello.host.empty()) hello.host = "node1";
    hello.port = 4000 + worker;
    if (hello.build.empty()) hello.build = control::build();
    open_.insert(connection(worker));
    send(connection(worker), hello);
  }
  void end_program(int worker, Exit exit) {
    send(connection(worker), control::WorkerExit{0, exit.code, exit.signal});
  }
  /// The process ends, as waitpid() would say.
  void end(pid_t pid, int code, std::string output = "") {
    runner_->ending.push_back(FakeRunner::ended(pid, code, std::move(output)));
    wake_();
  }
  /// Any thread may call.
  void wake() const { wake_(); }
  /// Workers are numbered 10 * node + local.
  static ConnectionId connection(int worker) { return static_cast<ConnectionId>(100 + worker); }
  static int worker_of(ConnectionId connection) { return static_cast<int>(connection) - 100; }

  std::string said() const {
    std::string text(static_cast<std::size_t>(lseek(said_.get(), 0, SEEK_END)), ' ');
    cr_assert_eq(pread(said_.get(), text.data(), text.size(), 0),
                 static_cast<ssize_t>(text.size()));
    return text;
  }
  int has_said(const std::string& words) const {
    const std::string text = said();
    int count = 0;
    for (std::size_t at = 0; (at = text.find(words, at)) != text.npos; ++at) ++count;
    return count;
  }
  /// Commands of this program that were run, as one line each.
  std::vector<std::string> commands(const std::string& program) const {
    std::vector<std::string> found;
    for (const FakeRunner::Started& each : ended_) {
      if (each.command.front() != program) continue;
      std::string line;
      for (const std::string& word : each.command) line += (line.empty() ? "" : " ") + word;
      found.push_back(line);
    }
    return found;
  }

  Agent::Setup setup;
  Controller controller;
  std::function<void(const FakeRunner::Started&)> on_srun;  ///< empty: the shims say hello
  std::function<void(const FakeRunner::Started&)> on_command = [this](const auto& one) {
    end(one.pid, 0);
  };
  std::function<void(int worker, const control::WorkerStart&)> on_program =
      [this](int worker, const auto&) { end_program(worker, {}); };
  std::function<void(int worker, int signal)> on_signal;
  std::function<void()> on_look;             ///< the agent looks for messages
  std::vector<std::pair<int, int>> signals;  ///< worker and signal
  std::vector<int> closed;                   ///< workers whose connections the agent closed

 private:
  class Shims final : public control::Server {
   public:
    explicit Shims(Trial& trial) : trial_(trial) {}
    std::uint16_t port() const override { return 7; }
    std::vector<Event> take() override {
      if (trial_.on_look) trial_.on_look();
      return std::exchange(trial_.events_, {});
    }
    void send(ConnectionId connection, control::Message message) override {
      const int worker = worker_of(connection);
      if (const auto* start = std::get_if<control::WorkerStart>(&message))
        trial_.on_program(worker, *start);
      if (const auto* signal = std::get_if<control::WorkerSignal>(&message)) {
        trial_.signals.emplace_back(worker, signal->signal);
        if (trial_.on_signal) trial_.on_signal(worker, signal->signal);
      }
    }
    void close(ConnectionId connection) override {
      trial_.closed.push_back(worker_of(connection));
      trial_.open_.erase(connection);
      if (trial_.open_.empty() && trial_.srun_ != 0) trial_.end(std::exchange(trial_.srun_, 0), 0);
    }

   private:
    Trial& trial_;
  };

  void starts(const FakeRunner::Started& started) {
    if (started.command.front() != "srun") return on_command(started);
    srun_ = started.pid;
    if (on_srun) return on_srun(started);
    for (const int worker : {0, 1}) say_hello(worker);
  }

  FakeRunner* const runner_ = new FakeRunner;  // the agent's, once it is started
  std::function<void()> wake_ = [] {};
  std::vector<control::Server::Event> events_;
  std::set<ConnectionId> open_;
  pid_t srun_ = 0;
  std::vector<FakeRunner::Started> ended_;
  Descriptor said_{memfd_create("said", MFD_CLOEXEC)};
};

control::Grow one_offer() {
  control::Grow grow;
  control::Offer offer;
  offer.nonce = "0a1b";
  offer.name = "swell-5";
  offer.node = "node2";
  offer.gpus = offer.workers = 1;
  grow.offers = {offer};
  grow.expires_s = 60;
  return grow;
}

}  // namespace

Test(agent, programs_run_on_the_shims_of_one_srun_and_the_run_ends_when_they_have) {
  Trial trial;
  std::vector<std::string> ranks;
  trial.on_program = [&](int worker, const control::WorkerStart& start) {
    for (const auto& [name, value] : start.environment)
      if (name == "RANK" || name == "WORLD_SIZE" || name == "MASTER_PORT")
        ranks.push_back(name + "=" + value);
    if (worker == 1) trial.end_program(0, {}), trial.end_program(1, {});
  };
  cr_assert_eq(trial.run(), 0);
  std::sort(ranks.begin(), ranks.end());
  cr_assert(ranks == (std::vector<std::string>{"MASTER_PORT=4000", "MASTER_PORT=4000", "RANK=0",
                                               "RANK=1", "WORLD_SIZE=2", "WORLD_SIZE=2"}));
  cr_assert_eq(trial.commands("srun").size(), 1u);
  cr_assert_neq(trial.commands("srun")[0].find("/opt/swell-worker"), std::string::npos);
  cr_assert(trial.closed == (std::vector<int>{0, 1}), "both shims are let go");
}

Test(agent, a_program_that_fails_ends_the_others_and_its_code_is_the_runs) {
  Trial trial;
  trial.on_program = [&](int worker, const auto&) {
    if (worker == 1) trial.end_program(1, {3, 0});
  };
  trial.on_signal = [&](int worker, int signal) { trial.end_program(worker, {0, signal}); };
  cr_assert_eq(trial.run(), 3, "the other one ended for it");
  cr_assert(trial.signals == (std::vector<std::pair<int, int>>{{0, SIGTERM}}));
}

Test(agent, an_srun_that_cannot_begin_ends_the_run_with_its_code) {
  Trial trial;
  trial.on_srun = [&](const FakeRunner::Started& srun) { trial.end(srun.pid, 7); };
  cr_assert_eq(trial.run(), 7);
  cr_assert(trial.closed.empty());
}

Test(agent, an_srun_is_launched_again_where_slurmctld_was_away) {
  Trial trial;
  int launches = 0;
  trial.on_srun = [&](const FakeRunner::Started& srun) {
    if (++launches == 1) return trial.end(srun.pid, 1);
    for (const int worker : {0, 1}) trial.say_hello(worker);
  };
  trial.on_command = [&](const FakeRunner::Started& scontrol) { trial.end(scontrol.pid, 1); };
  cr_assert_eq(trial.run(), 0);
  cr_assert_eq(launches, 2);
  cr_assert_eq(trial.has_said("srun ended with 1: slurmctld was away"), 1);
}

Test(agent, a_shim_that_is_killed_ends_the_run_as_a_worker_that_was_killed) {
  Trial trial;
  trial.on_program = [&](int worker, const auto&) {
    if (worker == 1) trial.hang_up(Trial::connection(1));
  };
  trial.on_signal = [&](int worker, int signal) { trial.end_program(worker, {0, signal}); };
  cr_assert_eq(trial.run(), 128 + SIGKILL);
  cr_assert(trial.signals == (std::vector<std::pair<int, int>>{{0, SIGTERM}}));
}

Test(agent, a_shim_of_another_version_is_refused_once_by_name) {
  Trial trial;
  trial.on_srun = [&](const auto&) {
    control::WorkerHello hello;
    hello.build = "0.1";
    for (const int worker : {0, 1}) trial.say_hello(worker, hello);
  };
  cr_assert_eq(trial.run(), 1);
  cr_assert_eq(trial.has_said(std::string("node1 has Swell 0.1, this is ") + control::build() +
                              ": install one version of it on all nodes"),
               1);
}

Test(agent, a_step_that_srun_made_otherwise_ends_the_run_and_is_explained) {
  Trial trial;
  trial.on_srun = [&](const auto&) {
    control::WorkerHello hello;
    hello.misfit = "the step on node1 has 1 task in place of 2";
    trial.say_hello(0, hello);
  };
  cr_assert_eq(trial.run(), 1);
  cr_assert_eq(trial.has_said("the step on node1 has 1 task in place of 2"), 1);
}

Test(agent, two_tasks_of_one_number_are_refused) {
  Trial trial;
  trial.on_srun = [&](const auto&) {
    trial.say_hello(0);
    control::WorkerHello again;
    again.host = "node1";
    again.build = control::build();
    trial.send(177, again);
  };
  cr_assert_eq(trial.run(), 1);
  cr_assert_eq(trial.has_said("SLURM_LOCALID"), 1);
  cr_assert_eq(std::count(trial.closed.begin(), trial.closed.end(), 77), 1);
}

Test(agent, a_connection_that_never_said_hello_changes_nothing) {
  Trial trial;
  trial.on_program = [&](int worker, const auto&) {
    if (worker == 0) return;
    trial.send(500, control::WorkerExit{0, 9, 0});
    trial.send(500, control::WorkerNotice{SIGTERM});
    for (const int each : {0, 1}) trial.end_program(each, {});
  };
  cr_assert_eq(trial.run(), 0);
  cr_assert(trial.signals.empty());
}

Test(agent, a_bad_message_is_left_out_and_said_five_times_at_most) {
  Trial trial;
  trial.on_program = [&](int worker, const auto&) {
    if (worker == 0) return;
    for (int i = 0; i < 8; ++i) trial.send_bad(Trial::connection(1), "worker-steps", "steps is -4");
    for (const int each : {0, 1}) trial.end_program(each, {});
  };
  cr_assert_eq(trial.run(), 0);
  cr_assert_eq(trial.has_said("left out what worker 1 on node1 says: steps is -4"), 5);
  cr_assert_eq(trial.has_said("more lines of this kind are left out"), 1);
}

Test(agent, a_shim_whose_exit_cannot_be_read_is_let_go) {
  Trial trial;
  trial.on_program = [&](int worker, const auto&) {
    if (worker == 0) return;
    trial.send_bad(Trial::connection(1), "worker-exit", "exit_code is 4000");
    trial.hang_up(Trial::connection(1));
  };
  trial.on_signal = [&](int worker, int signal) { trial.end_program(worker, {0, signal}); };
  cr_assert_eq(trial.run(), 128 + SIGKILL);
  cr_assert_eq(std::count(trial.closed.begin(), trial.closed.end(), 1), 1);
}

Test(agent, a_signal_to_swellrun_reaches_the_programs) {
  Trial trial;
  trial.on_program = [&](int worker, const auto&) {
    if (worker == 1) raise(SIGINT);
  };
  trial.on_signal = [&](int worker, int signal) { trial.end_program(worker, {0, signal}); };
  cr_assert_eq(trial.run(), 128 + SIGINT);
  cr_assert(trial.signals == (std::vector<std::pair<int, int>>{{0, SIGINT}, {1, SIGINT}}));
}

Test(agent, an_events_file_that_nobody_reads_is_an_error_at_the_start) {
  char path[] = "/tmp/swell-agent-XXXXXX";
  cr_assert_neq(mkdtemp(path), nullptr);
  const std::string fifo = std::string(path) + "/events";
  cr_assert_eq(mkfifo(fifo.c_str(), 0600), 0);
  Trial trial;
  trial.setup.options.events_file = fifo;
  const auto agent = Agent::start(std::move(trial.setup));
  cr_assert_not(agent.ok());
  cr_assert_eq(agent.error().message().rfind(fifo + ": ", 0), 0u);
  unlink(fifo.c_str());
  rmdir(path);
}

Test(agent, a_controller_that_refuses_is_said_once_and_the_training_goes_on, .timeout = 30) {
  Trial trial;
  trial.setup.elastic = true;
  trial.controller.refuses = "job 5 is of another user";
  bool has_ended = false;
  trial.on_program = [](int, const auto&) {};
  trial.on_look = [&] {
    if (trial.has_said("the controller refuses") == 0 || std::exchange(has_ended, true)) return;
    for (const int each : {0, 1}) trial.end_program(each, {});
  };
  cr_assert_eq(trial.run(), 0);
  cr_assert_eq(
      trial.has_said("the controller refuses: job 5 is of another user; training on the GPUs that "
                     "the job has"),
      1);
}

Test(agent, an_offer_that_salloc_is_refused_is_answered_with_its_reason, .timeout = 30) {
  Trial trial;
  trial.setup.elastic = true;
  bool is_offered = false;  // the link's thread alone
  std::atomic<bool> is_answered = false;
  trial.controller.on_message = [&](Controller& self, const control::Message& message) {
    if (const auto* status = std::get_if<control::Status>(&message);
        status != nullptr && status->workers == 2 && !std::exchange(is_offered, true))
      self.say(one_offer());
    if (std::holds_alternative<control::GrowDone>(message)) {
      is_answered = true;
      trial.wake();
    }
  };
  trial.on_look = [&] {
    if (is_answered.exchange(false))
      for (const int each : {0, 1}) trial.end_program(each, {});
  };
  trial.on_command = [&](const FakeRunner::Started& started) {
    if (started.command.front() == "salloc")
      trial.end(started.pid, 1, "salloc: error: Job submit/allocate failed: QOSMaxGRESPerUser\n");
    else trial.end(started.pid, 0);
  };
  trial.on_program = [](int, const auto&) {};
  cr_assert_eq(trial.run(), 0);
  const auto done = trial.controller.all<control::GrowDone>();
  cr_assert_eq(done.size(), 1u);
  cr_assert_eq(done[0].results.at(0).nonce, "0a1b");
  cr_assert_eq(done[0].results[0].companion, 0u);
  cr_assert_neq(done[0].results[0].reason.find("QOSMaxGRESPerUser"), std::string::npos);
  cr_assert_eq(trial.has_said("Slurm refused them"), 1);
}
