// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/wire/hmac.h"

#include <sodium.h>

namespace swell::runtime {

namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Digest256 hmac_sha256(std::string_view key, std::string_view bytes) {
  static_assert(crypto_auth_hmacsha256_BYTES == Digest256{}.size());
  static const int is_initialized = sodium_init();  // libsodium asks for it before any other call
  static_cast<void>(is_initialized);
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, bytes_of(key), key.size());
  crypto_auth_hmacsha256_update(&state, bytes_of(bytes), bytes.size());
  Digest256 digest;
  crypto_auth_hmacsha256_final(&state, digest.data());
  return digest;
}

bool equal(const Digest256& a, const Digest256& b) noexcept {
  return crypto_verify_32(a.data(), b.data()) == 0;
}

}  // namespace swell::runtime
