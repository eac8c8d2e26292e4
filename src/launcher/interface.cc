// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/interface.h"

#include <algorithm>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <optional>

#include "core/number.h"

namespace swell::launcher {

namespace {

struct Network {
  std::string bytes;  ///< 4 or 16
  int bits = 0;
};

std::optional<Network> network_from(const std::string& text) {
  const auto slash = text.find('/');
  const std::string address = text.substr(0, slash);
  char bytes[sizeof(in6_addr)];
  Network network;
  for (const auto& [family, size] : {std::pair{AF_INET, 4}, std::pair{AF_INET6, 16}})
    if (inet_pton(family, address.c_str(), bytes) == 1)
      network.bytes.assign(bytes, static_cast<std::size_t>(size));
  const int all = static_cast<int>(network.bytes.size()) * 8;
  const auto bits =
      slash == std::string::npos ? std::optional(all) : read_whole<int>(text.substr(slash + 1));
  if (all == 0 || !bits || *bits > all) return std::nullopt;
  network.bits = *bits;
  return network;
}

bool is_in(const Network& network, const std::string& address) {
  const auto its = network_from(address);
  if (!its || its->bytes.size() != network.bytes.size()) return false;
  for (int bit = 0; bit < network.bits; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    if (((its->bytes[byte] ^ network.bytes[byte]) >> (7 - bit % 8)) & 1) return false;
  }
  return true;
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = "";
    if (getnameinfo(one->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 &&
        std::string_view(text).find('%') == std::string_view::npos)
      found.emplace_back(one->ifa_name, text);
  }
  return found;
}

Result<std::string> choose_address(const std::string& wanted,
                                   const std::vector<InterfaceAddress>& addresses) {
  const auto network = network_from(wanted);
  for (const bool is_ipv6 : {false, true})
    for (const auto& [name, address] : addresses)
      if ((address.find(':') != std::string::npos) == is_ipv6 &&
          (name == wanted || (network && is_in(*network, address))))
        return address;
  std::string there;
  for (const auto& [name, address] : addresses)
    there += fmt::format("{}{} ({})", there.empty() ? "" : ", ", name, address);
  return Error(
      fmt::format("--interface={}: this host has no address on it; it has {}", wanted, there));
}

}  // namespace swell::launcher
