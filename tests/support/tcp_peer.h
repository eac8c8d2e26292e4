// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <poll.h>
#include <string_view>
#include <sys/socket.h>

#include "runtime/transport/channel.h"

namespace support {

/// Returns the next connection of a listening socket.
inline swell::Descriptor accept_one(int listening) {
  return swell::Descriptor(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
}

/// Returns the next connection, after its peer has authenticated with the key.
inline swell::Result<swell::runtime::Channel> accept_with(int listening, std::string_view key) {
  auto proof = swell::runtime::PeerProof::begin(accept_one(listening));
  if (!proof) return proof.error();
  for (;;) {
    pollfd ready{proof->fd(), POLLIN, 0};
    poll(&ready, 1, -1);
    const auto shown = proof->read(key);
    if (!shown) return shown.error();
    if (*shown) return proof->channel();
  }
}

}  // namespace support
