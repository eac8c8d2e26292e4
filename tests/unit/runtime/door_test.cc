// SPDX-License-Identifier: GPL-2.0-or-later
// Strangers at the sockets of a keeper: they take few descriptors and no thread, and keep nobody of
// the job out.
#include "runtime/transport/door.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <criterion/criterion.h>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime/keeper/keeper.h"
#include "support/live_job.h"

using namespace swell;
using namespace swell::runtime;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using support::LiveJob;

namespace {

/// A keeper in a folder of its own.
struct OneKeeper {
  OneKeeper() {
    folder = std::filesystem::temp_directory_path() / "swell-door-XXXXXX";
    cr_assert_not_null(mkdtemp(folder.data()));
    Keeper::Options options;
    options.unix_socket = folder + "/own/socket";
    options.tcp_host = "127.0.0.1";
    options.key = LiveJob::kKey;
    options.arena_bytes = 1 << 20;
    auto made = Keeper::start(std::move(options));
    cr_assert(made.ok(), "%s", made.ok() ? "" : made.error().message().c_str());
    keeper = std::move(*made);
  }
  ~OneKeeper() {
    keeper.reset();
    std::filesystem::remove_all(folder);
  }
  Result<Channel> peer(std::chrono::milliseconds limit) const {
    return Channel::connect_tcp(keeper->tcp_address(), LiveJob::kKey, within(limit));
  }
  /// A peer of the job gets in and is answered.
  void answers(std::chrono::milliseconds limit) const {
    auto channel = peer(limit);
    cr_assert(channel.ok(), "%s", channel.ok() ? "" : channel.error().message().c_str());
    const auto status = ask(*channel, Op::status, {}, within(limit));
    cr_assert(status.ok(), "%s", status.ok() ? "" : status.error().message().c_str());
  }
  std::string folder;
  std::unique_ptr<Keeper> keeper;
};

sockaddr_in address_of(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(text.substr(text.find(':') + 1))));
  inet_pton(AF_INET, text.substr(0, text.find(':')).c_str(), &address.sin_addr);
  return address;
}

int connected_to(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

enum class Says { nothing, garbage };

/// Another process: opens `count` connections, or without end where it is 0, and holds the last
/// `held` of them.
class Strangers {
 public:
  Strangers(const std::string& target, int count, std::size_t held, Says says) {
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (int fd = 3; fd < 1024; ++fd)
        if (fd != fds[1]) close(fd);
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = limit.rlim_max;
      setrlimit(RLIMIT_NOFILE, &limit);
      const sockaddr_in address = address_of(target);
      const std::string garbage(80, 'x');
      std::vector<int> open(held, -1);
      for (std::size_t i = 0;; ++i) {
        if (i == (count > 0 ? static_cast<std::size_t>(count) : held)) {
          if (write(fds[1], "x", 1) != 1) _exit(1);
          while (count > 0) pause();
        }
        int& fd = open[i % held];
        if (fd >= 0) close(fd);
        fd = connected_to(address);
        if (says == Says::garbage && fd >= 0)
          static_cast<void>(send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL));
      }
    }
    close(fds[1]);
    char byte = 0;
    cr_assert_eq(read(fds[0], &byte, 1), 1, "the strangers have come");
    close(fds[0]);
  }
  ~Strangers() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

 private:
  pid_t pid_ = -1;
};

std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}
std::size_t threads() { return entries_of("/proc/self/task"); }
std::size_t descriptors() { return entries_of("/proc/self/fd"); }

/// Waits until it is so.
template <typename Condition>
bool comes_true(const Condition& condition) {
  for (const auto by = Clock::now() + 30s; Clock::now() < by; std::this_thread::sleep_for(10ms))
    if (condition()) return true;
  return false;
}

}  // namespace

Test(door, silent_strangers_take_no_thread_and_few_descriptors, .timeout = 120) {
  const OneKeeper kept;
  const std::size_t before = threads(), open_before = descriptors();
  {
    const Strangers strangers(kept.keeper->tcp_address(), 1500, 1500, Says::nothing);
    for (int i = 0; i < 20; ++i) kept.answers(10s);
    cr_assert_leq(threads(), before + 20);
    cr_assert_leq(descriptors(), open_before + 260 + 20);
  }
  kept.answers(10s);
  cr_assert(comes_true([&] { return threads() <= before && descriptors() <= open_before; }),
            "%zu threads and %zu descriptors are left of %zu and %zu", threads(), descriptors(),
            before, open_before);
}

Test(door, a_peer_gets_in_while_strangers_of_its_address_come_without_end, .timeout = 240) {
  const OneKeeper kept;
  for (const Says says : {Says::nothing, Says::garbage}) {
    const Strangers one(kept.keeper->tcp_address(), 0, 300, says);
    const Strangers other(kept.keeper->tcp_address(), 0, 300, says);
    for (int i = 0; i < 50; ++i) kept.answers(10s);
  }
}

Test(door, a_stranger_is_sent_away_when_the_time_for_its_proof_is_over, .timeout = 60) {
  Descriptor tcp = listen_tcp("127.0.0.1").value();
  const std::string target = runtime::address_of(tcp.get());
  Door::Options options;
  options.proof_time = 50ms;
  options.let_in = [](Channel&, bool) { return true; };
  Door door(std::move(options), Descriptor(), std::move(tcp), LiveJob::kKey);
  cr_assert(door.open().ok());
  const Descriptor stranger(connected_to(address_of(target)));
  char bytes[64];
  ssize_t got = 0;
  while ((got = recv(stranger.get(), bytes, sizeof bytes, 0)) > 0) continue;
  cr_assert_eq(got, 0, "the door has closed the connection");
}

Test(door, peers_are_taken_again_when_there_are_descriptors_again, .timeout = 60) {
  const OneKeeper kept;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = descriptors() + 20;
  setrlimit(RLIMIT_NOFILE, &limit);
  auto waiting = kept.peer(10s);  // before there are none
  cr_assert(waiting.ok());
  const Descriptor late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::vector<Descriptor> all;
  for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) all.emplace_back(fd);
  cr_assert_eq(errno, EMFILE);
  const sockaddr_in address = address_of(kept.keeper->tcp_address());
  cr_assert_eq(connect(late.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  char bytes[32];
  std::this_thread::sleep_for(200ms);  // the door has tried more than once
  cr_assert_lt(recv(late.get(), bytes, sizeof bytes, MSG_DONTWAIT), 0);
  cr_assert(ask(*waiting, Op::status, {}, within(10s)).ok(), "those who are in are served");
  all.clear();
  cr_assert_eq(recv(late.get(), bytes, sizeof bytes, MSG_WAITALL), 32);
  kept.answers(10s);
}

Test(door, a_peer_waits_for_a_thread_and_nobody_is_hurt_meanwhile, .timeout = 60) {
  // Limits of processes do not count for root.
  std::string folder = std::filesystem::temp_directory_path() / "swell-door-user-XXXXXX";
  cr_assert_not_null(mkdtemp(folder.data()));
  setenv("TMPDIR", folder.c_str(), 1);
  if (geteuid() == 0) {
    cr_assert_eq(chown(folder.c_str(), 54321, 54321), 0);
    cr_assert_eq(setgroups(0, nullptr), 0);
    cr_assert_eq(setresgid(54321, 54321, 54321), 0);
    cr_assert_eq(setresuid(54321, 54321, 54321), 0);
  }
  {
    const OneKeeper kept;
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 1;  // there are more already
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
    auto channel = kept.peer(10s);
    cr_assert(channel.ok());
    cr_assert_not(ask(*channel, Op::status, {}, within(300ms)).ok());
    limit.rlim_cur = before;
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
    cr_assert(channel->receive(within(10s)).ok(), "the question is answered by the new thread");
  }
  std::error_code ignored;  // where only root may remove it
  std::filesystem::remove_all(folder, ignored);
}

Test(door, strangers_without_end_cost_their_share, .timeout = 60) {
  Descriptor tcp = listen_tcp("127.0.0.1").value();
  const std::string target = runtime::address_of(tcp.get());
  std::atomic<double> used_s = 0;
  Door::Options options;
  options.share = options.saved_up_s = 0.02;
  options.let_in = [](Channel&, bool) { return true; };
  options.at_each_turn = [&used_s] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    used_s = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  Door door(std::move(options), Descriptor(), std::move(tcp), LiveJob::kKey);
  cr_assert(door.open().ok());
  const auto begin = Clock::now();
  const Strangers one(target, 0, 200, Says::garbage), other(target, 0, 200, Says::nothing);
  std::this_thread::sleep_for(3s);
  const std::chrono::duration<double> time = Clock::now() - begin;
  cr_assert_leq(used_s.load(), 1.5 * (0.02 + 0.02 * time.count()) + 0.02, "%g s", used_s.load());
  const auto channel = Channel::connect_tcp(target, LiveJob::kKey, within(20s));
  cr_assert(channel.ok(), "%s", channel.ok() ? "" : channel.error().message().c_str());
}
