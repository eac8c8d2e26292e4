// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/signal_record.h"

#include <csignal>
#include <utility>

#include "launcher/signals.h"

namespace swell::launcher {

namespace {

constexpr double kSame_s = 2;  // every worker of the job's own step reports a signal

}  // namespace

bool SignalRecord::sent(double now, int signal) {
  const auto last = sent_.find(signal);
  if (last != sent_.end() && now - last->second < kSame_s) return false;
  sent_[signal] = now;
  return true;
}

std::vector<int> SignalRecord::sent_within(double seconds, double now) const {
  std::vector<int> signals;
  for (const auto& [signal, at] : sent_)
    if (now - at < seconds) signals.push_back(signal);
  return signals;
}

std::vector<int> SignalRecord::sent_since(double since) const {
  std::vector<int> signals;
  for (const auto& [signal, at] : sent_)
    if (at >= since) signals.push_back(signal);
  return signals;
}

int SignalRecord::cause_of(const Exit& exit, double now) const {
  if (exit.status() == 0 || is_leave(exit)) return 0;
  for (const auto& [signal, at] : sent_) {
    const bool died = exit.signal == signal || (exit.signal == 0 && exit.code == 128 + signal);
    if (now - at <= settings_.end_timeout_s && (died || is_end_signal(signal))) return signal;
  }
  return 0;
}

bool SignalRecord::is_leave(const Exit& exit) const {
  return settings_.leave_code && exit.signal == 0 && exit.code == *settings_.leave_code;
}

bool SignalRecord::is_restart(const Exit& exit) const {
  return exit.signal == settings_.restart_signal || exit.code == 128 + settings_.restart_signal;
}

void SignalRecord::miss(int signal) {
  if (signal != settings_.restart_signal && signal != SIGTERM) missed_.insert(signal);
}

std::set<int> SignalRecord::pass_missed(double now) {
  for (const int signal : missed_) sent_[signal] = now;
  return std::exchange(missed_, {});
}

}  // namespace swell::launcher
