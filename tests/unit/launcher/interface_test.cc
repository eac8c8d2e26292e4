// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/interface.h"

#include <algorithm>
#include <criterion/criterion.h>

using namespace swell::launcher;

namespace {

const std::vector<InterfaceAddress> there = {{"lo", "127.0.0.1"},
                                             {"eth0", "fd00::5"},
                                             {"eth0", "192.0.2.7"},
                                             {"ib0", "10.1.255.3"},
                                             {"ib1", "10.2.0.3"}};

std::string chosen(const std::string& wanted) {
  const auto address = choose_address(wanted, there);
  return address ? *address : "error: " + address.error().message();
}

}  // namespace

Test(interface, is_chosen_by_name_network_or_address) {
  cr_assert_eq(chosen("ib0"), "10.1.255.3");
  cr_assert_eq(chosen("eth0"), "192.0.2.7");
  cr_assert_eq(chosen("10.2.0.0/16"), "10.2.0.3");
  cr_assert_eq(chosen("10.0.0.0/8"), "10.1.255.3");
  cr_assert_eq(chosen("10.1.254.0/23"), "10.1.255.3");
  cr_assert_eq(chosen("10.2.0.3"), "10.2.0.3");
  cr_assert_eq(chosen("fd00::/8"), "fd00::5");
  cr_assert_eq(chosen("0.0.0.0/0"), "127.0.0.1");
}

Test(interface, the_error_names_what_there_is) {
  for (const char* wanted :
       {"ib7", "10.3.0.0/16", "10.1.0.0/40", "10.1/16", "/16", "10.1.255.3/-1"})
    cr_assert_eq(chosen(wanted),
                 std::string("error: --interface=") + wanted +
                     ": this host has no address on it; it has lo (127.0.0.1), eth0 (fd00::5), "
                     "eth0 (192.0.2.7), ib0 (10.1.255.3), ib1 (10.2.0.3)");
}

Test(interface, this_host_has_a_loopback) {
  const auto own = interface_addresses();
  cr_assert(std::find(own.begin(), own.end(), InterfaceAddress{"lo", "127.0.0.1"}) != own.end());
}
