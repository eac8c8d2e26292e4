// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace swell::runtime {

using Digest256 = std::array<std::uint8_t, 32>;

/// Returns the SHA-256 digest (FIPS 180-4).
Digest256 sha256(std::string_view bytes);
/// Returns the HMAC-SHA-256 (RFC 2104), which proves possession of `key` without showing it.
Digest256 hmac_sha256(std::string_view key, std::string_view bytes);
/// Returns whether both are equal, in a time that does not depend on where they differ.
bool equal(const Digest256& a, const Digest256& b) noexcept;

}  // namespace swell::runtime
