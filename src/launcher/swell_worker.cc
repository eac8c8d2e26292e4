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
#include <map>
#include <mutex>
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
#include "control/wake_fd.h"
#include "launcher/profile_book.h"
#include "launcher/program.h"
#include "launcher/program_socket.h"
#include "launcher/runtime_host.h"
#include "launcher/signals.h"

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
  std::string host, nodes, munge_socket, network = "auto";
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
    } else if (name == "--nodes") {
      arguments.nodes = value;
    } else if (name == "--munge-socket") {
      arguments.munge_socket = value;
    } else if (name == "--switch-network") {
      arguments.network = value;
    }
  }
  if (i + 1 >= argc || arguments.port == 0) return std::nullopt;
  arguments.program = argv + i + 1;
  return arguments;
}

/// The node's number in "node1=0,node2=3"; -1 where the node is not in it.
int number_of(const std::string& nodes, const std::string& node) {
  const std::string list = "," + nodes, key = "," + node + "=";
  const auto at = list.find(key);
  return at == std::string::npos
             ? -1
             : number(
                   list.substr(at + key.size(), list.find(',', at + 1) - at - key.size()).c_str());
}

class Worker {
 public:
  Worker(const Arguments& arguments, std::unique_ptr<Client> client, int node, int local,
         control::Fd signals)
      : arguments_(arguments),
        client_(std::move(client)),
        node_(node),
        local_(local),
        signals_(std::move(signals)) {}

  /// The shim's wait status: how the program ended.
  int run() {
    if (auto made = launcher::ProgramSocket::open()) said_ = std::move(*made);
    else std::fprintf(stderr, "swell-worker: %s\n", made.error().message().c_str());
    bool good = hello();
    while (good) {
      pollfd polled[] = {{client_->fd(), POLLIN, 0},
                         {signals_.get(), POLLIN, 0},
                         {reported_.wake.fd(), POLLIN, 0},
                         {said_ ? said_->fd() : -1, POLLIN, 0}};
      poll(polled, 4, looks_in_ms());
      if (polled[1].revents != 0) good = take_signals();
      if (good && polled[0].revents != 0) good = take_messages();
      if (good && polled[2].revents != 0) good = pass_reports();
      // What it can run with is heard before a handler that it installed afterwards is seen.
      if (good) good = pass_sizes();
      if (good) good = look();
    }
    if (!runs_.empty()) end_programs();
    runtime_.reset();  // and its folder: what comes after does not return
    return asked_to_leave_ ? 0 : status_;
  }

 private:
  /// The program of one epoch. During a live switch there are two.
  struct Run {
    launcher::Program program;
    int restart_signal = 0;
    bool listens = false;       ///< it handles the restart signal
    bool keeps_signal = false;  ///< that came before it did
    std::chrono::milliseconds pause = kFirstLook;
    Clock::time_point next_look = Clock::now() + kFirstLook;
  };

  bool hello() {
    control::WorkerHello message;
    message.epoch = ended_;
    message.group = node_;
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
      } else if (const auto* signal = std::get_if<control::WorkerSignal>(&**message)) {
        if (!pass_reports()) return false;  // who is of which epoch by now
        if (staying_ && signal->epoch == *staying_) {
          if (!withdraw_staying(signal->signal)) return false;
          continue;
        }
        asked_to_leave_ = true;
        for (auto& [epoch, one] : runs_)
          if (signal->epoch < 0 || signal->epoch == epoch) signal_program(one, signal->signal);
      }
    }
  }

  void signal_program(Run& one, int signal) {
    if (signal != one.restart_signal || one.listens) return one.program.signal(signal);
    // Before its handler is there, the signal would kill the program. One that trains with the
    // runtime is told by swell_step().
    if (runtime_ == nullptr || !runtime_->ask_to_stop()) one.keeps_signal = true;
  }

  int looks_in_ms() const {
    std::optional<Clock::time_point> next;
    for (const auto& [epoch, one] : runs_)
      if (!one.listens && one.restart_signal != 0 && (!next || one.next_look < *next))
        next = one.next_look;
    if (!next) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }

  /// Tells once of each program when it handles the restart signal, and gives it one that was kept
  /// back.
  bool look() {
    for (auto& [epoch, one] : runs_) {
      if (one.listens || one.restart_signal == 0 || Clock::now() < one.next_look) continue;
      one.listens = one.program.listens_to(one.restart_signal);
      one.pause = std::min(std::chrono::milliseconds(kLastLook), one.pause + one.pause / 4);
      one.next_look = Clock::now() + one.pause;
      if (!one.listens) continue;
      if (std::exchange(one.keeps_signal, false)) one.program.signal(one.restart_signal);
      if (!client_->send(control::WorkerListens{epoch})) return false;
    }
    return true;
  }

  bool start_program(const control::WorkerStart& start) {
    auto environment = start.environment;
    if (!start.key.empty() && !offer_runtime(start, environment)) return false;
    if (said_) environment.emplace_back("SWELL_SHIM", said_->name());
    asked_to_leave_ = false;
    status_ = 0;
    port_ = control::Fd();
    if (runtime_ != nullptr && runtime_->offer_next(static_cast<std::uint64_t>(start.epoch) + 1,
                                                    environment, start.none_is_new)) {
      staying_ = start.epoch;
      return hello();
    }
    Run& one = runs_[start.epoch];
    one = Run();
    one.restart_signal = start.restart_signal;
    if (one.program.start(arguments_.program, environment))
      // In live mode another program may start while this one runs: it needs a port of its own.
      return start.key.empty() || hello();
    runs_.erase(start.epoch);
    return client_->send(control::WorkerExit{start.epoch, 126, 0}).ok() && hello();
  }

  /// The keeper listens before the program starts; where there can be none, the agent hears why.
  bool offer_runtime(const control::WorkerStart& start,
                     std::vector<std::pair<std::string, std::string>>& environment) {
    control::WorkerRuntime message;
    if (runtime_ == nullptr) {
      const char* node = std::getenv("SLURMD_NODENAME");
      auto made = launcher::RuntimeHost::start(
          {"", client_->local_address(), node != nullptr ? node : "", start.key, arguments_.network,
           start.ports,
           [this](std::uint64_t epoch, std::string profile) {
             std::lock_guard lock(reported_.mutex);
             reported_.profiles.emplace_back(epoch, std::move(profile));
             reported_.wake.signal();
           },
           [this](std::uint64_t epoch, pid_t) {
             std::lock_guard lock(reported_.mutex);
             reported_.adopted.push_back(epoch);
             reported_.wake.signal();
           }});
      if (made) runtime_ = std::move(*made);
      else message.problem = made.error().message();
    }
    if (runtime_ != nullptr) {
      message.socket = runtime_->unix_socket();
      message.address = runtime_->tcp_address();
      environment.emplace_back("SWELL_RUNTIME", message.socket);
    }
    return client_->send(message).ok();
  }

  /// Tells the agent what programs have reported. The runtime's epochs begin with 1.
  bool pass_reports() {
    reported_.wake.clear();
    std::vector<std::pair<std::uint64_t, std::string>> profiles;
    std::vector<std::uint64_t> adopted;
    {
      std::lock_guard lock(reported_.mutex);
      profiles.swap(reported_.profiles);
      adopted.swap(reported_.adopted);
    }
    for (const std::uint64_t epoch : adopted)
      if (!take_over(static_cast<int>(epoch) - 1)) return false;
    for (const auto& [epoch, profile] : profiles)
      if (!client_->send(
              control::WorkerProfile{static_cast<int>(epoch) - 1, launcher::hex_digits(profile)}))
        return false;
    return true;
  }

  /// A program trains `epoch` from now on. Where one stays, it was the epoch's before: to the
  /// agent, that one's has ended. The process that trains may be a descendant of the one that was
  /// started.
  bool take_over(int epoch) {
    const auto its = runs_.find(std::exchange(trains_, epoch));
    if (staying_ != epoch) return true;
    staying_.reset();
    if (its == runs_.end()) return true;
    auto run = runs_.extract(its);
    const int before = std::exchange(run.key(), epoch);
    const bool listens = run.mapped().listens;
    runs_.insert(std::move(run));
    ++ended_;
    return client_->send(control::WorkerExit{before, 0, 0}).ok() && hello() &&
           (!listens || client_->send(control::WorkerListens{epoch}).ok());
  }

  /// The epoch that it was to stay for does not come.
  bool withdraw_staying(int signal) {
    const int epoch = *std::exchange(staying_, std::nullopt);
    runtime_->withdraw_next();
    return client_->send(control::WorkerExit{epoch, 0, signal}).ok() && hello();
  }

  bool pass_sizes() {
    const auto sizes = said_ ? said_->take_sizes() : std::nullopt;
    return !sizes || client_->send(control::WorkerSizes{*sizes}).ok();
  }

  /// The pid of a program that is not this epoch's; 0: there is none.
  pid_t beside(int epoch) const {
    for (const auto& [other, one] : runs_)
      if (other != epoch && one.program.runs()) return one.program.pid();
    return 0;
  }

  bool reap() {
    for (auto each = runs_.begin(); each != runs_.end();) {
      const int epoch = each->first;
      const std::optional<int> status = each->second.program.reap(beside(epoch));
      if (!status) {
        ++each;
        continue;
      }
      // Of both epochs, then.
      if (staying_ && !withdraw_staying(WIFSIGNALED(*status) ? WTERMSIG(*status) : SIGKILL))
        return false;
      each = runs_.erase(each);
      status_ = *status;
      ++ended_;
      control::WorkerExit exit;
      exit.epoch = epoch;
      if (WIFSIGNALED(*status)) exit.signal = WTERMSIG(*status);
      else exit.exit_code = WEXITSTATUS(*status);
      if (!client_->send(exit) || !hello()) return false;
    }
    return true;
  }

  void end_programs() {
    for (auto& [epoch, one] : runs_) one.program.signal(SIGTERM);
    const auto deadline = Clock::now() + kEndTime;
    for (bool killed = false; !runs_.empty();) {
      for (auto each = runs_.begin(); each != runs_.end();) {
        const auto status = each->second.program.reap(beside(each->first));
        if (status) status_ = *status;
        each = status ? runs_.erase(each) : std::next(each);
      }
      if (runs_.empty()) return;
      if (!killed && Clock::now() > deadline) {
        for (auto& [epoch, one] : runs_) one.program.signal(SIGKILL);
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
  const int node_, local_;
  control::Fd signals_;
  control::Fd port_;
  /// What the keeper's threads leave for this one. Outlives them.
  struct Reported {
    std::mutex mutex;
    std::vector<std::pair<std::uint64_t, std::string>> profiles;
    std::vector<std::uint64_t> adopted;
    control::WakeFd wake;
  } reported_;
  std::unique_ptr<launcher::RuntimeHost> runtime_;  ///< live mode, from the first start on
  std::optional<launcher::ProgramSocket> said_;
  std::map<int, Run> runs_;  ///< by epoch
  /// The epoch that the running program has been asked to stay for.
  std::optional<int> staying_;
  int trains_ = -1;  ///< the epoch that was taken over last
  int status_ = 0;
  int ended_ = 0;  ///< programs
  bool asked_to_leave_ = false;
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
    for (const int each :
         {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, launcher::kQuietSignal})
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
                  number_of(arguments->nodes, node != nullptr ? node : host),
                  number(std::getenv("SLURM_LOCALID")), std::move(signals));
    end_like(worker.run());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "swell-worker: %s\n", e.what());
    return 1;
  }
}
