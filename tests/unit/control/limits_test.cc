// SPDX-License-Identifier: GPL-2.0-or-later
// What a server and a client bear with, and for how long.
#include <array>
#include <criterion/criterion.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>

#include "transport_peers.h"

using namespace swell;
using namespace swell::control;
using namespace swell::test;
using namespace std::chrono_literals;

namespace {

/// CPU time of the threads of this name in this process, in seconds.
double thread_time_s(const std::string& name) {
  double sum_s = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string its_name;
    double its_ns = 0;
    std::getline(std::ifstream(task.path() / "comm"), its_name);
    std::ifstream(task.path() / "schedstat") >> its_ns;
    if (its_name == name) sum_s += its_ns * 1e-9;
  }
  return sum_s;
}

/// Processes that do it again and again: CPU time of their threads is not the server's.
class Flood {
 public:
  Flood(int processes, const std::function<void()>& act) {
    for (int i = 0; i < processes; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) act();
      }
      pids_.push_back(pid);
    }
  }
  ~Flood() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  std::vector<pid_t> pids_;
};

constexpr double kShare = 0.02, kSavedUp_s = 0.02;

/// CPU time that a server's threads take within 3 s, and its share of that time.
std::pair<double, double> used_and_allowed(const std::function<void()>& meanwhile = [] {}) {
  const auto begin = std::chrono::steady_clock::now();
  const double before = thread_time_s("swell-control") + thread_time_s("swell-munge");
  for (; std::chrono::steady_clock::now() < begin + 3s; std::this_thread::sleep_for(10ms))
    meanwhile();
  const double used_s = thread_time_s("swell-control") + thread_time_s("swell-munge") - before;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  return {used_s, kSavedUp_s + kShare * time.count()};
}

Server::Options with_shares() {
  Server::Options options;
  options.strangers_share = options.user_share = kShare;
  options.saved_up_s = kSavedUp_s;
  return options;
}

/// Connects, says this, and leaves.
void say_and_leave(std::uint16_t port, const std::string& said) {
  const auto fd = connect_to("127.0.0.1", port, 2s);
  if (!fd) return;
  if (!said.empty()) static_cast<void>(::send(fd->get(), said.data(), said.size(), MSG_NOSIGNAL));
  std::array<char, 256> bytes;
  pollfd ready{fd->get(), POLLIN, 0};
  while (poll(&ready, 1, 200) == 1 && recv(fd->get(), bytes.data(), bytes.size(), 0) > 0) {
    if (said.empty()) return;
  }
}

}  // namespace

Test(limits, a_server_listens_within_its_range_of_ports, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  const auto any = listen_on("127.0.0.1", 0);
  cr_assert(any.ok());
  const std::uint16_t taken = local_port(any->get());
  options.ports = {taken, taken};
  options.munge_socket = munge.socket();
  cr_assert_not(Server::start(options, [] {}).ok());
  options.ports = {taken, static_cast<std::uint16_t>(std::min(taken + 40, 65535))};
  for (int i = 0; i < 3; ++i) {
    const auto server = Server::start(options, [] {});
    cr_assert(server.ok(), "%s", server ? "" : server.error().message().c_str());
    cr_assert_gt((*server)->port(), taken);
    cr_assert_leq((*server)->port(), options.ports.last);
  }
}

Test(limits, cuts_off_silent_clients, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.first_message_s = 0.2;
  Host host(munge, options);
  RawPeer peer(host, munge);
  cr_assert(peer.closed());
  host.expect_log("no good message within 0.2 s");
}

Test(limits, two_hundred_slow_clients_do_not_delay_a_good_one, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.first_message_s = 60;
  Host host(munge, options);
  std::vector<std::unique_ptr<RawPeer>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<RawPeer>(host, munge));
    slow.back()->send(std::string("\0\0\x10\0MUNGE:", 10));  // the rest of the frame never comes
  }
  const auto client = client_of(host, munge);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    cr_assert(client->send(Bye{i}).ok());
    const Server::Event event = host.next();
    cr_assert_eq(as<Bye>(event.message).exit_code, i);
    host.server().send(event.connection, Refused{"x"});
    received(*client);
  }
  cr_assert_lt(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
               10.0);
}

Test(limits, a_newcomer_takes_the_place_of_the_oldest_silent_one, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_unauthenticated = 4;
  options.first_message_s = 60;
  Host host(munge, options);
  RawPeer oldest(host, munge);
  oldest.greet();
  std::vector<std::unique_ptr<RawPeer>> others;
  for (int i = 0; i < 4; ++i) others.push_back(std::make_unique<RawPeer>(host, munge));
  cr_assert(oldest.closed());
  const auto client = client_of(host, munge);
  cr_assert(client->send(hello(1)).ok());
  cr_assert_eq(as<Hello>(host.next().message).job, 1u);
}

Test(limits, a_client_that_lost_its_place_to_a_newcomer_is_told_so, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_unauthenticated = 2;
  options.first_message_s = 60;
  Host host(munge, options);
  const auto first = client_of(host, munge), second = client_of(host, munge);
  RawPeer one(host, munge), other(host, munge);
  one.greet();
  other.greet();
  cr_assert_not(first->receive(10s).ok());
  cr_assert(first->is_crowded_out());
  // One that finds out when it says its first message.
  static_cast<void>(second->send(hello(1)));
  while (second->send(hello(1)).ok()) std::this_thread::sleep_for(10ms);
  cr_assert(second->is_crowded_out());
  // One that was refused for what it said.
  Server::Options strict;
  strict.allow = [](uid_t) { return false; };
  Host closed(munge, strict);
  const auto third = client_of(closed, munge);
  cr_assert(third->send(hello(1)).ok());
  received(*third);
  cr_assert_not(third->receive(10s).ok());
  cr_assert_not(third->is_crowded_out());
}

Test(limits, one_address_cannot_take_all_places, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_unauthenticated = 8;
  options.max_unauthenticated_per_address = 4;
  options.first_message_s = 60;
  Host host(munge, options);
  // Somebody elsewhere who is slow to say who it is, as a worker on a busy node.
  RawPeer elsewhere(host, munge, "127.0.0.2");
  elsewhere.greet();
  std::vector<std::unique_ptr<RawPeer>> flood;
  for (int i = 0; i < 40; ++i) flood.push_back(std::make_unique<RawPeer>(host, munge));
  for (int i = 0; i < 36; ++i) cr_assert(flood[static_cast<std::size_t>(i)]->closed());
  elsewhere.send(elsewhere.frame_of(hello(7)));
  cr_assert_eq(as<Hello>(host.next().message).job, 7u);
}

Test(limits, the_address_with_most_silent_ones_makes_room_for_others, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_unauthenticated = 4;
  options.max_unauthenticated_per_address = 4;
  options.first_message_s = 60;
  Host host(munge, options);
  RawPeer oldest(host, munge, "127.0.0.2");
  oldest.greet();
  std::vector<std::unique_ptr<RawPeer>> crowd;
  for (int i = 0; i < 3; ++i) crowd.push_back(std::make_unique<RawPeer>(host, munge));
  RawPeer another(host, munge, "127.0.0.3");
  another.greet();
  cr_assert(crowd.front()->closed());
  for (RawPeer* peer : {&oldest, &another}) peer->send(peer->frame_of(hello(7)));
  host.next();
  host.next();
}

Test(limits, a_uid_that_is_not_allowed_is_told_so, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.allow = [](uid_t uid) { return uid == geteuid() + 1; };
  Host host(munge, options);
  const auto client = client_of(host, munge);
  cr_assert(client->send(hello(1)).ok());
  cr_assert_neq(as<Refused>(received(*client)).reason.find("not allowed"), std::string::npos);
  cr_assert_not(client->receive(10s).ok());
  host.expect_log("not allowed");
}

Test(limits, one_user_has_so_many_connections_and_no_more, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_connections_per_user = 2;
  Host host(munge, options);
  const auto one = client_of(host, munge), two = client_of(host, munge),
             three = client_of(host, munge);
  for (Client* client : {one.get(), two.get()}) {
    cr_assert(client->send(hello(1)).ok());
    host.next();
  }
  cr_assert(three->send(hello(1)).ok());
  cr_assert_neq(as<Refused>(received(*three)).reason.find("2 connections already"),
                std::string::npos);
}

Test(limits, a_server_of_another_user_is_not_trusted, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  const auto client = client_of(host, munge, [](uid_t uid) { return uid == geteuid() + 1; });
  cr_assert(client->send(hello(1)).ok());
  host.server().send(host.next().connection, Bye{0});
  const auto message = client->receive(10s);
  cr_assert_not(message.ok());
  cr_assert_neq(message.error().message().find("not trusted"), std::string::npos);
}

Test(limits, closes_clients_that_read_too_slowly, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_frame_bytes = 4096;
  Host host(munge, options);
  const auto client = client_of(host, munge);
  cr_assert(client->send(hello(1)).ok());
  const ConnectionId connection = host.next().connection;
  for (int i = 0; i < 100; ++i) host.server().send(connection, Refused{std::string(2000, 'x')});
  host.expect_log("reads too slowly");
  cr_assert_eq(host.next().kind, Server::Event::Kind::closed);
}

Test(limits, without_munged_sending_is_an_error, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  const auto client = client_of(host, munge);
  munge.signal(SIGKILL);
  cr_assert_not(client->send(hello(1)).ok());
}

Test(limits, a_server_without_munged_says_so_before_anybody_connects, .timeout = 120) {
  PrivateMunge munge;
  munge.signal(SIGKILL);
  Host host(munge);
  host.expect_log("Swell needs munge, also beside AuthType=auth/slurm");
}

Test(limits, a_munged_that_is_away_for_a_while_costs_no_connection, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  const auto client = client_of(host, munge);
  cr_assert(client->send(hello(1)).ok());
  const ConnectionId connection = host.next().connection;
  host.server().send(connection, Bye{1});
  cr_assert_eq(as<Bye>(received(*client)).exit_code, 1);  // the connection stands

  munge.signal(SIGKILL);
  host.server().send(connection, Bye{2});
  Result<void> sent;
  std::thread sender([&] { sent = client->send(Bye{3}); });
  munge.restart();
  sender.join();

  cr_assert(sent.ok());
  const Server::Event event = host.next();
  cr_assert_eq(event.connection, connection);
  cr_assert_eq(as<Bye>(event.message).exit_code, 3);
  cr_assert_eq(as<Bye>(received(*client)).exit_code, 2);
}

Test(limits, a_munged_that_hangs_blocks_neither_the_client_nor_the_servers_end, .timeout = 120) {
  PrivateMunge munge;
  const auto start = std::chrono::steady_clock::now();
  {
    Host host(munge);
    RawPeer peer(host, munge);
    peer.greet();
    const std::string frame = peer.frame_of(hello(1));
    const auto client = client_of(host, munge);
    munge.signal(SIGSTOP);
    peer.send(frame);
    const auto sent = client->send(hello(2));
    cr_assert_not(sent.ok());
    cr_assert_eq(sent.error().message(), std::string("munged does not answer"));
    // The server still accepts and greets.
    RawPeer another(host, munge);
    another.greet();
  }
  munge.signal(SIGCONT);
  cr_assert_lt(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
               30.0);
}

Test(limits, nobody_listening_is_an_error_that_names_the_address) {
  const auto client = Client::connect({"127.0.0.1", 1, "", {}}, 2s);
  cr_assert_not(client.ok());
  cr_assert_neq(client.error().message().find("127.0.0.1:1"), std::string::npos);
}

Test(limits, a_users_flood_is_heard_bit_by_bit_and_in_order, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_taken_of_user = 4;
  Host host(munge, options);
  const auto client = client_of(host, munge);
  for (int i = 0; i < 100; ++i) cr_assert(client->send(Bye{i}).ok());
  std::this_thread::sleep_for(500ms);
  const std::size_t first = host.server().take().size();
  cr_assert_leq(first, 4u);
  int next = static_cast<int>(first);
  while (next < 100) {
    const Server::Event event = host.next();
    cr_assert_eq(as<Bye>(event.message).exit_code, next++);
  }
}

Test(limits, a_flood_of_strangers_costs_its_share_and_keeps_no_good_client_away, .timeout = 120) {
  for (const std::string& said : {std::string(), framed("garbage"), framed("MUNGE:AwQDAAB:")}) {
    PrivateMunge munge;
    Host host(munge, with_shares());
    const Flood flood(4, [&, port = host.server().port()] { say_and_leave(port, said); });
    const auto [used_s, allowed_s] = used_and_allowed();
    cr_assert_leq(used_s, 1.5 * allowed_s + 0.02, "%g s; after \"%s\" %g s are allowed", used_s,
                  said.c_str(), allowed_s);
    cr_assert_geq(used_s, 0.2 * allowed_s, "there is a flood");
    std::vector<std::unique_ptr<Client>> clients;
    for (JobId job = 1; job <= 3; ++job) {
      // Comes back where strangers took its place before it was read, as agents and tools do.
      std::optional<Server::Event> event;
      const auto deadline = std::chrono::steady_clock::now() + patience;
      while (!event && std::chrono::steady_clock::now() < deadline) {
        auto client = Client::connect({"127.0.0.1", host.server().port(), munge.socket(),
                                       [](uid_t uid) { return uid == geteuid(); }},
                                      10s);
        if (!client || !(*client)->send(hello(job))) continue;
        do event = host.next_within(500ms);
        while (!event && (*client)->receive(1ms) && std::chrono::steady_clock::now() < deadline);
        clients.push_back(*std::move(client));
      }
      cr_assert(event.has_value());
      cr_assert_eq(as<Hello>(event->message).job, job);
    }
  }
}

Test(limits, a_users_flood_costs_its_share_and_delays_no_stranger, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge, with_shares());
  std::unique_ptr<Client> client;
  int said = 0;
  const Flood flood(1, [&] {
    if (!client) client = client_of(host, munge);
    static_cast<void>(client->send(Bye{said++ % 200}));
  });
  int heard = 0;
  const auto hear = [&] {
    for (const Server::Event& event : host.server().take())
      cr_assert_eq(as<Bye>(event.message).exit_code, heard++ % 200, "nothing is lost");
  };
  const auto [used_s, allowed_s] = used_and_allowed(hear);
  cr_assert_leq(used_s, 1.5 * allowed_s + 0.02, "%g s; %g s are allowed", used_s, allowed_s);
  for (; heard < 100; std::this_thread::sleep_for(10ms)) hear();
  const auto start = std::chrono::steady_clock::now();
  RawPeer another(host, munge);
  another.greet();
  cr_assert_lt(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
               5.0);
}

Test(limits, a_user_without_cpu_time_gets_none_by_connecting_anew, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge, with_shares());
  const Flood flood(4, [&] {
    const auto client =
        Client::connect({"127.0.0.1", host.server().port(), munge.socket(), {}}, 10s);
    if (client) static_cast<void>((*client)->send(hello(1)));
  });
  const auto [used_s, allowed_s] = used_and_allowed();
  // As a stranger, and as a user.
  cr_assert_leq(used_s, 1.5 * 2 * allowed_s + 0.02, "%g s; %g s are allowed", used_s, allowed_s);
  for (int i = 0; i < 10; ++i) host.next();
}

Test(limits, refused_ones_that_do_not_hang_up_keep_nobody_away, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_connections = 8;
  Host host(munge, options);
  std::vector<std::unique_ptr<RawPeer>> refused;
  for (int i = 0; i < 24; ++i) {
    refused.push_back(std::make_unique<RawPeer>(host, munge));
    refused.back()->greet();
    refused.back()->send(framed(refused.back()->credential("not a message")));
    if (i < 8) static_cast<void>(refused.back()->received());
  }
  const auto client = client_of(host, munge);
  cr_assert(client->send(hello(1)).ok());
  cr_assert_eq(as<Hello>(host.next().message).job, 1u);
}

Test(limits, a_server_leaves_files_to_its_process) {
  Server::Options options;
  options.leave_files(1024);
  cr_assert_eq(options.max_connections, 512);
  cr_assert_eq(options.max_connections_per_user, 256);
  cr_assert_eq(options.max_unauthenticated, 256);
  cr_assert_eq(options.max_unauthenticated_per_address, 64);
  options.leave_files(20);
  cr_assert_eq(options.max_connections, 16);
  cr_assert_eq(options.max_unauthenticated_per_address, 4);
  for (const std::uint64_t plenty : {std::uint64_t{1} << 20, ~std::uint64_t{0}}) {
    Server::Options many;
    many.leave_files(plenty);
    cr_assert_eq(many.max_connections, 20000);
    cr_assert_eq(many.max_connections_per_user, 2000);
    cr_assert_eq(many.max_unauthenticated, 256);
  }
}
