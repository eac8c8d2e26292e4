// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/program_socket.h"

#include <criterion/criterion.h>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>

using namespace swell;
using launcher::ProgramSocket;
using launcher::sizes_from;

namespace {

/// Sends as a client does that has nothing but the name.
void say(const std::string& name, const std::string& text) {
  const control::Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  cr_assert_eq(
      sendto(fd.get(), text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&address), size),
      static_cast<ssize_t>(text.size()));
}

}  // namespace

Test(program_socket, the_last_sizes_that_were_said_count) {
  const auto opened = ProgramSocket::open();
  cr_assert(opened.ok());
  cr_assert_not(opened->take_sizes());
  say(opened->name(), "sizes 1 2");
  say(opened->name(), "sizes 1 2 4");
  cr_assert(opened->take_sizes() == (std::vector<int>{1, 2, 4}));
  cr_assert_not(opened->take_sizes());
}

Test(program_socket, what_cannot_be_read_is_dropped) {
  const auto opened = ProgramSocket::open();
  cr_assert(opened.ok());
  say(opened->name(), "sizes 3");
  say(opened->name(), "sizes 2 x");
  say(opened->name(), std::string(40000, ' '));
  cr_assert(opened->take_sizes() == std::vector<int>{3});
}

Test(program_socket, two_shims_of_a_node_have_sockets_of_their_own) {
  const auto one = ProgramSocket::open(), other = ProgramSocket::open();
  cr_assert(one.ok() && other.ok());
  cr_assert_neq(one->name(), other->name());
  say(other->name(), "sizes 2");
  cr_assert_not(one->take_sizes());
}

Test(program_socket, sizes_are_rising_numbers) {
  cr_assert(*sizes_from("sizes 1 2 12") == (std::vector<int>{1, 2, 12}));
  cr_assert(sizes_from("sizes")->empty(), "any");
  for (const char* bad : {"", "sizes 0", "sizes 2 2", "sizes 4 2", "sizes -1", "sizes 1x",
                          "sizes 1000001", "seizes 2"})
    cr_assert_not(sizes_from(bad).ok(), "%s", bad);
  std::string many = "sizes";
  for (int i = 1; i <= 4097; ++i) many += " " + std::to_string(i);
  cr_assert_not(sizes_from(many).ok(), "more than a message has");
}
