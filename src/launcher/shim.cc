// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/shim.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/mutex.h"
#include "control/printable.h"
#include "core/compute_mode.h"
#include "launcher/inner_launcher.h"
#include "launcher/profile_book.h"

namespace swell::launcher {

namespace {

using namespace std::chrono_literals;

constexpr auto kLastLook = 1000ms;      // interval of later looks for a handler
constexpr auto kEndTime = 5s;           // between TERM and KILL when swellrun is gone
constexpr auto kSettles = 60s;          // most launchers within a program start workers by then
constexpr auto kLaterLook = 10s;        // between two looks for such a launcher after that
constexpr auto kStepsPause = 1000ms;    // between two looks at the number of steps
constexpr auto kStepsAgain = 5s;        // an unchanged number is sent again, as a sign of life
constexpr auto kComeBackTime = 20s;     // to reach an agent that strangers keep busy
constexpr auto kComeBackPause = 20ms;   // before each attempt
constexpr auto kSignalFollows = 250ms;  // Slurm's signal may reach the shim this late

/// Returns whether the programs of this generation meet at this port: this worker then has rank
/// 0.
bool is_master_port(const std::vector<std::pair<std::string, std::string>>& environment,
                    const HeldPort& port) {
  const auto value = [&](const std::string& name) -> std::string {
    for (const auto& [each, text] : environment)
      if (each == name) return text;
    return "";
  };
  return value("RANK") == "0" && value("MASTER_PORT") == std::to_string(port.number());
}

/// Returns Slurm's number of this step.
control::JobId own_step() {
  const char* text = std::getenv("SLURM_STEP_ID");
  return text != nullptr ? static_cast<control::JobId>(std::strtoul(text, nullptr, 10)) : 0;
}

}  // namespace

int Shim::run() {
  if (auto made = ProgramSocket::open()) said_ = std::move(*made);
  else
    std::fprintf(stderr, "swell-worker: %s\n", control::printable(made.error().message()).c_str());
  if (auto made = LeaveFile::make()) leave_file_.emplace(std::move(*made));
  else
    std::fprintf(stderr, "swell-worker: no SWELL_LEAVING_FILE: %s\n",
                 control::printable(made.error().message()).c_str());
  bool good = hello() || come_back();
  while (good) {
    pollfd polled[] = {{client_->fd(), POLLIN, 0},
                       {signals_.get(), POLLIN, 0},
                       {reported_.wake.fd(), POLLIN, 0},
                       {said_ ? said_->fd() : -1, POLLIN, 0}};
    poll(polled, 4, looks_in_ms());
    if (polled[1].revents != 0) good = take_signals();
    if (good && polled[0].revents != 0) good = take_messages() || come_back();
    if (good && polled[2].revents != 0) good = pass_reports();
    // Reports sizes before the handler, which the program installs after it has sent its sizes.
    if (good) good = pass_sizes();
    if (good) good = report_steps();
    if (good) good = look();
  }
  if (!runs_.empty()) end_programs();
  runtime_.reset();  // with its folder: the process ends without destructors
  leave_file_.reset();
  return asked_to_leave_ ? 0 : status_;
}

bool Shim::hello() {
  control::WorkerHello message;
  message.generation = ended_;
  message.group = options_.node;
  message.local_rank = options_.local_rank;
  message.host = client_->local_address();
  message.step = own_step();
  message.build = control::build();
  message.one_program = options_.one_program;
  message.misfit = options_.misfit;
  // Held until the program has ended, so that nobody else is given the port before it listens.
  if (port_.number() == 0) {
    if (auto port = HeldPort::take()) port_ = std::move(*port);
    else std::fprintf(stderr, "swell-worker: %s\n", port.error().message().c_str());
  }
  message.port = port_.number();
  return client_->send(message).ok();
}

bool Shim::come_back() {
  const auto deadline = Clock::now() + kComeBackTime;
  while (!is_known_ && options_.reconnect && client_->is_crowded_out() && Clock::now() < deadline) {
    std::this_thread::sleep_for(kComeBackPause);
    auto client = options_.reconnect();
    if (!client) return false;
    client_ = std::move(*client);
    if (hello()) return true;
  }
  return false;
}

bool Shim::take_signals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info)
    if (!(info.ssi_signo == SIGCHLD ? reap() : notice(static_cast<int>(info.ssi_signo))))
      return false;
  return true;
}

/// Tells the agent of a signal from Slurm, which sends it to the program, too.
bool Shim::notice(int signal) {
  for (auto& [generation, one] : runs_) {
    if (signal != one.restart_signal) continue;
    one.heard_signal = true;
    if (leave_file_) leave_file_->set(generation, true);
  }
  return client_->send(control::WorkerNotice{signal}).ok();
}

/// Waits briefly for a restart signal from Slurm, which signals one process after the other: the
/// program may have left for it already, and its exit would count as the end of training.
bool Shim::hear_late_signal(const Run& one) {
  const auto deadline = Clock::now() + kSignalFollows;
  signalfd_siginfo info;
  while (!one.heard_signal && Clock::now() < deadline) {
    pollfd polled{signals_.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    // `left` is below 0 if this process was stopped since the loop's check; poll() would then wait
    // without a limit.
    poll(&polled, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    // SIGCHLD is dropped here: reap(), the caller, looks at all programs anyway.
    while (read(signals_.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD && !notice(static_cast<int>(info.ssi_signo))) return false;
  }
  return true;
}

bool Shim::take_messages() {
  for (;;) {
    const auto message = client_->receive(0ms);
    if (!message) return false;
    if (!*message) return true;
    is_known_ = true;
    if (const auto* start = std::get_if<control::WorkerStart>(&**message)) {
      if (!start_program(*start)) return false;
    } else if (const auto* signal = std::get_if<control::WorkerSignal>(&**message)) {
      if (!pass_reports()) return false;  // tells which program is of which generation
      if (staying_ && signal->generation == *staying_) {
        if (!withdraw_staying(signal->signal)) return false;
        continue;
      }
      asked_to_leave_ = signal->signal != control::WorkerSignal::kStay;
      for (auto& [generation, one] : runs_) {
        if (signal->generation >= 0 && signal->generation != generation) continue;
        const bool is_request = signal->signal == one.restart_signal;
        if (leave_file_ && (is_request || !asked_to_leave_))
          leave_file_->set(generation, is_request);
        if (asked_to_leave_) signal_program(one, signal->signal);
        else one.keeps_signal = false;
      }
    }
  }
}

void Shim::signal_program(Run& one, int signal) {
  if (signal != one.restart_signal || one.listens) return one.program.signal(signal);
  // Before its handler is there, the signal would kill the program. A program that trains with the
  // runtime is told by swell_step().
  if (runtime_ == nullptr || !runtime_->ask_to_stop()) one.keeps_signal = true;
}

int Shim::looks_in_ms() const {
  std::optional<Clock::time_point> next;
  for (const auto& [generation, one] : runs_)
    if (!one.listens && one.restart_signal != 0 && (!next || one.next_look < *next))
      next = one.next_look;
  for (const auto& [generation, one] : runs_)
    if (!one.given.empty() && (!next || one.next_inner_look < *next)) next = one.next_inner_look;
  if (reports_steps() && (!next || steps_.next_look < *next)) next = steps_.next_look;
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

bool Shim::look() {
  for (auto& [generation, one] : runs_) {
    // First, since GPUs are lent as soon as the handler is reported.
    if (!look_within(generation, one)) return false;
    if (one.listens || one.restart_signal == 0 || Clock::now() < one.next_look) continue;
    one.listens = one.program.listens_to(one.restart_signal);
    one.pause = std::min(std::chrono::milliseconds(kLastLook), one.pause + one.pause / 4);
    one.next_look = Clock::now() + one.pause;
    if (!one.listens) continue;
    if (std::exchange(one.keeps_signal, false)) one.program.signal(one.restart_signal);
    if (!client_->send(control::WorkerListens{generation})) return false;
  }
  return true;
}

bool Shim::look_within(int generation, Run& one) {
  const auto now = Clock::now();
  if (one.given.empty() || !one.program.runs() || now < one.next_inner_look) return true;
  auto found = inner_worker(one.program.pid(), one.given, one.restart_signal);
  const bool has_ranks = found.has_value();
  if (!found) found = worker_without_rank(one.program.pid(), one.restart_signal);
  if (found) one.given.clear();
  one.next_inner_look =
      now + (now < one.since + kSettles ? std::min(kLastLook, one.pause) : kLaterLook);
  return !found || client_->send(control::WorkerLaunches{generation, *found, !has_ranks}).ok();
}

bool Shim::start_program(const control::WorkerStart& start) {
  auto environment = start.environment;
  if (!start.key.empty() && !offer_runtime(start, environment)) return false;
  if (said_) {
    environment.emplace_back("SWELL_SHIM", said_->name());
    environment.emplace_back("SWELL_SHIM_KEY", said_->key());
  }
  if (leave_file_)
    environment.emplace_back("SWELL_LEAVING_FILE", leave_file_->path(start.generation));
  asked_to_leave_ = false;
  status_ = 0;
  steps_ = Steps();
  HeldPort port = std::exchange(port_, HeldPort());
  if (!is_master_port(environment, port)) port = HeldPort();
  if (runtime_ != nullptr && runtime_->offer_next(static_cast<std::uint64_t>(start.generation) + 1,
                                                  environment, start.none_is_new)) {
    staying_ = start.generation;
    staying_port_ = std::move(port);
    return hello();
  }
  Run& one = runs_[start.generation];
  one = Run();
  one.port = std::move(port);
  one.restart_signal = start.restart_signal;
  one.given = environment;
  if (one.program.start(options_.program, environment, options_.input ? &*options_.input : nullptr))
    // In live mode another program may start while this one runs: it needs a port of its own.
    return start.key.empty() || hello();
  runs_.erase(start.generation);
  return client_->send(control::WorkerExit{start.generation, 126, 0}).ok() && hello();
}

bool Shim::offer_runtime(const control::WorkerStart& start,
                         std::vector<std::pair<std::string, std::string>>& environment) {
  control::WorkerRuntime message;
  if (runtime_ == nullptr) {
    const char* node = std::getenv("SLURMD_NODENAME");
    auto made =
        RuntimeHost::start({"", client_->local_address(), node != nullptr ? node : "", start.key,
                            options_.network, start.ports,
                            [this](std::uint64_t generation, std::string profile) {
                              Lock lock(reported_.mutex);
                              reported_.profiles.emplace_back(generation, std::move(profile));
                              reported_.wake.signal();
                            },
                            [this](std::uint64_t generation, pid_t) {
                              Lock lock(reported_.mutex);
                              reported_.adopted.push_back(generation);
                              reported_.wake.signal();
                            }});
    if (made) runtime_ = std::move(*made);
    else message.problem = made.error().message();
  }
  if (runtime_ != nullptr) {
    message.socket = runtime_->unix_socket();
    message.address = runtime_->tcp_address();
    environment.emplace_back("SWELL_RUNTIME", message.socket);
    // For clients without a library of their own, if the loader does not look in this prefix.
    if (const char* library = SWELL_LIBDIR "/libswell.so.1"; access(library, R_OK) == 0)
      environment.emplace_back("SWELL_SITE_LIBRARY", library);
  }
  return client_->send(message).ok();
}

bool Shim::pass_reports() {
  reported_.wake.clear();
  std::vector<std::pair<std::uint64_t, std::string>> profiles;
  std::vector<std::uint64_t> adopted;
  {
    Lock lock(reported_.mutex);
    profiles.swap(reported_.profiles);
    adopted.swap(reported_.adopted);
  }
  for (const std::uint64_t generation : adopted)
    if (!take_over(static_cast<int>(generation) - 1)) return false;
  for (const auto& [generation, profile] : profiles)
    if (!client_->send(
            control::WorkerProfile{static_cast<int>(generation) - 1, hex_digits(profile)}))
      return false;
  return true;
}

bool Shim::take_over(int generation) {
  const auto its = runs_.find(std::exchange(trains_, generation));
  if (staying_ != generation) return true;
  staying_.reset();
  if (its == runs_.end()) return true;
  auto run = runs_.extract(its);
  const int before = std::exchange(run.key(), generation);
  const bool listens = run.mapped().listens;
  run.mapped().port = std::exchange(staying_port_, HeldPort());
  runs_.insert(std::move(run));
  ++ended_;
  return client_->send(control::WorkerExit{before, 0, 0}).ok() && hello() &&
         (!listens || client_->send(control::WorkerListens{generation}).ok());
}

bool Shim::withdraw_staying(int signal) {
  const int generation = *std::exchange(staying_, std::nullopt);
  staying_port_ = HeldPort();
  runtime_->withdraw_next();
  return client_->send(control::WorkerExit{generation, 0, signal}).ok() && hello();
}

bool Shim::pass_sizes() {
  const auto said = said_ ? said_->take_sizes() : std::nullopt;
  if (const auto steps = said_ ? said_->take_steps() : std::nullopt) {
    steps_.said = *steps;
    steps_.said_at = Clock::now();
  }
  return !said || client_->send(control::WorkerSizes{said->sizes, said->why}).ok();
}

bool Shim::report_steps() {
  const auto now = Clock::now();
  if (!reports_steps() || now < steps_.next_look) return true;
  steps_.next_look = now + kStepsPause;
  MadeSteps steps = steps_.said;
  double age_s = steps.made > 0 ? std::chrono::duration<double>(now - steps_.said_at).count() : 0;
  int generation = runs_.rbegin()->first;
  if (runtime_ != nullptr && trains_ >= 0) {
    age_s = runtime_->step_age_s();
    steps.made = runtime_->step();
    generation = trains_;
  }
  if (steps == steps_.told && now < steps_.next_report) return true;
  steps_.told = steps;
  steps_.next_report = now + kStepsAgain;
  const auto bounded = [](std::uint64_t number) {
    return static_cast<std::int64_t>(std::min<std::uint64_t>(number, control::kMostSteps));
  };
  return client_
      ->send(control::WorkerSteps{generation, bounded(steps.made), age_s, bounded(steps.total)})
      .ok();
}

pid_t Shim::beside(int generation) const {
  for (const auto& [other, one] : runs_)
    if (other != generation && one.program.runs()) return one.program.pid();
  return 0;
}

bool Shim::reap() {
  for (auto each = runs_.begin(); each != runs_.end();) {
    const int generation = each->first;
    const std::optional<int> status = each->second.program.reap(beside(generation));
    if (!status) {
      ++each;
      continue;
    }
    // A program that stays has ended in both generations.
    if (staying_ && !withdraw_staying(WIFSIGNALED(*status) ? WTERMSIG(*status) : SIGKILL))
      return false;
    if (runs_.size() == 1) {  // reports its last steps
      steps_.next_look = {};
      if (!pass_sizes() || !report_steps()) return false;
    }
    const bool may_have_left =
        *status == 0 && each->second.listens && !asked_to_leave_ && runtime_ == nullptr;
    if (may_have_left && !hear_late_signal(each->second)) return false;
    each = runs_.erase(each);
    status_ = *status;
    ++ended_;
    control::WorkerExit exit;
    exit.generation = generation;
    if (WIFSIGNALED(*status)) exit.signal = WTERMSIG(*status);
    else exit.exit_code = WEXITSTATUS(*status);
    if (!client_->send(exit) || !hello()) return false;
  }
  return true;
}

void Shim::end_programs() {
  for (auto& [generation, one] : runs_) one.program.signal(SIGTERM);
  const auto deadline = Clock::now() + kEndTime;
  for (bool killed = false; !runs_.empty();) {
    for (auto each = runs_.begin(); each != runs_.end();) {
      const auto status = each->second.program.reap(beside(each->first));
      if (status) status_ = *status;
      each = status ? runs_.erase(each) : std::next(each);
    }
    if (runs_.empty()) return;
    if (!killed && Clock::now() > deadline) {
      for (auto& [generation, one] : runs_) one.program.signal(SIGKILL);
      killed = true;
    }
    pollfd polled{signals_.get(), POLLIN, 0};
    poll(&polled, 1, 100);
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) continue;
  }
}

}  // namespace swell::launcher
