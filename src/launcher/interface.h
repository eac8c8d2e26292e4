// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace swell::launcher {

/// An interface's name and one of its addresses.
using InterfaceAddress = std::pair<std::string, std::string>;

/// This host's addresses of interfaces that are up, without link-local ones.
std::vector<InterfaceAddress> interface_addresses();

/// The address of `wanted` among them: an interface's name, a network such as "10.1.0.0/16", or an
/// address; IPv4 first. The error names what there is.
Result<std::string> choose_address(const std::string& wanted,
                                   const std::vector<InterfaceAddress>& addresses);

}  // namespace swell::launcher
