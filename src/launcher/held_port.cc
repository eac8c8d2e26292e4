// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/held_port.h"

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <netinet/in.h>
#include <optional>
#include <random>
#include <sys/socket.h>

#include "core/number.h"

namespace swell::launcher {

namespace {

/// Many services use ports below these.
constexpr int kFirst = 10'000, kLast = 65'535;
/// Ports that programs choose by themselves: torchrun and examples of PyTorch.
constexpr int kTorchFirst = 29'400, kTorchLast = 29'600;
constexpr std::size_t kFewest = 256;
constexpr int kTries = 512;

using Ports = std::bitset<kLast + 1>;

void mark(Ports& ports, int first, int last) {
  for (int port = std::max(first, 0); port <= std::min(last, kLast); ++port)
    ports.set(static_cast<std::size_t>(port));
}

/// Marks the ports of a list such as "8080,9000-9100".
void mark_list(Ports& ports, std::string_view list) {
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const auto first = read_number<int>(part.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : read_number<int>(part.substr(dash + 1));
    if (first && last) mark(ports, *first, *last);
  }
}

std::string setting(const char* name) {
  std::ifstream file(std::string("/proc/sys/net/ipv4/") + name);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns a socket bound to the port, 0 for any, on all addresses of the host, if no other socket
/// is bound to it. Others may bind to it afterwards, with SO_REUSEADDR.
Descriptor bound(std::uint16_t port) {
  const int on = 1, off = 0;
  Descriptor fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd && setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0)
      return fd;
    if (errno == EADDRINUSE) return {};
  }
  fd = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // a host without IPv6
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (fd && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0)
    return fd;
  return {};
}

}  // namespace

std::vector<std::uint16_t> ports_for_programs(std::string_view range, std::string_view reserved) {
  Ports taken;
  const std::size_t blank = std::min(range.find_first_of(" \t"), range.size());
  const std::size_t second = std::min(range.find_first_not_of(" \t", blank), range.size());
  const auto first = read_number<int>(range.substr(0, blank));
  const auto last = read_number<int>(range.substr(second));
  if (first && last) mark(taken, *first, *last);
  else mark(taken, 32'768, 60'999);  // Linux's default
  mark_list(taken, reserved);
  mark(taken, kTorchFirst, kTorchLast);
  std::vector<std::uint16_t> left;
  for (int port = kFirst; port <= kLast; ++port)
    if (!taken[static_cast<std::size_t>(port)]) left.push_back(static_cast<std::uint16_t>(port));
  if (left.size() < kFewest) left.clear();
  return left;
}

Result<HeldPort> HeldPort::take() {
  std::vector<std::uint16_t> ports =
      ports_for_programs(setting("ip_local_port_range"), setting("ip_local_reserved_ports"));
  // Shuffled, so that shims of a node, of whichever job, seldom try the same port.
  std::random_device random;
  std::shuffle(ports.begin(), ports.end(), std::mt19937(random()));
  if (ports.size() > kTries) ports.resize(kTries);
  ports.push_back(0);  // any port, in the range for outgoing connections
  for (const std::uint16_t port : ports)
    if (Descriptor fd = bound(port)) {
      const std::uint16_t number = control::local_port(fd.get());
      return HeldPort(std::move(fd), number);
    }
  return Error(fmt::format("no TCP port is free for MASTER_PORT: {}", std::strerror(errno)));
}

}  // namespace swell::launcher
