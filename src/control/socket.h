// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unistd.h>
#include <utility>

#include "base/descriptor.h"
#include "core/result.h"

namespace swell::control {

/// Returns a listening, non-blocking, close-on-exec TCP socket; accepted connections inherit its
/// options. The error names address and port.
Result<Descriptor> listen_on(const std::string& address, std::uint16_t port);

/// Ports from `first` to `last`; both 0: any.
struct PortRange {
  std::uint16_t first = 0, last = 0;
};

/// Does the same at a free port of the range; the search starts at a random port.
Result<Descriptor> listen_within(const std::string& address, PortRange range);

/// Returns a connected, non-blocking, close-on-exec TCP socket. Tries all of the host's addresses.
Result<Descriptor> connect_to(const std::string& host, std::uint16_t port,
                              std::chrono::milliseconds timeout);

/// Returns the local address from which `host` would be reached; sends nothing. The error names the
/// host.
Result<std::string> address_towards(const std::string& host);

/// Makes the socket send small messages at once and detect that the other host has vanished.
void tune(int fd);

std::uint16_t local_port(int fd);
std::string local_host(int fd);
/// Returns "address:port" of the other side, for logs.
std::string peer_name(int fd);

}  // namespace swell::control
