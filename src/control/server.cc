// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>

#include "base/mutex.h"
#include "control/quiet_thread.h"
#include "control/server_loop.h"

namespace swell::control {

namespace {

class LiveServer final : public Server {
 public:
  static Result<std::unique_ptr<Server>> start(Options options, std::function<void()> wake) {
    Result<Descriptor> listener = listen_within(options.address, options.ports);
    if (!listener) return listener.error();
    Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll) return Error(std::string("no epoll: ") + std::strerror(errno));
    auto munge = MungeThread::start(options.munge_socket);
    if (!munge) return munge.error();
    std::unique_ptr<LiveServer> server(new LiveServer);
    if (server->mailbox_.wake.fd() < 0) return Error("no eventfd: too many open files");
    server->port_ = local_port(listener->get());
    server->wake_ = wake;
    server->max_taken_of_user_ = options.max_taken_of_user;
    server->loop_ =
        std::make_unique<ServerLoop>(std::move(options), std::move(wake), std::move(*listener),
                                     std::move(epoll), std::move(*munge), server->mailbox_);
    server->thread_ = quiet_thread("swell-control", [loop = server->loop_.get()] { loop->run(); });
    return std::unique_ptr<Server>(std::move(server));
  }

  ~LiveServer() override {
    mailbox_.stop = true;
    mailbox_.wake.signal();
    if (thread_.joinable()) thread_.join();
  }

  std::uint16_t port() const override { return port_; }

  std::vector<Event> take() override {
    std::vector<Event> events;
    bool has_more = false;
    {
      const Lock lock(mailbox_.mutex);
      std::map<uid_t, int> taken;
      auto posted = std::exchange(mailbox_.events, {});
      mailbox_.event_bytes = 0;
      mailbox_.untaken_of.clear();
      for (Mailbox::Posted& each : posted)
        if (max_taken_of_user_ == 0 || ++taken[each.event.uid] <= max_taken_of_user_)
          events.push_back(std::move(each.event));
        else mailbox_.post(std::move(each));
      has_more = !mailbox_.events.empty();
      ++mailbox_.take_number;
    }
    // Wake the loop: it may have paused connections until now.
    if (!events.empty()) mailbox_.wake.signal();
    if (has_more && wake_) wake_();
    return events;
  }

  void send(ConnectionId connection, Message message) override {
    order({connection, std::move(message)});
  }
  void close(ConnectionId connection) override { order({connection, std::nullopt}); }

 private:
  LiveServer() = default;

  void order(Mailbox::Order order) {
    {
      const Lock lock(mailbox_.mutex);
      mailbox_.orders.push_back(std::move(order));
    }
    mailbox_.wake.signal();
  }

  std::uint16_t port_ = 0;
  int max_taken_of_user_ = 0;
  std::function<void()> wake_;
  Mailbox mailbox_;
  std::unique_ptr<ServerLoop> loop_;
  std::thread thread_;
};

}  // namespace

void Server::Options::leave_files(std::uint64_t max_files) {
  const auto half = static_cast<int>(
      std::clamp<std::uint64_t>(max_files / 2, 16, static_cast<std::uint64_t>(max_connections)));
  max_connections = half;
  max_connections_per_user = std::min(max_connections_per_user, half / 2);
  max_unauthenticated = std::min(max_unauthenticated, half / 2);
  max_unauthenticated_per_address = std::min(max_unauthenticated_per_address, half / 4);
}

Result<std::unique_ptr<Server>> Server::start(Options options, std::function<void()> wake) {
  try {
    return LiveServer::start(std::move(options), std::move(wake));
  } catch (const std::exception& e) {
    return Error(std::string("starting the control server: ") + e.what());
  }
}

}  // namespace swell::control
