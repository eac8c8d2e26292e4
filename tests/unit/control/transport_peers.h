// SPDX-License-Identifier: GPL-2.0-or-later
// Servers, clients and peers that keep to no protocol, for tests of the transport.
#pragma once

#include <arpa/inet.h>
#include <chrono>
#include <condition_variable>
#include <criterion/criterion.h>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "control/client.h"
#include "control/frame.h"
#include "control/munge_thread.h"
#include "control/server.h"
#include "control/socket.h"
#include "private_munge.h"

namespace swell::test {

using namespace swell::control;

inline constexpr auto patience = std::chrono::seconds(20);

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
    std::optional<Server::Event> event = next_within(patience);
    cr_assert(event.has_value(), "no event");
    return *std::move(event);
  }

  /// Returns the next event; nothing if there is none for so long.
  std::optional<Server::Event> next_within(std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (events_.empty()) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_until(lock, deadline, [this] { return awake_; })) return std::nullopt;
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
    cr_assert(found, "nothing logged with \"%s\"; the last line: %s", part.c_str(),
              log_.empty() ? "" : log_.back().c_str());
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

inline std::unique_ptr<Client> client_of(
    Host& host, const PrivateMunge& munge,
    std::function<bool(uid_t)> trust = [](uid_t uid) { return uid == geteuid(); }) {
  auto client =
      Client::connect({"127.0.0.1", host.server().port(), munge.socket(), std::move(trust)},
                      std::chrono::seconds(10));
  cr_assert(client.ok(), "%s", client.ok() ? "" : client.error().message().c_str());
  return std::move(*client);
}

/// A peer that can send whatever it likes.
class RawPeer {
 public:
  /// `from`: its own address, one of the loopback network.
  RawPeer(Host& host, const PrivateMunge& munge, const char* from = "127.0.0.1")
      : munge_(MungeThread::start(munge.socket())),
        reader_(1 << 20),
        fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{}, server{};
    own.sin_family = server.sin_family = AF_INET;
    server.sin_port = htons(host.server().port());
    cr_assert(inet_pton(AF_INET, from, &own.sin_addr) == 1 &&
              inet_pton(AF_INET, "127.0.0.1", &server.sin_addr) == 1);
    cr_assert_eq(bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    cr_assert_eq(connect(fd_.get(), reinterpret_cast<sockaddr*>(&server), sizeof server), 0);
  }
  void greet() {
    const auto frame = next();
    cr_assert(frame.has_value());
    const auto nonce = nonce_from(*frame);
    cr_assert(nonce.ok());
    seal_.emplace(Side::client, *nonce);
    nonce_ = *nonce;
  }
  std::string credential(const std::string& payload) {
    (*munge_)->seal(++ticket_, payload, std::nullopt);
    auto done = (*munge_)->wait(ticket_, std::chrono::seconds(30));
    cr_assert(done.ok() && !done->error);
    return done->data;
  }
  std::string frame_of(const Message& message) { return framed(credential(seal_->wrap(message))); }
  void send(const std::string& bytes) {
    cr_assert_eq(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                 static_cast<ssize_t>(bytes.size()));
  }
  bool closed() {
    while (next()) continue;
    return ended_;
  }
  /// The next frame as it came, a credential.
  std::string received() {
    const auto frame = next();
    cr_assert(frame.has_value());
    return *frame;
  }
  Seal& seal() { return *seal_; }
  const std::string& nonce() const { return nonce_; }

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
  FrameReader reader_;
  Descriptor fd_;
  std::optional<Seal> seal_;
  std::string nonce_;
  std::uint64_t ticket_ = 0;
  bool ended_ = false;
};

inline Hello hello(JobId job) {
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

inline Message received(Client& client) {
  auto message = client.receive(std::chrono::milliseconds(patience));
  cr_assert(message.ok(), "%s", message.ok() ? "" : message.error().message().c_str());
  cr_assert(message->has_value());
  return **message;
}

}  // namespace swell::test
