// SPDX-License-Identifier: GPL-2.0-or-later
#include "topo/subnet_map.h"

#include <criterion/criterion.h>
#include <random>

#include "topo/machine.h"
#include "topo/measure.h"
#include "topo/numbers.h"

using namespace swell::topo;

namespace {

const char* kDiscover =
    "Switch\t41 \"S-b8599f0300fc6de4\"\t\t# \"MF0;ib-leaf-17:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n"
    "[1]\t\"H-0c42a10300a1b008\"[1](c42a10300a1b000) \t\t# \"dgx1 mlx5_0\" lid 4 4xNDR\n"
    "[2]\t\"S-b8599f0300fc6de5\"[3]\t\t# \"spine\" lid 2 4xNDR\n\n"
    "Switch\t41 \"S-00000000000000ab\"\t\t# \"\" base port 0\n"
    "[7]\t\"H-1\"[1](beef)\n";

}  // namespace

Test(subnet_map, finds_the_switch_of_a_port) {
  cr_assert_eq(leaf_switch(kDiscover, {0x0c42a10300a1b000}).value_or(""), "ib-leaf-17");
  cr_assert_eq(leaf_switch(kDiscover, {1, 0xbeef}).value_or(""), "S-00000000000000ab",
               "a switch without a name");
  cr_assert_not(leaf_switch(kDiscover, {0xb8599f0300fc6de5}).has_value(),
                "another switch is no host");
  cr_assert_not(leaf_switch(kDiscover, {}).has_value());
  for (const char* text :
       {"", "garbage\n[1]\"H-", "{ CA } { SW }\n", "{}", "Switch", "[1]\t\"H-1\"[1](beef)"})
    cr_assert_not(leaf_switch(text, {0xbeef}).has_value(), "%s", text);
}

Test(subnet_map, hostile_text_never_crashes) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = kDiscover;
    for (int n = 0; n < 5; ++n) text[random() % text.size()] = "[](){}\"\n:;#0aS"[random() % 14];
    (void)leaf_switch(text, {0xbeef});
  }
}

Test(numbers, ranges_gids_and_pcie) {
  cr_assert_eq(ranges({3, 1, 2, 7, 7}), "1-3,7");
  cr_assert_eq(ranges({}), "");
  std::uint64_t prefix = 1, guid = 1;
  read_gid("fe80:0000:0000:0000:0c42:a103:00ab:cdef", prefix, guid);
  cr_assert_eq(prefix, 0xfe80000000000000u);
  cr_assert_eq(guid, 0x0c42a10300abcdefu);
  for (const char* bad : {"", "fe80", "fe80:0000:0000:0000:0c42:a103:00ab:cdef:1", "zz"}) {
    read_gid(bad, prefix, guid);
    cr_assert_eq(prefix + guid, 0u, "%s", bad);
  }
  cr_assert_float_eq(pcie_bandwidth("32.0 GT/s PCIe", "16"), 63.0e9, 0.1e9);
  cr_assert_float_eq(pcie_bandwidth("5.0 GT/s PCIe", "8"), 4e9, 1e6);
  cr_assert_eq(pcie_bandwidth("Unknown", "16"), 0);
  cr_assert_eq(pcie_bandwidth("8.0 GT/s", "255"), 0);
}

Test(machine, products_have_slurms_names) {
  cr_assert_eq(gpu_type("NVIDIA H100 80GB HBM3", 0x10de, 0), "h100");
  cr_assert_eq(gpu_type("NVIDIA A100-SXM4-40GB", 0x10de, 0), "a100-40g");
  cr_assert_eq(gpu_type("NVIDIA A100-SXM4-80GB", 0x10de, 0), "a100");
  cr_assert_eq(gpu_type("NVIDIA GeForce GTX 1080 Ti", 0x10de, 0), "1080ti");
  cr_assert_eq(gpu_type("", 0x10de, 0x2335), "h200");
  cr_assert_eq(gpu_type("", 0x1002, 0x2335), "");
  cr_assert_eq(gpu_type("Quantum 9", 0x10de, 1), "");
}

Test(measure, a_class_has_medians_and_the_spread) {
  const auto made = summarize(2, {{{8, 1e6, 3e-6}, {64, 10e9, 4e-6}},
                                  {{8, 1e6, 1e-6}, {64, 12e9, 4e-6}},
                                  {{8, 1e6, 2e-6}, {64, 20e9, 4e-6}}});
  cr_assert_eq(made.bytes_per_s, 12e9);
  cr_assert_eq(made.latency_s, 2e-6);
  cr_assert_float_eq(made.spread, 10.0 / 12, 1e-9);
  cr_assert_eq(made.pairs, 3);
  cr_assert_eq(summarize(1, {}).bytes_per_s, 0);
}

Test(measure, requests_that_are_none_end_the_server) {
  auto listener = Listener::open("127.0.0.1");
  cr_assert(listener.ok());
  auto client = connect_tcp("127.0.0.1", listener->port());
  auto server = listener->accept();
  cr_assert(client.ok() && server.ok());
  const std::uint32_t mad[3] = {0, 0xffffffff, 0xffffffff};
  cr_assert((*client)->send(reinterpret_cast<const char*>(mad), sizeof(mad), 1).ok());
  cr_assert_not(serve(**server, **server).ok());
}
