// SPDX-License-Identifier: GPL-2.0-or-later
#include <criterion/criterion.h>
#include <fmt/format.h>
#include <munge.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "transport_peers.h"

using namespace swell;
using namespace swell::control;
using namespace swell::test;
using namespace std::chrono_literals;

namespace {

/// Returns munge's answer to a process of `uid` that opens the credential.
int opened_as(uid_t uid, const PrivateMunge& munge, const std::string& credential) {
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    munge_ctx_t context = munge_ctx_create();
    munge_ctx_set(context, MUNGE_OPT_SOCKET, munge.socket().c_str());
    if (setresuid(uid, uid, uid) != 0) _exit(255);
    _exit(munge_decode(credential.c_str(), context, nullptr, nullptr, nullptr, nullptr));
  }
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

}  // namespace

Test(transport, messages_arrive_in_order_both_ways_with_the_peers_uid, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  const auto client = client_of(host, munge);
  cr_assert_eq(client->local_address(), std::string("127.0.0.1"));
  cr_assert(client->send(hello(17)).ok());
  cr_assert(client->send(Bye{3}).ok());

  const Server::Event first = host.next(), second = host.next();
  cr_assert_eq(as<Hello>(first.message).job, 17u);
  cr_assert_eq(first.uid, geteuid());
  cr_assert_eq(as<Bye>(second.message).exit_code, 3);
  cr_assert_eq(first.connection, second.connection);

  for (int i = 1; i <= 50; ++i)
    host.server().send(first.connection, Shrink{{static_cast<JobId>(i)}, i, "x"});
  for (int i = 1; i <= 50; ++i) cr_assert_eq(as<Shrink>(received(*client)).deadline_s, i);
}

Test(transport, a_client_that_leaves_is_told_after_its_messages, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  {
    const auto client = client_of(host, munge);
    for (int i = 0; i < 20; ++i) cr_assert(client->send(Bye{i}).ok());
  }
  for (int i = 0; i < 20; ++i) cr_assert_eq(as<Bye>(host.next().message).exit_code, i);
  cr_assert_eq(host.next().kind, Server::Event::Kind::closed);
}

Test(transport, closing_sends_what_is_queued_and_gives_no_event, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  const auto client = client_of(host, munge);
  cr_assert(client->send(hello(1)).ok());
  const ConnectionId connection = host.next().connection;
  cr_assert(client->send(hello(2)).ok());  // unread when the server closes
  host.next();
  host.server().send(connection, Refused{"because"});
  host.server().close(connection);
  cr_assert_eq(as<Refused>(received(*client)).reason, std::string("because"));
  cr_assert_not(client->receive(10s).ok());
  // The next event is another client's, not the end of this one.
  const auto other = client_of(host, munge);
  cr_assert(other->send(Bye{9}).ok());
  const Server::Event event = host.next();
  cr_assert_eq(event.kind, Server::Event::Kind::message);
  cr_assert_eq(as<Bye>(event.message).exit_code, 9);
}

Test(transport, a_message_out_of_bounds_is_dropped_and_the_connection_stays, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  RawPeer peer(host, munge);
  peer.greet();
  peer.send(peer.frame_of(hello(1)));
  host.next();
  const auto says = [&](int number, const std::string& message) {
    const std::string payload = fmt::format(R"({{"conn":"{}","from":"client","seq":{},"m":{}}})",
                                            peer.nonce(), number, message);
    peer.send(framed(peer.credential(payload)));
  };
  const std::pair<const char*, const char*> bad[] = {
      {R"({"type":"worker-steps","generation":-1,"steps":2})", "\"generation\" is -1"},
      {R"({"type":"worker-steps","generation":1,"steps":2,"age_s":1e300})", "\"age_s\" is 1e300"},
      {R"({"type":"worker-hello","generation":0,"group":0,"local_rank":0,"host":"n1","port":70000})",
       "\"port\" is 70000"},
      {R"({"type":"status","state":"SINGING"})", "SINGING"},
      {R"({"type":"of-tomorrow"})", "of-tomorrow"},
      {R"("text")", "object"},
  };
  int number = 1;
  for (const auto& [message, why] : bad) {
    says(++number, message);
    const Server::Event event = host.next();
    cr_assert_eq(event.kind, Server::Event::Kind::dropped, "%s", message);
    const std::string& reason = as<Refused>(event.message).reason;
    cr_assert_neq(reason.find(why), std::string::npos, "%s: %s", message, reason.c_str());
  }
  says(++number, R"({"type":"bye","exit_code":3})");
  cr_assert_eq(as<Bye>(host.next().message).exit_code, 3);
  says(number, R"({"type":"bye","exit_code":3})");  // no number twice, whatever is dropped
  cr_assert(peer.closed());
}

Test(transport, a_client_drops_a_message_that_it_cannot_read, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  std::vector<std::string> dropped;
  Client::Options options;
  options.host = "127.0.0.1";
  options.port = host.server().port();
  options.munge_socket = munge.socket();
  options.trust = [](uid_t uid) { return uid == geteuid(); };
  options.dropped = [&](const Error& error) { dropped.push_back(error.message()); };
  auto client = Client::connect(std::move(options), 10s);
  cr_assert(client.ok());
  const auto strict = client_of(host, munge);
  for (Client* each : {client->get(), strict.get()}) {
    cr_assert(each->send(hello(1)).ok());
    const ConnectionId connection = host.next().connection;
    Shrink wrong;
    wrong.companions = {0};  // a Reader takes numbers from 1 on
    host.server().send(connection, wrong);
    host.server().send(connection, Refused{"later"});
  }
  cr_assert_eq(as<Refused>(received(**client)).reason, std::string("later"));
  cr_assert_eq(dropped.size(), 1u);
  cr_assert_neq(dropped.front().find("\"companions\""), std::string::npos);
  cr_assert_not(strict->receive(10s).ok());
}

Test(transport, a_frame_above_the_cap_is_refused, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.max_frame_bytes = 4096;
  Host host(munge, options);
  RawPeer peer(host, munge);
  peer.send(std::string("\x7f\xff\xff\xff", 4));
  cr_assert(peer.closed());
  host.expect_log("2147483647 bytes");
  const auto client = client_of(host, munge);
  Refused large{std::string(4000, 'x')};
  const auto sent = client->send(large);  // the client's own cap is larger: the frame is sent
  cr_assert(sent.ok());
  host.expect_log("4096 are allowed");
  cr_assert_not(client->receive(10s).ok());
}

Test(transport, a_recorded_frame_is_refused_on_its_own_connection, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  RawPeer peer(host, munge);
  peer.greet();
  const std::string frame = peer.frame_of(hello(1));
  peer.send(frame);
  cr_assert_eq(host.next().kind, Server::Event::Kind::message);
  peer.send(frame);
  cr_assert(peer.closed());
  host.expect_log("Replayed credential");
  cr_assert_eq(host.next().kind, Server::Event::Kind::closed);
}

Test(transport, a_recorded_frame_is_refused_on_another_connection, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  RawPeer victim(host, munge), thief(host, munge);
  victim.greet();
  thief.greet();
  thief.send(victim.frame_of(hello(1)));
  cr_assert(thief.closed());
  host.expect_log("made for another connection");
}

Test(transport, numbers_that_do_not_rise_and_frames_sent_back_are_refused, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  RawPeer peer(host, munge);
  peer.greet();
  const std::string first = peer.frame_of(hello(1)), second = peer.frame_of(hello(2));
  peer.send(second);
  cr_assert_eq(as<Hello>(host.next().message).job, 2u);
  peer.send(first);
  cr_assert(peer.closed());
  host.expect_log("numbers must rise");

  Seal server(Side::server, "n"), client(Side::client, "n");
  cr_assert_not(server.unwrap(server.wrap(Bye{0})).ok());
  cr_assert(server.unwrap(client.wrap(Bye{0})).ok());
}

Test(transport, only_its_addressee_reads_a_servers_message, .timeout = 120) {
  if (geteuid() != 0) cr_skip_test("another user is needed: run as root");
  PrivateMunge munge;
  Host host(munge);
  RawPeer peer(host, munge);
  peer.greet();
  peer.send(peer.frame_of(hello(1)));
  WorkerStart start;
  start.environment = {{"TOKEN", "secret"}};
  host.server().send(host.next().connection, start);
  const std::string credential = peer.received();
  cr_assert_eq(opened_as(65534, munge, credential), EMUNGE_CRED_UNAUTHORIZED);
  cr_assert_eq(opened_as(0, munge, credential), EMUNGE_SUCCESS);
}

Test(transport, garbage_is_refused, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  RawPeer peer(host, munge);
  peer.send(framed("GET / HTTP/1.0\r\n\r\n"));
  cr_assert(peer.closed());
  host.expect_log("the frame is not a munge credential");
  RawPeer no_credential(host, munge);
  no_credential.greet();
  no_credential.send(framed("MUNGE:nothing:"));
  cr_assert(no_credential.closed());
  host.expect_log("munge refused the credential");
  RawPeer no_json(host, munge);
  no_json.greet();
  no_json.send(framed(no_json.credential("\xff\x00{{")));
  cr_assert(no_json.closed());
  host.expect_log("not JSON");
  RawPeer empty(host, munge);
  empty.send(std::string(4, '\0'));
  cr_assert(empty.closed());
}
