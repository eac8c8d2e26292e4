// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/held_port.h"

#include <algorithm>
#include <cerrno>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>

using namespace swell;
using launcher::HeldPort;
using launcher::ports_for_programs;

namespace {

enum class Reuse { no, yes };

/// A socket bound to the port on all addresses of the family; an empty one: it is taken.
Descriptor bound(int family, std::uint16_t port, Reuse reuse) {
  Descriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (reuse == Reuse::yes) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in six_or_four{};
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  six_or_four.sin_family = AF_INET;
  six_or_four.sin_port = htons(port);
  const int status =
      family == AF_INET6
          ? bind(fd.get(), reinterpret_cast<sockaddr*>(&six), sizeof six)
          : bind(fd.get(), reinterpret_cast<sockaddr*>(&six_or_four), sizeof six_or_four);
  return status == 0 ? std::move(fd) : Descriptor();
}

bool has(const std::vector<std::uint16_t>& ports, int port) {
  return std::count(ports.begin(), ports.end(), port) > 0;
}

}  // namespace

Test(held_port, others_do_not_get_it_and_the_program_does) {
  const auto held = HeldPort::take();
  cr_assert(held.ok());
  for (const int family : {AF_INET, AF_INET6}) {
    cr_assert_not(static_cast<bool>(bound(family, held->number(), Reuse::no)));
    const Descriptor program = bound(family, held->number(), Reuse::yes);
    cr_assert(static_cast<bool>(program));
    cr_assert_eq(listen(program.get(), 16), 0);
    cr_assert_not(static_cast<bool>(bound(family, held->number(), Reuse::yes)), "it listens");
  }
}

Test(held_port, shims_of_a_host_hold_different_ports) {
  std::vector<HeldPort> all;
  std::set<int> numbers;
  for (int i = 0; i < 50; ++i) {
    auto held = HeldPort::take();
    cr_assert(held.ok());
    numbers.insert(held->number());
    all.push_back(std::move(*held));
  }
  cr_assert_eq(numbers.size(), 50u);
}

Test(held_port, it_is_free_again_when_it_is_let_go) {
  auto held = HeldPort::take();
  const std::uint16_t number = held->number();
  *held = HeldPort();
  cr_assert_eq(held->number(), 0);
  cr_assert(static_cast<bool>(bound(AF_INET, number, Reuse::no)));
}

Test(held_port, ports_are_outside_of_those_that_connections_are_given) {
  const auto ports = ports_for_programs("32768\t60999", "");
  cr_assert(has(ports, 32767) && has(ports, 61000) && has(ports, 10000) && has(ports, 65535));
  cr_assert_not(has(ports, 32768) || has(ports, 60999) || has(ports, 9999));
  cr_assert_not(has(ports, 29500), "what torchrun takes by itself");
  cr_assert(has(ports_for_programs("1024 20000", ""), 20001));
  cr_assert_eq(ports_for_programs("", "").size(), ports.size(), "Linux's own range");
}

Test(held_port, reserved_ports_of_the_host_are_not_taken) {
  const auto ports = ports_for_programs("32768 60999", "20000,21000-21002,70000,x,23000-x");
  for (const int port : {20000, 21000, 21001, 21002}) cr_assert_not(has(ports, port));
  for (const int port : {19999, 20001, 20999, 21003, 23000}) cr_assert(has(ports, port));
}

Test(held_port, where_connections_may_have_all_ports_one_of_those_is_held) {
  cr_assert(ports_for_programs("1024 65535", "").empty());
  cr_assert(ports_for_programs("10000 65400", "").empty(), "too few are left");
}
