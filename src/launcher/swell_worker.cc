// SPDX-License-Identifier: GPL-2.0-or-later
// swell-worker: the task of a step (launcher::Shim). Users do not call it.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "control/client.h"
#include "control/printable.h"
#include "control/socket.h"
#include "core/compute_mode.h"
#include "launcher/container.h"
#include "launcher/file_limit.h"
#include "launcher/shim.h"
#include "launcher/signals.h"
#include "launcher/spooled_input.h"
#include "launcher/standard_files.h"
#include "launcher/step_fit.h"

namespace {

using namespace swell;
using namespace std::chrono_literals;
using control::Client;
using Clock = std::chrono::steady_clock;

constexpr auto kConnectTime = 20s;
/// Time that the driver has to tell the GPUs' compute modes; after that the default mode is
/// assumed.
constexpr double kModes_s = 20;
constexpr double kInput_s = 30;  // for srun to forward all of standard input

struct Arguments {
  std::string host, nodes, munge_socket, network = "auto";
  int port = 0;
  int workers = 0, gpus = 0;  ///< on each of `nodes`; 0 GPUs: their number is not checked
  bool keeps_input = false, live = false;
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
    } else if (name == "--workers") {
      arguments.workers = number(value.c_str());
    } else if (name == "--gpus") {
      arguments.gpus = number(value.c_str());
    } else if (name == "--munge-socket") {
      arguments.munge_socket = value;
    } else if (name == "--switch-network") {
      arguments.network = value;
    } else if (name == "--input") {
      arguments.keeps_input = value == "kept";
    } else if (name == "--live") {
      arguments.live = value == "yes";
    }
  }
  if (i + 1 >= argc || arguments.port == 0) return std::nullopt;
  arguments.program = argv + i + 1;
  return arguments;
}

/// Returns the node's number in "node1=0,node2=3"; -1 if the node is not in it.
int number_of(const std::string& nodes, const std::string& node) {
  const std::string list = "," + nodes, key = "," + node + "=";
  const auto at = list.find(key);
  return at == std::string::npos
             ? -1
             : number(
                   list.substr(at + key.size(), list.find(',', at + 1) - at - key.size()).c_str());
}

/// Returns the first number in such a list.
int first_of(const std::string& nodes) { return number(nodes.c_str() + nodes.find('=') + 1); }

/// Ends as the program did, so that Slurm reports of the task what it would report of the program.
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
        {.host = arguments.host,
         .port = static_cast<std::uint16_t>(arguments.port),
         .munge_socket = arguments.munge_socket,
         .trust = [own = launcher::own_outside_uid()](uid_t uid) { return uid == own; }},
        10s);
    if (client || Clock::now() > deadline) return client;
    std::this_thread::sleep_for(200ms);
  }
}

}  // namespace

int main(int argc, char** argv) {
  launcher::open_standard_files();
  const auto arguments = read_arguments(argc, argv);
  if (!arguments) {
    std::fputs("swell-worker is started by swellrun; see man swellrun\n", stderr);
    return 2;
  }
  try {
    launcher::raise_file_limit();  // programs are started with the limit that was found
    sigset_t handled;
    sigemptyset(&handled);
    for (const int each :
         {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, launcher::kQuietSignal})
      sigaddset(&handled, each);
    sigprocmask(SIG_BLOCK, &handled, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGCHLD, SIG_DFL);  // if ignored, the program's end could not be waited for
    Descriptor signals(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const char* node = std::getenv("SLURMD_NODENAME");
    // Before it connects: the agent drops a worker that says nothing for 10 s.
    std::optional<launcher::SpooledInput> input;
    if (arguments->keeps_input) {
      auto read = launcher::SpooledInput::read_from(STDIN_FILENO, kInput_s);
      if (!read) {
        std::fprintf(stderr, "swell-worker: %s\n",
                     control::printable(read.error().message()).c_str());
        return 1;
      }
      input = std::move(*read);
    }
    const char* const local = std::getenv("SLURM_LOCALID");
    const int local_rank = number(local);
    std::string one_program;
    if (arguments->live && local_rank == 0) {
      const char* gpus = std::getenv("SLURM_STEP_GPUS");
      one_program =
          one_program_text(one_program_gpus_within(kModes_s, gpus != nullptr ? gpus : ""));
    }
    auto client = connect(*arguments);
    if (!client) {
      std::fprintf(stderr, "swell-worker: %s\n",
                   control::printable(client.error().message()).c_str());
      return 1;
    }
    const std::string name = node != nullptr ? node : host;
    const int known = number_of(arguments->nodes, name);
    const char* tasks = std::getenv("SLURM_STEP_TASKS_PER_NODE");
    const auto nodes = std::count(arguments->nodes.begin(), arguments->nodes.end(), '=');
    std::string misfit = launcher::step_misfit(static_cast<int>(nodes), arguments->workers,
                                               tasks != nullptr ? tasks : "", name, known >= 0);
    if (misfit.empty()) misfit = launcher::local_id_misfit(arguments->workers, local, name);
    if (misfit.empty()) {
      const char* on_node = std::getenv("SLURM_GPUS_ON_NODE");
      const bool sees_any = std::getenv("SLURM_STEP_GPUS") != nullptr ||
                            std::getenv("CUDA_VISIBLE_DEVICES") != nullptr ||
                            std::getenv("ROCR_VISIBLE_DEVICES") != nullptr;
      misfit =
          launcher::gpus_misfit(arguments->gpus, on_node != nullptr ? on_node : "", sees_any, name);
    }
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
        visible != nullptr && local_rank == 0)
      if (const std::string note = launcher::mig_note(arguments->workers, visible, name);
          !note.empty())
        std::fprintf(stderr, "swell-worker: %s\n", control::printable(note).c_str());
    launcher::Shim shim(
        {arguments->program, arguments->network, known >= 0 ? known : first_of(arguments->nodes),
         local_rank, std::move(input), std::move(one_program), std::move(misfit),
         [&arguments] { return connect(*arguments); }},
        std::move(*client), std::move(signals));
    end_like(shim.run());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "swell-worker: %s\n", control::printable(e.what()).c_str());
    return 1;
  }
}
