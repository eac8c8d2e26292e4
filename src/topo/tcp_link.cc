// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "topo/link.h"

namespace swell::topo {

namespace {

Error failure(const std::string& what) {
  return Error(fmt::format("{}: {}", what, std::strerror(errno)));
}

class TcpLink final : public Link {
 public:
  explicit TcpLink(int fd) noexcept : fd_(fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const timeval patience{kPatience_s, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  }
  ~TcpLink() override { close(fd_); }

  Result<void> send(const char* data, std::size_t bytes, int count) override {
    for (int i = 0; i < count; ++i)
      for (std::size_t done = 0; done < bytes;) {
        const ssize_t n = ::send(fd_, data + done, bytes - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return failure("sending");
        done += static_cast<std::size_t>(n);
      }
    return {};
  }

  Result<void> receive(char* data, std::size_t bytes, int count) override {
    for (int i = 0; i < count; ++i)
      for (std::size_t done = 0; done < bytes;) {
        const ssize_t n = recv(fd_, data + done, bytes - done, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) return Error("the other side has closed the connection");
        if (n < 0) return failure("receiving");
        done += static_cast<std::size_t>(n);
      }
    return {};
  }

 private:
  int fd_;
};

struct Free {
  void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
};

Result<std::unique_ptr<addrinfo, Free>> resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int problem = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (problem != 0) return Error(fmt::format("address {}: {}", address, gai_strerror(problem)));
  return std::unique_ptr<addrinfo, Free>(list);
}

}  // namespace

Result<Listener> Listener::open(const std::string& address) {
  auto found = resolve(address, 0);
  if (!found) return found.error();
  const addrinfo& at = **found;
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failure("socket");
  Listener made(fd, 0);
  if (bind(fd, at.ai_addr, at.ai_addrlen) != 0 || listen(fd, 1024) != 0)
    return failure("listening at " + address);
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0)
    return failure("getsockname");
  made.port_ = ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                                : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
  return made;
}

Listener::~Listener() {
  if (fd_ >= 0) close(fd_);
}

namespace {

using Clock = std::chrono::steady_clock;

/// Returns the CPU time of the calling thread.
double thread_time_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Sent to the peer that has the token.
constexpr char kWelcome = 'w';

struct Silent {
  int fd;
  std::string said;
};

/// Returns whether all bytes are equal, in a time that does not depend on where they differ.
bool equal(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

/// Connections that have not sent the token yet.
class SilentPeers {
 public:
  ~SilentPeers() {
    for (const Silent& each : peers_) close(each.fd);
  }
  void add(int fd) {
    if (peers_.size() == Listener::kMaxSilent) {
      close(peers_.front().fd);
      peers_.erase(peers_.begin());
    }
    peers_.push_back({fd, {}});
  }
  bool drop_oldest() {
    if (peers_.empty()) return false;
    close(peers_.front().fd);
    peers_.erase(peers_.begin());
    return true;
  }
  void add_to(std::vector<pollfd>& polled) const {
    for (const Silent& each : peers_) polled.push_back({each.fd, POLLIN, 0});
  }
  /// Reads what they have sent. Returns the connection that has sent the token, and hands it to the
  /// caller; -1: none has.
  int read(const std::string& token) {
    for (auto each = peers_.begin(); each != peers_.end();) {
      std::string part(token.size() - each->said.size(), '\0');
      const ssize_t count = recv(each->fd, part.data(), part.size(), MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        ++each;
        continue;
      }
      each->said.append(part.data(), static_cast<std::size_t>(std::max<ssize_t>(0, count)));
      if (count > 0 && each->said.size() < token.size()) {
        ++each;
        continue;
      }
      const int fd = each->fd;
      const bool is_good = equal(each->said, token);
      each = peers_.erase(each);
      if (is_good && ::send(fd, &kWelcome, 1, MSG_NOSIGNAL) == 1) return fd;
      close(fd);
    }
    return -1;
  }

 private:
  std::vector<Silent> peers_;
};

}  // namespace

Result<std::unique_ptr<Link>> Listener::accept(const std::string& token, CpuShare share) {
  using Seconds = std::chrono::duration<double>;
  SilentPeers peers;
  const auto deadline = Clock::now() + std::chrono::seconds(Link::kPatience_s);
  double used_s = thread_time_s();
  for (;;) {
    const double now_s = Seconds(Clock::now().time_since_epoch()).count();
    const double before_s = std::exchange(used_s, thread_time_s());
    share.use(used_s - before_s, now_s);
    if (const double wait_s = share.wait_s(now_s); wait_s > 0)
      std::this_thread::sleep_for(Seconds(wait_s));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Error(fmt::format("nobody has connected within {} s", Link::kPatience_s));
    std::vector<pollfd> polled = {{fd_, POLLIN, 0}};
    peers.add_to(polled);
    poll(polled.data(), polled.size(), static_cast<int>(left));
    if (const int fd = peers.read(token); fd >= 0)
      return std::unique_ptr<Link>(std::make_unique<TcpLink>(fd));
    if ((polled[0].revents & POLLIN) == 0) continue;
    if (const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); fd >= 0) peers.add(fd);
    else if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) &&
             !peers.drop_oldest())
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

Result<std::unique_ptr<Link>> connect_tcp(const std::string& address, int port,
                                          const std::string& token) {
  auto found = resolve(address, port);
  if (!found) return found.error();
  const addrinfo& at = **found;
  const auto deadline = Clock::now() + std::chrono::seconds(Link::kPatience_s);
  for (;;) {
    const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return failure("socket");
    auto link = std::make_unique<TcpLink>(fd);
    if (connect(fd, at.ai_addr, at.ai_addrlen) != 0)
      return failure(fmt::format("connecting to {} port {}", address, port));
    char welcome = 0;
    Result<void> said = link->send(token.data(), token.size(), 1);
    if (said) said = link->receive(&welcome, 1, 1);
    if (said && welcome == kWelcome) return std::unique_ptr<Link>(std::move(link));
    if (Clock::now() >= deadline)
      return Error(fmt::format("{} port {} does not take the connection{}{}", address, port,
                               said ? "" : ": ", said ? "" : said.error().message()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace swell::topo
