// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/socket.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>

namespace swell::control {

namespace {

/// Backlog of connections that wait to be accepted. During a flood they are accepted at a bounded
/// rate: in a longer backlog they would wait longer than clients do.
constexpr int kBacklog = 256;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses> resolve(const std::string& host, std::uint16_t port) {
  if (host.empty()) return Error("no address is given");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return Error(fmt::format("{}: {}", host, gai_strerror(code)));
  return Addresses(found, &freeaddrinfo);
}

Descriptor new_socket(const addrinfo& address) {
  Descriptor fd(
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (fd) tune(fd.get());
  return fd;
}

void set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

/// Connects before `deadline`. Returns 0 or an errno.
int connected(int fd, const addrinfo& address, std::chrono::steady_clock::time_point deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return ETIMEDOUT;
    pollfd ready{fd, POLLOUT, 0};
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    int code = 0;
    socklen_t size = sizeof code;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
    return code;
  }
}

struct Name {
  std::string host, port;
};

Name name_of(int fd, int (*get)(int, sockaddr*, socklen_t*) noexcept) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "0";
  if (get(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, port};
}

}  // namespace

void tune(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Detects within a minute that the other host has vanished.
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

Result<Descriptor> listen_on(const std::string& address, std::uint16_t port) {
  const std::string what = fmt::format("listening on {}:{}", address, port);
  const auto addresses = resolve(address, port);
  if (!addresses) return addresses.error().while_doing(what);
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* one = addresses->get(); one != nullptr; one = one->ai_next) {
    Descriptor fd = new_socket(*one);
    const int on = 1;
    if (fd && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 && listen(fd.get(), kBacklog) == 0)
      return fd;
    problem = errno;
  }
  return Error(fmt::format("{}: {}", what, std::strerror(problem)));
}

Result<Descriptor> listen_within(const std::string& address, PortRange range) {
  const unsigned count = range.last >= range.first ? range.last - range.first + 1U : 0;
  const unsigned start = std::random_device()();
  for (unsigned i = 0; i < count; ++i) {
    const auto port = static_cast<std::uint16_t>(range.first + (start % count + i) % count);
    if (auto fd = listen_on(address, port); fd || count == 1) return fd;
  }
  return Error(
      fmt::format("listening on {}: no port of {}-{} is free", address, range.first, range.last));
}

Result<Descriptor> connect_to(const std::string& host, std::uint16_t port,
                              std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const std::string what = fmt::format("connecting to {}:{}", host, port);
  const auto addresses = resolve(host, port);
  if (!addresses) return addresses.error().while_doing(what);
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* one = addresses->get(); one != nullptr; one = one->ai_next) {
    Descriptor fd = new_socket(*one);
    problem = fd ? connected(fd.get(), *one, deadline) : errno;
    if (problem == 0) return fd;
  }
  return Error(fmt::format("{}: {}", what, std::strerror(problem)));
}

Result<std::string> address_towards(const std::string& host) {
  constexpr std::uint16_t kAnyPort = 9;  // connecting a datagram socket sends nothing
  const auto addresses = resolve(host, kAnyPort);
  if (!addresses) return addresses.error();
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* one = addresses->get(); one != nullptr; one = one->ai_next) {
    const Descriptor fd(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd && connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0) return local_host(fd.get());
    problem = errno;
  }
  return Error(fmt::format("no way to {}: {}", host, std::strerror(problem)));
}

std::uint16_t local_port(int fd) {
  return static_cast<std::uint16_t>(std::stoi(name_of(fd, getsockname).port));
}
std::string local_host(int fd) { return name_of(fd, getsockname).host; }

std::string peer_name(int fd) {
  const Name name = name_of(fd, getpeername);
  return fmt::format("{}:{}", name.host, name.port);
}

}  // namespace swell::control
