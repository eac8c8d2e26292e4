// SPDX-License-Identifier: GPL-2.0-or-later
#include "topo/subnet_map.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <criterion/criterion.h>
#include <ctime>
#include <netinet/in.h>
#include <optional>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "topo/machine.h"
#include "topo/measure.h"
#include "topo/numbers.h"

using namespace swell;
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
                "another switch is not a host");
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

namespace {

const std::string kToken = "a token of one measurement";

/// The two ends of a measurement.
struct Ends {
  explicit Ends(Listener& listener) {
    std::thread other([&] { client = connect_tcp("127.0.0.1", listener.port(), kToken); });
    server = listener.accept(kToken);
    other.join();
    cr_assert(client.ok() && server.ok());
  }
  Result<std::unique_ptr<Link>> client = Error(""), server = Error("");
};

int connect_to(int fd, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
}

/// A connection of somebody who does not know the token.
int stranger(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  cr_assert_eq(connect_to(fd, port), 0);
  return fd;
}

}  // namespace

Test(measure, requests_that_are_none_end_the_server) {
  auto listener = Listener::open("127.0.0.1");
  cr_assert(listener.ok());
  const Ends ends(*listener);
  const std::uint32_t mad[3] = {0, 0xffffffff, 0xffffffff};
  cr_assert((*ends.client)->send(reinterpret_cast<const char*>(mad), sizeof(mad), 1).ok());
  cr_assert_not(serve(**ends.server, **ends.server).ok());
}

Test(measure, strangers_neither_take_part_nor_keep_the_other_end_away, .timeout = 60) {
  auto listener = Listener::open("127.0.0.1");
  cr_assert(listener.ok());
  std::vector<int> strangers;
  for (std::size_t i = 0; i < 2 * Listener::kMaxSilent; ++i)
    strangers.push_back(stranger(listener->port()));
  const std::string near = kToken.substr(0, kToken.size() - 1) + "x";
  for (std::size_t i = 0; i < strangers.size(); i += 3)
    cr_assert_gt(send(strangers[i], near.data(), near.size(), MSG_NOSIGNAL), 0);
  const Ends ends(*listener);
  cr_assert((*ends.client)->send("x", 1, 1).ok());
  char got = 0;
  cr_assert((*ends.server)->receive(&got, 1, 1).ok());
  cr_assert_eq(got, 'x');
  for (const int each : strangers) close(each);
}

Test(measure, a_peer_with_another_token_is_sent_away, .timeout = 60) {
  auto listener = Listener::open("127.0.0.1");
  cr_assert(listener.ok());
  const int fd = stranger(listener->port());
  const std::string wrong(kToken.size(), 'x');
  cr_assert_eq(send(fd, wrong.data(), wrong.size(), MSG_NOSIGNAL),
               static_cast<ssize_t>(wrong.size()));
  const Ends ends(*listener);
  char none = 0;
  cr_assert_leq(recv(fd, &none, 1, 0), 0);
  close(fd);
}

Test(measure, strangers_without_end_cost_their_share, .timeout = 60) {
  auto opened = Listener::open("127.0.0.1");
  cr_assert(opened.ok());
  std::optional<Listener> listener(std::move(*opened));
  const int port = listener->port();
  std::atomic<bool> stops = false;
  std::atomic<int> came = 0;
  std::vector<std::thread> flood;
  for (int i = 0; i < 2; ++i)
    flood.emplace_back([&] {
      while (!stops) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect_to(fd, port) == 0 && send(fd, "x", 1, MSG_NOSIGNAL) == 1) ++came;
        close(fd);
      }
    });
  double used_s = 0;
  bool is_taken = false;
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] {
    is_taken = listener->accept(kToken, CpuShare(0.02, 0.02)).ok();
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    used_s = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  });
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const auto client = connect_tcp("127.0.0.1", port, kToken);
  other.join();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  stops = true;
  listener.reset();  // ends connections that wait in the kernel
  for (std::thread& each : flood) each.join();
  cr_assert(client.ok() && is_taken, "%s", client.ok() ? "" : client.error().message().c_str());
  cr_assert_gt(came.load(), 100);
  cr_assert_leq(used_s, 1.5 * (0.02 + 0.02 * time.count()) + 0.02, "%g s in %g s", used_s,
                time.count());
}
