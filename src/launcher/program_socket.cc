// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/program_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "control/messages.h"
#include "control/printable.h"
#include "core/number.h"

namespace swell::launcher {

namespace {

constexpr std::size_t kMaxBytes = 32768;
constexpr std::size_t kMaxSizes = 4096;  // the maximum of a message
constexpr std::string_view kSizes = "sizes", kStep = "step ", kOf = " of ";
constexpr std::string_view kWhy = "why ";  // sent before the sizes: why the program takes no others
constexpr std::size_t kMaxWhy = 500;       // bytes
constexpr std::size_t kKey = 16;           // letters
constexpr std::size_t kMaxAtOnce = 256;    // datagrams that are read before anything else is done

Error failed(const char* what) {
  return Error(fmt::format("a socket for programs: {}: {}", what, std::strerror(errno)));
}

Result<std::string> new_key() {
  std::array<unsigned char, kKey / 2> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return failed("getrandom");
  std::string key;
  for (const unsigned char each : bytes) key += fmt::format("{:02x}", each);
  return key;
}

/// Has the kernel drop datagrams that do not begin with the key, in the sender's call. If the
/// kernel cannot, take_sizes() drops them.
void drop_without(const std::string& key, int fd) {
  constexpr std::size_t kWords = kKey / 4;
  std::array<sock_filter, 2 * kWords + 2> filter{};
  for (std::uint8_t i = 0; i < kWords; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, key.data() + 4 * std::size_t{i}, sizeof word);
    // A datagram that is too short for the load is dropped.
    filter[2 * std::size_t{i}] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4u * i);
    filter[2 * std::size_t{i} + 1] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(word), 0,
                                              static_cast<std::uint8_t>(2 * (kWords - i) - 1));
  }
  filter[2 * kWords] = BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
  filter[2 * kWords + 1] = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

/// Returns whether the datagram was sent by a process of this user.
bool is_own(msghdr& message) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each))
    if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(each), sizeof sender);
      return sender.uid == geteuid();
    }
  return false;
}

}  // namespace

Result<ProgramSocket> ProgramSocket::open() {
  Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return failed("socket");
  const int yes = 1;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
    return failed("SO_PASSCRED");
  auto key = new_key();
  if (!key) return key.error();
  drop_without(*key, fd.get());  // before it has a name to which others may send
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // If no name is given, the kernel chooses an unused one.
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family) != 0)
    return failed("bind");
  socklen_t size = sizeof address;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return failed("getsockname");
  const std::size_t named = offsetof(sockaddr_un, sun_path) + 1;
  if (size <= named) return Error("a socket for programs: the kernel gave it no name");
  return ProgramSocket(std::move(fd), "@" + std::string(address.sun_path + 1, size - named),
                       std::move(*key));
}

std::optional<ProgramSocket::Said> ProgramSocket::take_sizes() {
  std::optional<Said> last;
  std::array<char, kMaxBytes> text;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
  for (std::size_t count = 0; count < kMaxAtOnce; ++count) {
    iovec part{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return last;
    const std::string_view said(text.data(), static_cast<std::size_t>(got));
    if ((message.msg_flags & MSG_TRUNC) != 0 || !said.starts_with(key_ + " ") || !is_own(message))
      continue;
    const std::string_view words = said.substr(kKey + 1);
    if (words.starts_with(kWhy)) why_ = control::printable(words.substr(kWhy.size()), kMaxWhy);
    else if (const auto steps = steps_from(words)) steps_ = steps;
    else if (auto sizes = sizes_from(words))
      last = Said{std::move(*sizes), std::exchange(why_, {})};
  }
  return last;
}

std::optional<MadeSteps> steps_from(std::string_view text) {
  if (!text.starts_with(kStep)) return std::nullopt;
  text.remove_prefix(kStep.size());
  const std::size_t of = text.find(kOf);
  const auto made = read_number<std::int64_t>(text.substr(0, of));
  if (!made || *made < 1 || *made > control::kMostSteps) return std::nullopt;
  MadeSteps read{static_cast<std::uint64_t>(*made), 0};
  if (of == std::string_view::npos) return read;
  const auto total = read_number<std::int64_t>(text.substr(of + kOf.size()));
  if (!total || *total < 1 || *total > control::kMostSteps) return std::nullopt;
  read.total = static_cast<std::uint64_t>(*total);
  return read;
}

Result<std::vector<int>> sizes_from(std::string_view text) {
  const auto word = [&text] {
    const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view found = text.substr(begin, end - begin);
    text.remove_prefix(end);
    return found;
  };
  if (const std::string_view first = word(); first != kSizes)
    return Error(fmt::format("\"{}\" was said; only \"{} 1 2 4\" is understood",
                             first.substr(0, 40), kSizes));
  std::vector<int> sizes;
  for (std::string_view each = word(); !each.empty(); each = word()) {
    const auto size = read_number<int>(each);
    if (!size || *size < 1 || *size > control::kMaxGpus ||
        (!sizes.empty() && *size <= sizes.back()))
      return Error(fmt::format("sizes: \"{}\"; they are rising numbers of 1 to {}",
                               each.substr(0, 40), control::kMaxGpus));
    if (sizes.size() == kMaxSizes)
      return Error(fmt::format("sizes: more than {} numbers", kMaxSizes));
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace swell::launcher
