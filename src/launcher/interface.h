// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace swell::launcher {

/// An interface's name and one of its addresses.
using InterfaceAddress = std::pair<std::string, std::string>;

/// Returns this host's addresses on interfaces that are up, without link-local ones.
std::vector<InterfaceAddress> interface_addresses();

/// Returns the first of `addresses` that matches `wanted`, IPv4 first: an interface's name, a
/// network such as "10.1.0.0/16", or an address. The error lists the addresses.
Result<std::string> choose_address(const std::string& wanted,
                                   const std::vector<InterfaceAddress>& addresses);

}  // namespace swell::launcher
