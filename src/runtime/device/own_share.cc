// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/own_share.h"

#include <fcntl.h>

#include "base/byte_message.h"

namespace swell::runtime {

std::string write(const OwnShare& share) {
  return ByteWriter().put(share.address).put(share.bytes).text(share.handle).take();
}

Result<OwnShare> read_own_share(std::string_view body, const Descriptor& fd) {
  ByteReader reader(body);
  OwnShare share;
  share.address = reader.get<std::uint64_t>();
  share.bytes = reader.get<std::uint64_t>();
  share.handle = reader.text(OwnShare::kHandleBytes);
  if (!reader.done() || share.bytes == 0 || share.address + share.bytes < share.address)
    return Error("how a program's GPU memory is shared cannot be read");
  if (share.handle.empty()) {
    const int its = fd ? fcntl(fd.get(), F_DUPFD_CLOEXEC, 3) : -1;
    if (its < 0) return Error("no descriptor of a program's GPU memory came, or none can be kept");
    share.fd = std::make_shared<Descriptor>(its);
  } else if (share.handle.size() != OwnShare::kHandleBytes) {
    return Error("a handle of GPU memory has another size");
  }
  return share;
}

}  // namespace swell::runtime
