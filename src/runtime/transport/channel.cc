// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/transport/channel.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <thread>

#include "runtime/wire/sha256.h"

namespace swell::runtime {

namespace {

using std::chrono::milliseconds;

struct Header {
  std::uint32_t bytes;
  std::uint16_t op;
  std::uint16_t magic;
};
constexpr std::uint16_t kMagic = 0x5753;
constexpr std::size_t kNonce = 32;
constexpr int kBacklog = 4096;  // the system may set a lower limit
/// Pauses between two attempts to connect.
constexpr milliseconds kFirstPause{2}, kLastPause{50};

Error system_error(const std::string& what) {
  return Error(fmt::format("{}: {}", what, std::strerror(errno)));
}

Result<void> wait_readable(int fd, Deadline deadline) {
  for (;;) {
    int timeout = -1;
    if (deadline != Deadline::max())
      timeout = static_cast<int>(std::clamp<std::int64_t>(
          std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count(), 0,
          1'000'000));
    pollfd ready{fd, POLLIN, 0};
    const int count = poll(&ready, 1, timeout);
    if (count > 0) return {};
    if (count == 0) return Error("no answer within the time limit");
    if (errno != EINTR) return system_error("waiting for a message");
  }
}

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return Error(fmt::format("the socket's path {} has {} bytes; 1 to {} are possible", path,
                             path.size(), sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Result<sockaddr_storage> tcp_address(const std::string& text, socklen_t& size) {
  const auto colon = text.rfind(':');
  sockaddr_storage storage{};
  if (colon == std::string::npos) return Error(fmt::format("\"{}\" is not address:port", text));
  const std::string host = text.substr(0, colon);
  const int port = std::atoi(text.c_str() + colon + 1);
  auto* four = reinterpret_cast<sockaddr_in*>(&storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
  if (port < 0 || port > 65535)
    return Error(fmt::format("\"{}\": the port must be 0 to 65535", text));
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof *four;
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof *six;
  } else {
    return Error(fmt::format("\"{}\" is not a numeric address:port", text));
  }
  return storage;
}

void tune(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int lost_ms = 60'000;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof lost_ms);
}

/// Limits how long a send, or connect(), may block.
void limit_sending(int fd, Deadline deadline) {
  timeval time{};  // 0: no limit
  if (deadline != Deadline::max()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto ms = std::clamp<std::int64_t>(left.count(), 1, 3'600'000);
    time = {ms / 1000, ms % 1000 * 1000};
  }
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

Result<std::string> nonce() {
  std::string bytes(kNonce, '\0');
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return system_error("reading random bytes");
  return bytes;
}

Digest256 proof(std::string_view key, std::string_view side, std::string_view client,
                std::string_view server) {
  return hmac_sha256(key, std::string(side).append(client).append(server));
}

Result<void> check_key(std::string_view key) {
  if (key.size() < 16)
    return Error(fmt::format("the job's key has {} bytes; at least 16 are needed", key.size()));
  return {};
}

/// Names the folder that a container lacks, where the socket is PARENT/swell-worker-.../socket.
std::string hint_of_container(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const auto end = folder.rfind('/');
  return fmt::format("; in a container, mount {} of the host at the same place",
                     end == 0 || end == std::string::npos ? folder : folder.substr(0, end));
}

}  // namespace

Result<Channel> Channel::connect_unix(const std::string& path) {
  const auto address = unix_address(path);
  if (!address) return address.error();
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
    return Error(fmt::format("connecting to {}: {}{}", path, std::strerror(errno),
                             errno == ENOENT ? hint_of_container(path) : ""));
  return check_unix_peer(std::move(fd));
}

namespace {

/// Tries once to connect. Sets `is_lost` if the other side closes the connection before it has
/// proved the key.
Result<Channel> connect_once(const std::string& text, std::string_view key, Deadline deadline,
                             bool& is_lost) {
  socklen_t size = 0;
  const auto address = tcp_address(text, size);
  if (!address) return address.error();
  Descriptor fd(socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("connecting to " + text);
  limit_sending(fd.get(), deadline);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), size) != 0) {
    if (errno == EINPROGRESS) errno = ETIMEDOUT;  // the error that connect() reports at a timeout
    return system_error("connecting to " + text);
  }
  limit_sending(fd.get(), Deadline::max());
  tune(fd.get());
  Channel channel(std::move(fd));
  const auto mine = nonce();
  if (!mine) return mine.error();
  std::string theirs(kNonce, '\0');
  Digest256 shown;
  const auto failed = [&](const Error& problem) {
    is_lost = channel.has_left();
    return problem.while_doing(text);
  };
  if (auto good = channel.receive_bytes(theirs.data(), kNonce, deadline); !good)
    return failed(good.error());
  const Digest256 own = proof(key, "client", *mine, theirs);
  const std::string both = *mine + std::string(own.begin(), own.end());
  if (auto good = channel.send_bytes(both.data(), both.size()); !good) return failed(good.error());
  if (auto good = channel.receive_bytes(shown.data(), shown.size(), deadline); !good)
    return failed(good.error());
  if (!equal(shown, proof(key, "server", *mine, theirs)))
    return Error(fmt::format("{} does not hold this job's key", text));
  return channel;
}

}  // namespace

Result<Channel> Channel::connect_tcp(const std::string& text, std::string_view key,
                                     Deadline deadline) {
  if (auto good = check_key(key); !good) return good.error();
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLastPause)) {
    bool is_lost = false;
    auto channel = connect_once(text, key, deadline, is_lost);
    if (channel || !is_lost || deadline - std::chrono::steady_clock::now() < pause) return channel;
    std::this_thread::sleep_for(pause);
  }
}

Result<PeerProof> PeerProof::begin(Descriptor fd) {
  tune(fd.get());
  auto mine = nonce();
  if (!mine) return mine.error();
  // The buffer of a new connection has space for it.
  if (::send(fd.get(), mine->data(), kNonce, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(kNonce))
    return system_error("sending");
  return PeerProof(Channel(std::move(fd)), std::move(*mine));
}

Result<bool> PeerProof::read(std::string_view key) {
  if (auto good = check_key(key); !good) return good.error();
  Digest256 shown;
  std::array<char, kNonce + sizeof shown> part;
  const ssize_t count = recv(fd(), part.data(), part.size() - got_.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (count < 0) return system_error("receiving");
  if (count == 0) return Error("the other side has left");
  got_.append(part.data(), static_cast<std::size_t>(count));
  if (got_.size() < part.size()) return false;
  const std::string theirs = got_.substr(0, kNonce);
  std::memcpy(shown.data(), got_.data() + kNonce, shown.size());
  const bool holds = equal(shown, proof(key, "client", theirs, nonce_));
  // Without the key the peer gets as many bytes, and sees that its key is a different one.
  const Digest256 own = holds ? proof(key, "server", theirs, nonce_) : Digest256{};
  if (::send(fd(), own.data(), own.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(own.size()))
    return system_error("sending");
  if (!holds) return Error("a peer does not hold this job's key");
  return true;
}

Result<Channel> check_unix_peer(Descriptor fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return system_error("asking who is connected");
  if (peer.uid != geteuid())
    return Error(
        fmt::format("a process of user {} is connected; only user {} may be", peer.uid, geteuid()));
  return Channel(std::move(fd));
}

pid_t peer_pid(int fd) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : -1;
}

Result<void> Channel::send_bytes(const void* bytes, std::size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t sent = ::send(fd_.get(), at, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return system_error("sending");
    at += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return {};
}

Result<void> Channel::receive_bytes(void* bytes, std::size_t count, Deadline deadline) {
  char* at = static_cast<char*>(bytes);
  while (count > 0) {
    if (deadline != Deadline::max())
      if (auto good = wait_readable(fd_.get(), deadline); !good) return good.error();
    const ssize_t got = recv(fd_.get(), at, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("receiving");
    if (got == 0) return Error("the other side has left");
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return {};
}

Result<void> Channel::send(std::uint16_t op, std::string_view body, int fd) {
  if (body.size() > kMaxBody)
    return Error(
        fmt::format("a message of {} bytes; at most {} are possible", body.size(), kMaxBody));
  Header header{static_cast<std::uint32_t>(body.size()), op, kMagic};
  if (fd >= 0) {
    iovec part{&header, sizeof header};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    if (sendmsg(fd_.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof header))
      return system_error("passing a file descriptor");
    return send_bytes(body.data(), body.size());
  }
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  return send_bytes(frame.append(body).data(), sizeof header + body.size());
}

Result<Message> Channel::receive(Deadline deadline) {
  Header header{};
  Message message;
  std::size_t got = 0;
  while (got < sizeof header) {
    if (auto good = wait_readable(fd_.get(), deadline); !good) return good.error();
    iovec part{reinterpret_cast<char*>(&header) + got, sizeof header - got};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr received{};
    received.msg_iov = &part;
    received.msg_iovlen = 1;
    received.msg_control = control;
    received.msg_controllen = sizeof control;
    const ssize_t count = recvmsg(fd_.get(), &received, MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("receiving");
    if (count == 0) return Error("the other side has left");
    for (cmsghdr* rights = CMSG_FIRSTHDR(&received); rights != nullptr;
         rights = CMSG_NXTHDR(&received, rights)) {
      if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
      // Takes over every descriptor, so that no unexpected one stays open.
      for (std::size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= rights->cmsg_len; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof fd, sizeof fd);
        message.fd = Descriptor(fd);
      }
    }
    got += static_cast<std::size_t>(count);
  }
  if (header.magic != kMagic) return Error("the data received is not a message of Swell's runtime");
  if (header.bytes > kMaxBody)
    return Error(fmt::format("a message of {} bytes was announced; at most {} are possible",
                             header.bytes, kMaxBody));
  message.op = header.op;
  message.body.resize(header.bytes);
  if (auto good = receive_bytes(message.body.data(), header.bytes, deadline); !good)
    return good.error();
  return message;
}

void Channel::shut() noexcept { shutdown(fd_.get(), SHUT_RDWR); }

bool Channel::has_left() const noexcept {
  pollfd polled{fd_.get(), POLLRDHUP, 0};
  return poll(&polled, 1, 0) > 0;
}

bool Channel::has_news() const noexcept {
  pollfd polled{fd_.get(), POLLIN | POLLRDHUP, 0};
  return poll(&polled, 1, 0) > 0;
}

Result<Descriptor> listen_unix(const std::string& path) {
  const auto address = unix_address(path);
  if (!address) return address.error();
  const std::string folder = path.substr(0, path.rfind('/'));
  if (path.find('/') == std::string::npos || folder.empty())
    return Error(fmt::format("the socket {} must stand in a folder of its own", path));
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error("making the folder " + folder);
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0) return system_error("looking at the folder " + folder);
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 0777) != 0700)
    return Error(fmt::format(
        "{} must be a folder of user {} with mode 0700; it is user {}'s with mode {:04o}", folder,
        geteuid(), found.st_uid, found.st_mode & 07777u));
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      listen(fd.get(), kBacklog) != 0)
    return system_error("listening at " + path);
  return fd;
}

Result<Descriptor> listen_tcp(const std::string& host) {
  socklen_t size = 0;
  const auto address = tcp_address(host + ":0", size);
  if (!address) return address.error();
  Descriptor fd(socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), size) != 0 ||
      listen(fd.get(), kBacklog) != 0)
    return system_error("listening on " + host);
  return fd;
}

std::string address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  char host[INET6_ADDRSTRLEN] = "";
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  const bool four = storage.ss_family == AF_INET;
  const auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  inet_ntop(storage.ss_family, four ? static_cast<const void*>(&in->sin_addr) : &in6->sin6_addr,
            host, sizeof host);
  return fmt::format("{}:{}", host, ntohs(four ? in->sin_port : in6->sin6_port));
}

std::string peer_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  char host[INET6_ADDRSTRLEN] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  const void* address = &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr;
  if (storage.ss_family == AF_INET6)
    address = &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  inet_ntop(storage.ss_family, address, host, sizeof host);
  return host;
}

}  // namespace swell::runtime
