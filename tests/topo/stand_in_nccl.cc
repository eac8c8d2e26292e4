// SPDX-License-Identifier: GPL-2.0-or-later
// In place of NCCL where a test needs one: two ranks on one host, over a socket whose name is the
// unique id. The rank STAND_IN_LOST, if set, cannot join.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

struct UniqueId {
  char bytes[128];
};
int listener = -1;

sockaddr_un address_of(const UniqueId& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, id.bytes, 64);  // abstract: gone with its process
  return address;
}

}  // namespace

extern "C" {

int ncclGetUniqueId(UniqueId* id) {
  *id = UniqueId{};
  std::snprintf(id->bytes, 64, "swell-stand-in-%ld", static_cast<long>(getpid()));
  const sockaddr_un address = address_of(*id);
  listener = socket(AF_UNIX, SOCK_STREAM, 0);
  return bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                 listen(listener, 1) == 0
             ? 0
             : 2;
}
int ncclCommInitRank(void** communicator, int ranks, UniqueId id, int rank) {
  if (ranks != 2) return 4;
  if (const char* lost = std::getenv("STAND_IN_LOST"); lost != nullptr && std::atoi(lost) == rank)
    return 1;
  int fd = -1;
  if (rank == 0) {
    fd = accept(listener, nullptr, nullptr);
  } else {
    const sockaddr_un address = address_of(id);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return 2;
  }
  *communicator = new int(fd);
  return fd >= 0 ? 0 : 2;
}
int ncclCommAbort(void* communicator) {
  close(*static_cast<int*>(communicator));
  delete static_cast<int*>(communicator);
  return 0;
}
int ncclSend(const void* data, std::size_t bytes, int, int, void* communicator, void*) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = write(*static_cast<int*>(communicator), static_cast<const char*>(data) + done,
                            bytes - done);
    if (n <= 0) return 2;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}
int ncclRecv(void* data, std::size_t bytes, int, int, void* communicator, void*) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n =
        read(*static_cast<int*>(communicator), static_cast<char*>(data) + done, bytes - done);
    if (n <= 0) return 2;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}
const char* ncclGetErrorString(int status) {
  return status == 0 ? "no error" : "error of a stand-in";
}

}  // extern "C"
