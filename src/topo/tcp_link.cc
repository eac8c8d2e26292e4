// SPDX-License-Identifier: GPL-2.0-or-later
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

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
  if (bind(fd, at.ai_addr, at.ai_addrlen) != 0 || listen(fd, 1) != 0)
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

Result<std::unique_ptr<Link>> Listener::accept() {
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, 1000 * Link::kPatience_s) != 1)
    return Error(fmt::format("nobody has connected within {} s", Link::kPatience_s));
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return failure("accept");
  return std::unique_ptr<Link>(std::make_unique<TcpLink>(fd));
}

Result<std::unique_ptr<Link>> connect_tcp(const std::string& address, int port) {
  auto found = resolve(address, port);
  if (!found) return found.error();
  const addrinfo& at = **found;
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failure("socket");
  auto link = std::make_unique<TcpLink>(fd);
  if (connect(fd, at.ai_addr, at.ai_addrlen) != 0)
    return failure(fmt::format("connecting to {} port {}", address, port));
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace swell::topo
