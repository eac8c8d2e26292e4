// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "control/socket.h"
#include "core/result.h"

namespace swell::launcher {

/// A TCP port of this host that is kept for a program which listens on it later (MASTER_PORT): a
/// socket that is bound to it on all addresses and never listens. Linux then gives the port to no
/// outgoing connection, and to no other socket but one with SO_REUSEADDR that is bound to it by
/// number, as PyTorch's TCPStore and gRPC do.
class HeldPort {
 public:
  HeldPort() noexcept = default;
  /// Takes a port that nobody uses, outside of the range for outgoing connections if one is free
  /// there. The error says why there is none.
  static Result<HeldPort> take();

  std::uint16_t number() const noexcept { return number_; }

 private:
  HeldPort(Descriptor fd, std::uint16_t number) noexcept : fd_(std::move(fd)), number_(number) {}
  Descriptor fd_;
  std::uint16_t number_ = 0;
};

/// Returns the ports that a program may be given, by Linux's settings: `range` is
/// net.ipv4.ip_local_port_range ("32768 60999"), `reserved` is net.ipv4.ip_local_reserved_ports
/// ("8080,9000-9100"). Empty if the range leaves too few.
std::vector<std::uint16_t> ports_for_programs(std::string_view range, std::string_view reserved);

}  // namespace swell::launcher
