// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/program_socket.h"

#include <criterion/criterion.h>
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

using namespace swell;
using launcher::ProgramSocket;
using launcher::sizes_from;

namespace {

/// Sends as anybody of this host can. Returns whether the socket's queue had room for it, or the
/// kernel dropped it at once.
bool sent(const std::string& name, const std::string& text) {
  const Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return sendto(fd.get(), text.data(), text.size(), MSG_DONTWAIT,
                reinterpret_cast<sockaddr*>(&address), size) == static_cast<ssize_t>(text.size());
}

/// Says it as a program of the shim does.
void say(const ProgramSocket& socket, const std::string& text) {
  cr_assert(sent(socket.name(), socket.key() + " " + text));
}

bool is_woken(const ProgramSocket& socket) {
  pollfd polled{socket.fd(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

}  // namespace

Test(program_socket, the_last_sizes_that_were_said_count) {
  auto opened = ProgramSocket::open();
  cr_assert(opened.ok());
  cr_assert_not(opened->take_sizes());
  say(*opened, "sizes 1 2");
  say(*opened, "sizes 1 2 4");
  cr_assert(opened->take_sizes()->sizes == (std::vector<int>{1, 2, 4}));
  cr_assert_not(opened->take_sizes());
}

Test(program_socket, the_steps_that_were_said_last_count_beside_sizes) {
  auto opened = ProgramSocket::open();
  cr_assert(opened.ok());
  for (const char* text :
       {"step 7", "sizes 2", "step 9", "step 0", "step -1", "step", "step 8 9", "step 8 of",
        "step 8 of x", "step 8 of 0", "step 8 of 90071992547409920"})
    say(*opened, text);
  cr_assert(opened->take_sizes()->sizes == std::vector<int>{2});
  cr_assert(opened->take_steps() == (launcher::MadeSteps{9, 0}));
  cr_assert_not(opened->take_steps());
  say(*opened, "step 10 of 5000");
  cr_assert_not(opened->take_sizes());
  cr_assert(opened->take_steps() == (launcher::MadeSteps{10, 5000}));
}

Test(program_socket, unreadable_messages_are_dropped) {
  auto opened = ProgramSocket::open();
  cr_assert(opened.ok());
  say(*opened, "sizes 3");
  say(*opened, "sizes 2 x");
  say(*opened, std::string(40000, ' '));
  cr_assert(opened->take_sizes()->sizes == std::vector<int>{3});
}

Test(program_socket, a_reason_belongs_to_the_sizes_after_it) {
  auto opened = ProgramSocket::open();
  cr_assert(opened.ok());
  say(*opened, "why the disk\nis full");
  cr_assert_not(opened->take_sizes());
  say(*opened, "sizes 2");
  const auto said = opened->take_sizes();
  cr_assert(said->sizes == std::vector<int>{2});
  cr_assert_eq(said->why, std::string("the disk\\x0ais full"), "one line");
  say(*opened, "sizes 1 2");
  cr_assert_eq(opened->take_sizes()->why, std::string());
  say(*opened, "why " + std::string(5000, 'x'));
  say(*opened, "sizes 2");
  cr_assert_leq(opened->take_sizes()->why.size(), 510u);
}

Test(program_socket, messages_of_others_neither_wake_the_shim_nor_take_a_place) {
  auto opened = ProgramSocket::open();
  cr_assert(opened.ok());
  std::string wrong = opened->key();
  for (std::size_t at = 0; at < wrong.size(); ++at) {
    std::string near = wrong;
    near[at] = near[at] == '0' ? '1' : '0';
    // More than the queue of a socket has room for.
    for (int i = 0; i < 100; ++i) cr_assert(sent(opened->name(), near + " sizes 7"));
  }
  for (const std::string& text : {std::string(), std::string("x"), std::string("sizes 7"),
                                  wrong.substr(1), std::string(30000, 'x')})
    cr_assert(sent(opened->name(), text));
  cr_assert_not(is_woken(*opened));
  say(*opened, "sizes 2");
  cr_assert(is_woken(*opened));
  cr_assert(opened->take_sizes()->sizes == std::vector<int>{2});
}

Test(program_socket, two_shims_of_a_node_have_sockets_of_their_own) {
  auto one = ProgramSocket::open(), other = ProgramSocket::open();
  cr_assert(one.ok() && other.ok());
  cr_assert_neq(one->name(), other->name());
  say(*other, "sizes 2");
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
