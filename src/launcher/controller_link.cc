// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/controller_link.h"

#include <algorithm>
#include <fmt/format.h>
#include <poll.h>

#include "base/mutex.h"
#include "control/quiet_thread.h"

namespace swell::launcher {

using namespace std::chrono_literals;
using control::Client;
using control::Message;

namespace {

constexpr auto kConnectTime = 3s;
/// Longer where there is one host alone: after a restart of slurmctld a round of the controller
/// with 1,000 agents takes seconds, and an agent that connects again meanwhile only makes it
/// longer.
constexpr auto kAnswerTime = 5s, kOnlyAnswerTime = 20s;
constexpr auto kStopLookTime = 500ms;  ///< how long the end of the program may wait for the link
constexpr double kMinBackoffSeconds = 1;
/// With up to a quarter more at random, and kConnectTime for a primary that is gone, this is less
/// than the default AgentTimeout: a controller that comes back does not give up the lent GPUs of an
/// agent that still runs.
constexpr double kMaxBackoffSeconds = 8;

}  // namespace

Greeting greet(const ControllerAddress& address, const control::Hello& hello,
               const std::function<void(const Error&)>& dropped, const Connect& connect,
               const std::function<bool()>& stopped) {
  Greeting greeting;
  const auto patience = address.hosts.size() == 1 ? kOnlyAnswerTime : kAnswerTime;
  for (const std::string& host : address.hosts) {
    if (stopped()) break;
    const auto failed = [&](const Error& error) {
      greeting.reason +=
          (greeting.reason.empty() ? "no Swell controller: " : "; ") + error.message();
    };
    const uid_t slurm_user = address.slurm_user;
    auto client =
        connect({.host = host,
                 .port = address.port,
                 .munge_socket = address.munge_socket,
                 .trust = [slurm_user](uid_t uid) { return uid == slurm_user || uid == 0; },
                 .dropped = dropped},
                kConnectTime);
    if (!client) {
      failed(client.error());
      continue;
    }
    if (const auto sent = (*client)->send(hello); !sent) {
      failed(sent.error());
      continue;
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    auto answer = (*client)->receive(kStopLookTime);
    while (answer && !*answer && !stopped() && std::chrono::steady_clock::now() < deadline)
      answer = (*client)->receive(kStopLookTime);
    if (!answer) {
      failed(answer.error());
    } else if (!*answer) {
      failed(Error(fmt::format("{}:{} does not answer", host, address.port)));
    } else if (const auto* refused = std::get_if<control::Refused>(&**answer)) {
      greeting.refused = true;
      greeting.reason = "the controller refuses: " + refused->reason;
      return greeting;
    } else if (const auto* welcome = std::get_if<control::Welcome>(&**answer)) {
      greeting.welcome = *welcome;
      greeting.client = std::move(*client);
      return greeting;
    } else {
      failed(Error(fmt::format("{}:{} is not a controller of Swell", host, address.port)));
    }
  }
  return greeting;
}

ControllerLink::ControllerLink(ControllerAddress address, control::Hello hello,
                               std::function<void()> wake, Connect connect)
    : address_(std::move(address)),
      wake_fn_(std::move(wake)),
      connect_(std::move(connect)),
      hello_(std::move(hello)) {
  thread_ = control::quiet_thread("swell-link", [this] { run(); });
}

ControllerLink::~ControllerLink() {
  flush(0ms);
  thread_.join();
}

bool ControllerLink::flush(std::chrono::milliseconds timeout) {
  Lock lock(mutex_);
  stop_ = true;
  wake_.signal();
  return ended_changed_.wait_for(lock, timeout, [this]() SWELL_REQUIRES(mutex_) { return ended_; });
}

void ControllerLink::send(Message message) {
  {
    const Lock lock(mutex_);
    if (const auto* status = std::get_if<control::Status>(&message)) {
      last_status_ = *status;
      hello_.no_growth = status->no_growth;
      hello_.sizes = status->sizes;
    } else if (const auto* profile = std::get_if<control::Profile>(&message)) {
      last_profile_ = *profile;
    }
    if (out_.size() < 1000) out_.push_back(std::move(message));
  }
  wake_.signal();
}

std::vector<Message> ControllerLink::take() {
  const Lock lock(mutex_);
  return std::exchange(in_, {});
}

std::vector<std::string> ControllerLink::take_news() {
  const Lock lock(mutex_);
  return std::exchange(news_, {});
}

void ControllerLink::tell(std::string line) {
  {
    const Lock lock(mutex_);
    news_.push_back(std::move(line));
  }
  wake_fn_();
}

void ControllerLink::set_companions(std::vector<control::JobId> companions) {
  const Lock lock(mutex_);
  hello_.companions = std::move(companions);
}

void ControllerLink::run() {
  for (;;) {
    try {
      if (client_ && !exchange()) client_.reset();
      {
        const Lock lock(mutex_);
        if (stop_ && (!client_ || out_.empty())) {
          ended_ = true;
          ended_changed_.notify_all();
          return;
        }
      }
      if (client_) {
        pollfd polled[] = {{wake_.fd(), POLLIN, 0}, {client_->fd(), POLLIN, 0}};
        poll(polled, 2, 60'000);
      } else {
        const auto now = std::chrono::steady_clock::now();
        if (backoff_s_ == 0) {
          connect();
          continue;
        }
        // Attempts are spread out: all agents of the cluster connect to a restarted slurmctld.
        if (next_attempt_ < now)
          next_attempt_ = now + std::chrono::milliseconds(
                                    static_cast<int>(backoff_s_ * (750 + random_() % 500)));
        pollfd polled{wake_.fd(), POLLIN, 0};
        poll(&polled, 1,
             static_cast<int>(
                 std::chrono::ceil<std::chrono::milliseconds>(next_attempt_ - now).count()));
        if (std::chrono::steady_clock::now() >= next_attempt_) connect();
      }
      wake_.clear();
    } catch (const std::exception&) {  // out of memory: lose the connection, not the training
      client_.reset();
    }
  }
}

/// Sends and receives pending messages. Returns false if the connection cannot be used any more.
bool ControllerLink::exchange() {
  for (;;) {
    Message message;
    {
      const Lock lock(mutex_);
      if (out_.empty()) break;
      message = std::move(out_.front());
      out_.pop_front();
    }
    if (!client_->send(message)) return false;
  }
  for (;;) {
    auto message = client_->receive(0ms);
    if (!message) return false;
    if (!*message) return true;
    {
      const Lock lock(mutex_);
      in_.push_back(std::move(**message));
    }
    wake_fn_();
  }
}

void ControllerLink::connect() {
  backoff_s_ = std::clamp(backoff_s_ * 2, kMinBackoffSeconds, kMaxBackoffSeconds);
  control::Hello hello;
  {
    const Lock lock(mutex_);
    if (stop_) return;
    hello = hello_;
  }
  Greeting greeting = greet(
      address_, hello,
      [this](const Error& error) {
        if (std::exchange(told_dropped_, true)) return;
        tell("left out what the controller says: " + error.message());
      },
      connect_,
      [this] {
        const Lock stop_lock(mutex_);
        return stop_;
      });
  if (!greeting.client) {
    if (const Lock lock(mutex_); stop_) return;  // the wait was cut short
    if (reasons_.insert(greeting.reason).second)
      tell(greeting.reason +
           "; training on the GPUs that the job has, and asking again from time to time");
    return;
  }
  backoff_s_ = kMinBackoffSeconds;
  {
    const Lock lock(mutex_);
    // Companions came or went while the controller was silent: it must hear of them in a Hello.
    if (hello_.companions != hello.companions) return;
  }
  if (!reasons_.empty()) tell("connected to the Swell controller");
  reasons_.clear();
  client_ = std::move(greeting.client);
  const Lock lock(mutex_);
  // The Hello and Slurm's queue say what happened meanwhile; old messages would only confuse.
  out_.clear();
  out_.push_back(last_status_);
  if (last_profile_) out_.push_back(*last_profile_);
}

}  // namespace swell::launcher
