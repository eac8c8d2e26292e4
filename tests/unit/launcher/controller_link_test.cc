// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/controller_link.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <criterion/criterion.h>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace swell::launcher {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A controller that answers a Hello after `answers_after`; nothing: never.
class SlowClient final : public control::Client {
 public:
  explicit SlowClient(std::optional<Clock::duration> answers_after)
      : answers_at_(answers_after ? Clock::now() + *answers_after : Clock::time_point::max()) {}
  int fd() const override { return -1; }
  std::string local_address() const override { return "127.0.0.1"; }
  Result<void> send(const control::Message&) override { return {}; }
  Result<std::optional<control::Message>> receive(std::chrono::milliseconds timeout) override {
    std::this_thread::sleep_until(std::min(answers_at_, Clock::now() + timeout));
    if (Clock::now() < answers_at_) return std::optional<control::Message>();
    return std::optional<control::Message>(control::Welcome{});
  }
  bool is_crowded_out() override { return false; }

 private:
  const Clock::time_point answers_at_;
};

struct Greeted {
  Greeting greeting;
  std::vector<std::string> hosts;  ///< that were tried
  std::chrono::duration<double> took{0};
};

/// `answers_after`: of each host. `stops_at`: from which look on the program has ended; 0: it has
/// not.
Greeted greeted(std::vector<std::string> hosts,
                std::vector<std::optional<Clock::duration>> answers_after, int stops_at = 0) {
  Greeted found;
  const auto begin = Clock::now();
  int looks = 0;
  ControllerAddress address;
  address.hosts = std::move(hosts);
  found.greeting = greet(
      address, {}, [](const Error&) {},
      [&](const control::Client::Options& options, std::chrono::milliseconds) {
        found.hosts.push_back(options.host);
        return Result<std::unique_ptr<control::Client>>(
            std::make_unique<SlowClient>(answers_after[found.hosts.size() - 1]));
      },
      [&] { return ++looks >= stops_at && stops_at > 0; });
  found.took = Clock::now() - begin;
  return found;
}

Test(controller_link, a_host_alone_may_answer_late, .timeout = 60) {
  cr_assert(greeted({"head"}, {6s}).greeting.client, "a round may take longer than 5 s");
}

Test(controller_link, a_host_that_does_not_answer_makes_way_for_the_next, .timeout = 60) {
  const Greeted found = greeted({"head", "backup"}, {std::nullopt, 0s});
  cr_assert(found.greeting.client && found.hosts.size() == 2 && found.hosts[1] == "backup");
  cr_assert_lt(found.took.count(), 15, "took %f s", found.took.count());
}

Test(controller_link, the_end_of_the_program_does_not_wait_for_an_answer, .timeout = 60) {
  const Greeted found = greeted({"head", "backup"}, {std::nullopt, 0s}, 2);
  cr_assert_not(found.greeting.client);
  cr_assert_eq(found.hosts.size(), 1u, "no other host is asked then");
  cr_assert_lt(found.took.count(), 4, "took %f s", found.took.count());
}

/// Accepts each Hello, and calls `on_receive` before the first answer.
class KeepingClient final : public control::Client {
 public:
  KeepingClient(std::function<void(const control::Hello&)> on_hello,
                std::function<void()> on_receive)
      : on_hello_(std::move(on_hello)), on_receive_(std::move(on_receive)) {}
  int fd() const override { return -1; }
  std::string local_address() const override { return "127.0.0.1"; }
  Result<void> send(const control::Message& message) override {
    if (const auto* hello = std::get_if<control::Hello>(&message)) on_hello_(*hello);
    return {};
  }
  Result<std::optional<control::Message>> receive(std::chrono::milliseconds) override {
    if (std::exchange(has_answered_, true)) return std::optional<control::Message>();
    on_receive_();
    return std::optional<control::Message>(control::Welcome{});
  }
  bool is_crowded_out() override { return false; }

 private:
  const std::function<void(const control::Hello&)> on_hello_;
  const std::function<void()> on_receive_;
  bool has_answered_ = false;
};

Test(controller_link, a_companion_that_came_before_the_answer_is_in_another_hello, .timeout = 60) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<control::Hello> hellos;
  ControllerLink* link = nullptr;
  std::unique_lock lock(mutex);  // until the link is there
  ControllerAddress address;
  address.hosts = {"head"};
  ControllerLink made(
      address, {}, [] {},
      [&](const control::Client::Options&, std::chrono::milliseconds) {
        return Result<std::unique_ptr<control::Client>>(std::make_unique<KeepingClient>(
            [&](const control::Hello& hello) {
              const std::lock_guard guard(mutex);
              hellos.push_back(hello);
              changed.notify_all();
            },
            [&] {
              const std::lock_guard guard(mutex);
              link->set_companions({7});
            }));
      });
  link = &made;
  cr_assert(changed.wait_for(lock, 20s, [&] { return hellos.size() >= 2; }), "one Hello alone");
  cr_assert(hellos[0].companions.empty());
  cr_assert(hellos[1].companions == std::vector<control::JobId>{7});
  lock.unlock();
}

}  // namespace
}  // namespace swell::launcher
