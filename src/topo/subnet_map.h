// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell::topo {

/// The switch that one of these ports is plugged into, by a list of the whole InfiniBand subnet:
/// what ibnetdiscover prints, or OpenSM's opensm-subnet.lst. The first port that is in the list
/// counts. The switch's name where the list has one, else "S-" and its GUID. Nothing where no port
/// is in it; text that is no such list has no ports.
std::optional<std::string> leaf_switch(std::string_view list,
                                       const std::vector<std::uint64_t>& port_guids);

}  // namespace swell::topo
