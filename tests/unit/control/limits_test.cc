// SPDX-License-Identifier: GPL-2.0-or-later
// What a server and a client bear with, and for how long.
#include <criterion/criterion.h>
#include <csignal>
#include <thread>

#include "transport_peers.h"

using namespace swell;
using namespace swell::control;
using namespace swell::test;
using namespace std::chrono_literals;

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
