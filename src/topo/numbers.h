// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace swell::topo {

/// Writes rising whole numbers as ranges: "0-3,8".
std::string ranges(std::vector<int> numbers);

/// Reads a GID ("fe80:0000:0000:0000:0c42:a103:00ab:cdef") into its two halves; sets both to 0 if
/// the text is not a GID.
void read_gid(std::string_view text, std::uint64_t& subnet_prefix, std::uint64_t& guid);

/// Returns the bytes per second of a PCIe link in one direction, without the overhead of its
/// coding, from sysfs's link speed ("32.0 GT/s PCIe") and width ("16"); 0 for other text.
double pcie_bandwidth(const std::string& speed, const std::string& width);

}  // namespace swell::topo
