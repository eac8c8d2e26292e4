// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace swell::topo {

/// Rising whole numbers as ranges: "0-3,8".
std::string ranges(std::vector<int> numbers);

/// A GID ("fe80:0000:0000:0000:0c42:a103:00ab:cdef") as its two halves; both 0 where it is none.
void read_gid(std::string_view text, std::uint64_t& subnet_prefix, std::uint64_t& guid);

/// PCIe's bytes a second in one direction, after its coding, of sysfs's link speed ("32.0 GT/s
/// PCIe") and width ("16"); 0 where they are not that.
double pcie_bandwidth(const std::string& speed, const std::string& width);

}  // namespace swell::topo
