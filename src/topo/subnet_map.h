// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell::topo {

/// Returns the switch to which one of `port_guids` is connected, from a list of the whole
/// InfiniBand subnet: the output of ibnetdiscover, or OpenSM's opensm-subnet.lst. Uses the first
/// port that is in the list. Returns the switch's name if the list has one, otherwise "S-" and its
/// GUID; nothing if no port is in the list, or the text is not such a list.
std::optional<std::string> leaf_switch(std::string_view list,
                                       const std::vector<std::uint64_t>& port_guids);

}  // namespace swell::topo
