// SPDX-License-Identifier: GPL-2.0-or-later
#include <condition_variable>
#include <csignal>
#include <criterion/criterion.h>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/client.h"
#include "control/frame.h"
#include "control/munge_thread.h"
#include "control/server.h"
#include "control/socket.h"
#include "private_munge.h"

using namespace swell;
using namespace swell::control;
using namespace std::chrono_literals;
using test::PrivateMunge;

namespace {

constexpr auto patience = 20s;

/// A server, the events it gave and the lines it logged, with ways to wait for them.
class Host {
 public:
  explicit Host(const PrivateMunge& munge, Server::Options options = {}) {
    options.munge_socket = munge.socket();
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_.push_back(line);
      changed_.notify_all();
    };
    auto server = Server::start(std::move(options), [this] {
      const std::lock_guard lock(mutex_);
      awake_ = true;
      changed_.notify_all();
    });
    cr_assert(server.ok(), "%s", server.ok() ? "" : server.error().message().c_str());
    server_ = std::move(*server);
  }

  Server::Event next() {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (events_.empty()) {
      {
        std::unique_lock lock(mutex_);
        cr_assert(changed_.wait_until(lock, deadline, [this] { return awake_; }), "no event");
        awake_ = false;
      }
      events_ = server_->take();
    }
    Server::Event event = std::move(events_.front());
    events_.erase(events_.begin());
    return event;
  }

  void expect_log(const std::string& part) {
    std::unique_lock lock(mutex_);
    const bool found = changed_.wait_for(lock, patience, [&] {
      for (const std::string& line : log_)
        if (line.find(part) != std::string::npos) return true;
      return false;
    });
    cr_assert(found, "nothing logged with \"%s\"; the last line: %s", part.c_str(), log_.empty() ? "" : log_.back().c_str());
  }

  Server& server() { return *server_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> log_;
  bool awake_ = false;
  std::vector<Server::Event> events_;
  std::unique_ptr<Server> server_;
};

std::unique_ptr<Client> client_of(Host& host, const PrivateMunge& munge,
                                  std::function<bool(uid_t)> trust = [](uid_t uid) { return uid == geteuid(); }) {
  auto client = Client::connect({"127.0.0.1", host.server().port(), munge.socket(), std::move(trust)}, 10s);
  cr_assert(client.ok(), "%s", client.ok() ? "" : client.error().message().c_str());
  return std::move(*client);
}

/// A peer that can send whatever it likes.
class RawPeer {
 public:
  RawPeer(Host& host, const PrivateMunge& munge) : munge_(MungeThread::start(munge.socket())), reader_(1 << 20) {
    auto fd = connect_to("127.0.0.1", host.server().port(), 10s);
    cr_assert(fd.ok());
    fd_ = std::move(*fd);
  }
  void greet() {
    const auto frame = next();
    cr_assert(frame.has_value());
    const auto nonce = nonce_from(*frame);
    cr_assert(nonce.ok());
    seal_.emplace(Side::client, *nonce);
  }
  std::string credential(const std::string& payload) {
    (*munge_)->seal(++ticket_, payload, std::nullopt);
    auto done = (*munge_)->wait(ticket_, 30s);
    cr_assert(done.ok() && !done->error);
    return done->data;
  }
  std::string frame_of(const Message& message) { return framed(credential(seal_->wrap(message))); }
  void send(const std::string& bytes) {
    cr_assert_eq(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  bool closed() {
    while (next()) continue;
    return ended_;
  }
  Seal& seal() { return *seal_; }

 private:
  std::optional<std::string> next() {
    for (;;) {
      auto frame = reader_.next();
      cr_assert(frame.ok());
      if (*frame) return *frame;
      pollfd ready{fd_.get(), POLLIN, 0};
      if (poll(&ready, 1, 20000) != 1) return std::nullopt;
      char bytes[4096];
      const ssize_t count = recv(fd_.get(), bytes, sizeof bytes, 0);
      if (count <= 0) {
        ended_ = true;
        return std::nullopt;
      }
      reader_.append({bytes, static_cast<std::size_t>(count)});
    }
  }
  Result<std::unique_ptr<MungeThread>> munge_;
  Fd fd_;
  FrameReader reader_;
  std::optional<Seal> seal_;
  std::uint64_t ticket_ = 0;
  bool ended_ = false;
};

Hello hello(JobId job) {
  Hello message;
  message.job = job;
  message.workers = 1;
  return message;
}

template <typename T>
const T& as(const Message& message) {
  cr_assert(std::holds_alternative<T>(message), "it is %s", to_json(message).dump().c_str());
  return std::get<T>(message);
}

Message received(Client& client) {
  auto message = client.receive(std::chrono::milliseconds(patience));
  cr_assert(message.ok(), "%s", message.ok() ? "" : message.error().message().c_str());
  cr_assert(message->has_value());
  return **message;
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

  for (int i = 1; i <= 50; ++i) host.server().send(first.connection, Shrink{{static_cast<JobId>(i)}, i, "x"});
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

Test(transport, a_frame_above_the_cap_is_refused, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.most_frame_bytes = 4096;
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

Test(transport, garbage_is_refused, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  RawPeer peer(host, munge);
  peer.send(framed("GET / HTTP/1.0\r\n\r\n"));
  cr_assert(peer.closed());
  host.expect_log("munge refused the credential");
  RawPeer no_json(host, munge);
  no_json.greet();
  no_json.send(framed(no_json.credential("\xff\x00{{")));
  cr_assert(no_json.closed());
  host.expect_log("no JSON");
  RawPeer empty(host, munge);
  empty.send(std::string(4, '\0'));
  cr_assert(empty.closed());
}

Test(transport, who_says_nothing_is_cut_off, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.first_message_s = 0.2;
  Host host(munge, options);
  RawPeer peer(host, munge);
  cr_assert(peer.closed());
  host.expect_log("no good message within 0.2 s");
}

Test(transport, two_hundred_slow_clients_do_not_delay_a_good_one, .timeout = 120) {
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
  cr_assert_lt(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10.0);
}

Test(transport, a_newcomer_takes_the_place_of_the_oldest_silent_one, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.most_unauthenticated = 4;
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

Test(transport, a_uid_that_is_not_allowed_is_told_so, .timeout = 120) {
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

Test(transport, one_user_has_so_many_connections_and_no_more, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.most_connections_per_user = 2;
  Host host(munge, options);
  const auto one = client_of(host, munge), two = client_of(host, munge), three = client_of(host, munge);
  for (Client* client : {one.get(), two.get()}) {
    cr_assert(client->send(hello(1)).ok());
    host.next();
  }
  cr_assert(three->send(hello(1)).ok());
  cr_assert_neq(as<Refused>(received(*three)).reason.find("2 connections already"), std::string::npos);
}

Test(transport, a_server_of_another_user_is_not_trusted, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  const auto client = client_of(host, munge, [](uid_t uid) { return uid == geteuid() + 1; });
  cr_assert(client->send(hello(1)).ok());
  host.server().send(host.next().connection, Bye{0});
  const auto message = client->receive(10s);
  cr_assert_not(message.ok());
  cr_assert_neq(message.error().message().find("not trusted"), std::string::npos);
}

Test(transport, who_reads_too_slowly_is_closed, .timeout = 120) {
  PrivateMunge munge;
  Server::Options options;
  options.most_frame_bytes = 4096;
  Host host(munge, options);
  const auto client = client_of(host, munge);
  cr_assert(client->send(hello(1)).ok());
  const ConnectionId connection = host.next().connection;
  for (int i = 0; i < 100; ++i) host.server().send(connection, Refused{std::string(2000, 'x')});
  host.expect_log("reads too slowly");
  cr_assert_eq(host.next().kind, Server::Event::Kind::closed);
}

Test(transport, without_munged_sending_is_an_error, .timeout = 120) {
  PrivateMunge munge;
  Host host(munge);
  const auto client = client_of(host, munge);
  munge.signal(SIGKILL);
  cr_assert_not(client->send(hello(1)).ok());
}

Test(transport, a_munged_that_hangs_blocks_neither_the_client_nor_the_servers_end, .timeout = 120) {
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
  cr_assert_lt(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 30.0);
}

Test(transport, nobody_listening_is_an_error_that_names_the_address) {
  const auto client = Client::connect({"127.0.0.1", 1, "", {}}, 2s);
  cr_assert_not(client.ok());
  cr_assert_neq(client.error().message().find("127.0.0.1:1"), std::string::npos);
}
