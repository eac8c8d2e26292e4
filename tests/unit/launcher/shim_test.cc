// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/shim.h"

#include <criterion/criterion.h>
#include <csignal>
#include <deque>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace swell;
using namespace swell::launcher;

namespace {

/// The agent's side: a test says what it answers to each message.
struct Agent {
  using React = std::function<void(Agent&, const control::Message&)>;
  explicit Agent(React its_way) : react(std::move(its_way)) {}
  void tell(control::Message message) {
    inbox.push_back(std::move(message));
    wake();
  }
  void hang_up() {
    gone = true;
    wake();
  }
  void wake() const {
    const std::uint64_t one = 1;
    cr_assert_eq(write(event.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  /// Messages of one type that the shim has sent.
  template <typename T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const control::Message& message : heard)
      if (const auto* one = std::get_if<T>(&message)) found.push_back(*one);
    return found;
  }

  React react;
  Descriptor event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::deque<control::Message> inbox;
  std::vector<control::Message> heard;
  bool gone = false, is_crowded = false;
};

class FakeClient final : public control::Client {
 public:
  explicit FakeClient(std::shared_ptr<Agent> agent) : agent_(std::move(agent)) {}
  int fd() const override { return agent_->event.get(); }
  std::string local_address() const override { return "127.0.0.1"; }
  Result<void> send(const control::Message& message) override {
    if (agent_->gone) return Error("the connection is closed");
    agent_->heard.push_back(message);
    agent_->react(*agent_, message);
    return {};
  }
  Result<std::optional<control::Message>> receive(std::chrono::milliseconds) override {
    if (!agent_->inbox.empty()) {
      control::Message first = std::move(agent_->inbox.front());
      agent_->inbox.pop_front();
      return std::optional(std::move(first));
    }
    if (agent_->gone) return Error("the connection is closed");
    std::uint64_t seen = 0;
    static_cast<void>(::read(agent_->event.get(), &seen, sizeof seen));
    return std::optional<control::Message>();
  }
  bool is_crowded_out() override { return agent_->is_crowded; }

 private:
  std::shared_ptr<Agent> agent_;
};

control::WorkerStart start(int generation, int restart_signal = SIGUSR1) {
  control::WorkerStart start;
  start.generation = generation;
  start.restart_signal = restart_signal;
  return start;
}

/// Runs a shim whose program is `sh -c SCRIPT`.
int run(const std::shared_ptr<Agent>& agent, const char* script, Shim::Options options = {}) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int each : {SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&handled, each);
  sigprocmask(SIG_BLOCK, &handled, nullptr);
  std::string words[] = {"sh", "-c", script};
  char* program[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  if (options.program == nullptr) options.program = program;
  Shim shim(std::move(options), std::make_unique<FakeClient>(agent),
            Descriptor(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)));
  return shim.run();
}

/// Starts a program at the first hello, and has no more to do at the second.
void start_once(Agent& agent, const control::Message& message, control::WorkerStart with) {
  if (!std::holds_alternative<control::WorkerHello>(message)) return;
  if (agent.all<control::WorkerHello>().size() == 1) agent.tell(std::move(with));
  else agent.hang_up();
}

}  // namespace

Test(shim, a_program_is_started_as_the_agent_says_and_its_exit_is_told) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    control::WorkerStart with = start(4);
    with.environment = {{"CODE", "3"}};
    start_once(self, message, with);
  });
  Shim::Options options;
  options.node = 2;
  options.local_rank = 1;
  const int status = run(agent, "exit $CODE", std::move(options));
  cr_assert(WIFEXITED(status));
  cr_assert_eq(WEXITSTATUS(status), 3, "as srun shall end");
  const auto hellos = agent->all<control::WorkerHello>();
  cr_assert_eq(hellos.at(0).group, 2);
  cr_assert_eq(hellos[0].local_rank, 1);
  cr_assert_neq(hellos[0].port, 0);
  cr_assert_eq(hellos.at(1).generation, 1, "programs that have ended");
  const auto exits = agent->all<control::WorkerExit>();
  cr_assert_eq(exits.size(), 1u);
  cr_assert_eq(exits[0].generation, 4);
  cr_assert_eq(exits[0].exit_code, 3);
}

Test(shim, a_signal_of_the_agent_reaches_the_program_and_the_step_ends_well) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    if (std::holds_alternative<control::WorkerHello>(message) && self.heard.size() == 1) {
      self.tell(start(0));
      self.tell(control::WorkerSignal{0, SIGTERM});
    } else if (std::holds_alternative<control::WorkerExit>(message)) {
      self.hang_up();
    }
  });
  cr_assert_eq(run(agent, "exec sleep 100"), 0);
  cr_assert_eq(agent->all<control::WorkerExit>().at(0).signal, SIGTERM);
}

Test(shim, a_signal_for_another_generation_leaves_the_program_alone) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    if (std::holds_alternative<control::WorkerHello>(message) && self.heard.size() == 1) {
      self.tell(start(1));
      self.tell(control::WorkerSignal{0, SIGTERM});
    } else if (std::holds_alternative<control::WorkerExit>(message)) {
      self.hang_up();
    }
  });
  run(agent, "sleep 0.2; exit 6");
  cr_assert_eq(agent->all<control::WorkerExit>().at(0).exit_code, 6);
}

Test(shim, the_restart_signal_waits_until_the_program_handles_it) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    if (std::holds_alternative<control::WorkerHello>(message) && self.heard.size() == 1) {
      self.tell(start(0));
      self.tell(control::WorkerSignal{0, SIGUSR1});
    } else if (std::holds_alternative<control::WorkerExit>(message)) {
      self.hang_up();
    }
  });
  run(agent, "sleep 0.2; trap 'exit 5' USR1; while :; do sleep 0.02; done");
  cr_assert_eq(agent->all<control::WorkerListens>().size(), 1u);
  const auto exits = agent->all<control::WorkerExit>();
  cr_assert_eq(exits.at(0).signal, 0, "before its handler was there, it would have killed it");
  cr_assert_eq(exits[0].exit_code, 5);
}

Test(shim, a_request_to_leave_that_is_withdrawn_in_time_never_comes) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    if (std::holds_alternative<control::WorkerHello>(message) && self.heard.size() == 1) {
      self.tell(start(0));
      self.tell(control::WorkerSignal{0, SIGUSR1});
      self.tell(control::WorkerSignal{0, control::WorkerSignal::kStay});
    } else if (std::holds_alternative<control::WorkerExit>(message)) {
      self.hang_up();
    }
  });
  run(agent,
      "sleep 0.1; trap 'exit 5' USR1; for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done; exit 8");
  cr_assert_eq(agent->all<control::WorkerListens>().size(), 1u);
  cr_assert_eq(agent->all<control::WorkerExit>().at(0).exit_code, 8);
}

Test(shim, a_program_that_cannot_be_started_counts_as_ended_and_the_next_may_come) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    if (!std::holds_alternative<control::WorkerHello>(message)) return;
    if (self.all<control::WorkerHello>().size() < 3) self.tell(start(0));
    else self.hang_up();
  });
  char name[] = "/no/such/program";
  char* program[] = {name, nullptr};
  Shim::Options options;
  options.program = program;
  run(agent, "", std::move(options));
  const auto exits = agent->all<control::WorkerExit>();
  cr_assert_eq(exits.size(), 2u);
  cr_assert(exits[0].exit_code == 126 || exits[0].exit_code == 127, "%d", exits[0].exit_code);
}

Test(shim, without_swellrun_the_program_is_told_to_end) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    if (std::holds_alternative<control::WorkerHello>(message)) self.tell(start(0, SIGTERM));
    else if (std::holds_alternative<control::WorkerListens>(message)) self.hang_up();
  });
  const int status = run(agent, "trap 'exit 7' TERM; while :; do sleep 0.02; done");
  cr_assert(WIFEXITED(status));
  cr_assert_eq(WEXITSTATUS(status), 7, "it had the time for its handler");
}

Test(shim, it_comes_back_to_an_agent_that_made_room_for_others) {
  const auto full = std::make_shared<Agent>([](Agent&, const control::Message&) {});
  full->gone = full->is_crowded = true;
  const auto agent = std::make_shared<Agent>(
      [](Agent& self, const control::Message& message) { start_once(self, message, start(0)); });
  int tries = 0;
  Shim::Options options;
  options.reconnect = [&]() -> Result<std::unique_ptr<control::Client>> {
    ++tries;
    return std::unique_ptr<control::Client>(std::make_unique<FakeClient>(tries < 3 ? full : agent));
  };
  const int status = run(full, "exit 9", std::move(options));
  cr_assert_eq(tries, 3);
  cr_assert_eq(WEXITSTATUS(status), 9);
}

Test(shim, a_signal_of_slurms_is_told_to_the_agent) {
  const auto agent = std::make_shared<Agent>([](Agent& self, const control::Message& message) {
    if (std::holds_alternative<control::WorkerHello>(message)) kill(getpid(), SIGUSR2);
    else if (std::holds_alternative<control::WorkerNotice>(message)) self.hang_up();
  });
  run(agent, "");
  cr_assert_eq(agent->all<control::WorkerNotice>().at(0).signal, SIGUSR2);
}
