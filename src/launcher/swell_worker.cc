// SPDX-License-Identifier: GPL-2.0-or-later
// swell-worker: the task of a step. Starts the program when swellrun says so, and again; stays
// behind when the program leaves; ends it when swellrun is gone. Not for people.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "control/client.h"
#include "control/socket.h"
#include "launcher/program.h"

namespace {

using namespace swell;
using namespace std::chrono_literals;
using control::Client;
using Clock = std::chrono::steady_clock;

constexpr auto kConnectTime = 20s;
// How often it is looked whether the program handles the restart signal, at first and later.
constexpr auto kFirstLook = 20ms;
constexpr auto kLastLook = 1000ms;
constexpr auto kEndTime = 5s;  // between TERM and KILL when swellrun is gone

struct Arguments {
  std::string host, places, munge_socket;
  int port = 0;
  char** program = nullptr;
};

int number(const char* text) {
  int value = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
  return value;
}

std::optional<Arguments> read_arguments(int argc, char** argv) {
  Arguments arguments;
  int i = 1;
  for (; i + 1 < argc && std::strcmp(argv[i], "--") != 0; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--agent") {
      arguments.host = value.substr(0, value.rfind(':'));
      arguments.port = number(value.c_str() + value.rfind(':') + 1);
    } else if (name == "--places") {
      arguments.places = value;
    } else if (name == "--munge-socket") {
      arguments.munge_socket = value;
    }
  }
  if (i + 1 >= argc || arguments.port == 0) return std::nullopt;
  arguments.program = argv + i + 1;
  return arguments;
}

/// The place's number in "node1=0,node2=3"; -1 where the node is not in it.
int place_of(const std::string& places, const std::string& node) {
  const std::string list = "," + places, key = "," + node + "=";
  const auto at = list.find(key);
  return at == std::string::npos
             ? -1
             : number(
                   list.substr(at + key.size(), list.find(',', at + 1) - at - key.size()).c_str());
}

class Worker {
 public:
  Worker(const Arguments& arguments, std::unique_ptr<Client> client, int place, int local,
         control::Fd signals)
      : arguments_(arguments),
        client_(std::move(client)),
        place_(place),
        local_(local),
        signals_(std::move(signals)) {}

  /// The shim's wait status: how the program ended.
  int run() {
    bool good = hello();
    while (good) {
      pollfd polled[] = {{client_->fd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
      poll(polled, 2, looks_in_ms());
      if (polled[1].revents != 0) good = take_signals();
      if (good && polled[0].revents != 0) good = take_messages();
      if (good) good = look();
    }
    if (program_.runs()) end_program();
    return asked_to_leave_ ? 0 : status_;
  }

 private:
  bool hello() {
    control::WorkerHello message;
    message.epoch = epoch_;
    message.group = place_;
    message.local_rank = local_;
    message.host = client_->local_address();
    message.step = static_cast<control::JobId>(number(std::getenv("SLURM_STEP_ID")));
    // Kept until the program starts, so that nobody else is given the port meanwhile.
    Result<control::Fd> port = control::listen_on(message.host, 0);
    if (port) {
      port_ = std::move(*port);
      message.port = control::local_port(port_.get());
    }
    return client_->send(message).ok();
  }

  bool take_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) {
        if (!reap()) return false;
      } else if (!client_->send(control::WorkerNotice{static_cast<int>(info.ssi_signo)})) {
        return false;
      }
    }
    return true;
  }

  bool take_messages() {
    for (;;) {
      const auto message = client_->receive(0ms);
      if (!message) return false;
      if (!*message) return true;
      if (const auto* start = std::get_if<control::WorkerStart>(&**message)) {
        if (!start_program(*start)) return false;
      } else if (const auto* signal = std::get_if<control::WorkerSignal>(&**message);
                 signal != nullptr) {
        asked_to_leave_ = true;
        // Before its handler is there, the signal would kill the program.
        if (signal->signal == restart_signal_ && !listens_) keeps_signal_ = true;
        else program_.signal(signal->signal);
      }
    }
  }

  int looks_in_ms() const {
    if (!program_.runs() || listens_ || restart_signal_ == 0) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_look_ - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }

  /// Tells once when the program handles the restart signal, and gives it one that was kept back.
  bool look() {
    if (!program_.runs() || listens_ || restart_signal_ == 0 || Clock::now() < next_look_)
      return true;
    listens_ = program_.listens_to(restart_signal_);
    pause_ = std::min(std::chrono::milliseconds(kLastLook), pause_ + pause_ / 4);
    next_look_ = Clock::now() + pause_;
    if (!listens_) return true;
    if (std::exchange(keeps_signal_, false)) program_.signal(restart_signal_);
    return client_->send(control::WorkerListens{}).ok();
  }

  bool start_program(const control::WorkerStart& start) {
    asked_to_leave_ = listens_ = keeps_signal_ = false;
    restart_signal_ = start.restart_signal;
    pause_ = kFirstLook;
    next_look_ = Clock::now() + pause_;
    status_ = 0;
    port_ = control::Fd();
    if (program_.start(arguments_.program, start.environment)) return true;
    control::WorkerExit failed;
    failed.exit_code = 126;
    return client_->send(failed).ok() && hello();
  }

  bool reap() {
    const std::optional<int> status = program_.reap();
    if (!status) return true;
    status_ = *status;
    ++epoch_;
    control::WorkerExit exit;
    if (WIFSIGNALED(*status)) exit.signal = WTERMSIG(*status);
    else exit.exit_code = WEXITSTATUS(*status);
    return client_->send(exit).ok() && hello();
  }

  void end_program() {
    program_.signal(SIGTERM);
    const auto deadline = Clock::now() + kEndTime;
    for (bool killed = false;;) {
      if (const auto status = program_.reap()) {
        status_ = *status;
        return;
      }
      if (!killed && Clock::now() > deadline) {
        program_.signal(SIGKILL);
        killed = true;
      }
      pollfd polled{signals_.get(), POLLIN, 0};
      poll(&polled, 1, 100);
      signalfd_siginfo info;
      while (read(signals_.get(), &info, sizeof info) == sizeof info) continue;
    }
  }

  const Arguments& arguments_;
  std::unique_ptr<Client> client_;
  const int place_, local_;
  control::Fd signals_;
  control::Fd port_;
  launcher::Program program_;
  int status_ = 0;
  int epoch_ = 0;
  bool asked_to_leave_ = false;
  int restart_signal_ = 0;
  bool listens_ = false;       // the program handles it
  bool keeps_signal_ = false;  // it came before that
  std::chrono::milliseconds pause_ = kFirstLook;
  Clock::time_point next_look_;
};

/// Ends as the program did, so that Slurm says of the task what it would say of the program.
[[noreturn]] void end_like(int status) {
  if (WIFSIGNALED(status)) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const int number = WTERMSIG(status);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    std::signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, nullptr);
    _exit(128 + number);
  }
  _exit(WEXITSTATUS(status));
}

Result<std::unique_ptr<Client>> connect(const Arguments& arguments) {
  const auto deadline = Clock::now() + kConnectTime;
  for (;;) {
    auto client = Client::connect(
        {arguments.host, static_cast<std::uint16_t>(arguments.port), arguments.munge_socket,
         [own = geteuid()](uid_t uid) { return uid == own; }},
        10s);
    if (client || Clock::now() > deadline) return client;
    std::this_thread::sleep_for(200ms);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = read_arguments(argc, argv);
  if (!arguments) {
    std::fputs("swell-worker is started by swellrun; see man swellrun\n", stderr);
    return 2;
  }
  try {
    sigset_t handled;
    sigemptyset(&handled);
    for (const int each : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
      sigaddset(&handled, each);
    sigprocmask(SIG_BLOCK, &handled, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    control::Fd signals(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const char* node = std::getenv("SLURMD_NODENAME");
    auto client = connect(*arguments);
    if (!client) {
      std::fprintf(stderr, "swell-worker: %s\n", client.error().message().c_str());
      return 1;
    }
    Worker worker(*arguments, std::move(*client),
                  place_of(arguments->places, node != nullptr ? node : host),
                  number(std::getenv("SLURM_LOCALID")), std::move(signals));
    end_like(worker.run());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "swell-worker: %s\n", e.what());
    return 1;
  }
}
