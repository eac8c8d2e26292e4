// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell::topo {

/// Switch that one of `port_guids` is plugged into, from a list of the whole InfiniBand subnet: the
/// output of ibnetdiscover, or OpenSM's opensm-subnet.lst. The first port that is in the list
/// counts. Gives the switch's name where the list has one, otherwise "S-" and its GUID; nothing
/// where no port is in the list, or the text is no such list.
std::optional<std::string> leaf_switch(std::string_view list,
                                       const std::vector<std::uint64_t>& port_guids);

}  // namespace swell::topo
