// SPDX-License-Identifier: GPL-2.0-or-later
// NCCL as one program uses it, over stand-ins for it and for the driver: both ends of a
// communicator in this process, on a GPU each.
#include <criterion/criterion.h>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <unistd.h>
#include <vector>

#include "runtime/device/nccl_state.h"

using namespace swell;
using namespace swell::runtime;
using namespace std::chrono_literals;

namespace {

constexpr auto kLimit = 100s;

struct Ends {
  explicit Ends(NcclState::Milliseconds grace = 5s) {
    setenv("STAND_IN_GPUS", "2", 1);
    setenv("STAND_IN_NCCL_LOG", log.c_str(), 1);
    for (int gpu = 0; gpu < 2; ++gpu) {
      devices.push_back(Device::open(gpu, SWELL_STAND_IN_CUDA).value());
      states.push_back(
          std::make_unique<NcclState>(devices.back(), grace, std::string(SWELL_STAND_IN_NCCL)));
    }
  }
  ~Ends() { unlink(log.c_str()); }
  /// Why one of both could not join; empty: they have.
  std::string join(std::uint64_t pair = 7, NcclState::Milliseconds limit = kLimit) {
    const auto id = states[0]->make_id();
    if (!id) return id.error().message();
    auto other =
        std::async(std::launch::async, [&] { return states[1]->join(pair, *id, 1, limit, {}); });
    const auto mine = states[0]->join(pair, *id, 0, limit, {});
    const auto its = other.get();
    return !mine ? mine.error().message() : !its ? its.error().message() : "";
  }
  int said(const std::string& what) const {
    std::ifstream lines(log);
    int count = 0;
    for (std::string line; std::getline(lines, line);) count += line.starts_with(what) ? 1 : 0;
    return count;
  }

  const std::string log = "/tmp/swell-nccl-" + std::to_string(getpid());
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<std::unique_ptr<NcclState>> states;
};

}  // namespace

Test(nccl, a_library_that_is_not_there_or_too_old_is_named) {
  const auto none = Nccl::open("libnccl-of-nobody.so.2");
  cr_assert(none.error().message().starts_with("NCCL cannot be opened: libnccl-of-nobody.so.2"),
            "%s", none.error().message().c_str());
  setenv("STAND_IN_NCCL_VERSION", "2804", 1);
  cr_assert_eq(Nccl::open(SWELL_STAND_IN_NCCL).error().message(),
               std::string(SWELL_STAND_IN_NCCL) + " is NCCL 2.8.4; 2.14 or later is needed");
}

Test(nccl, the_configured_networks_are_said) {
  Ends ends;
  setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
  unsetenv("NCCL_IB_HCA");
  unsetenv("NCCL_NET");
  cr_assert_eq(ends.states[0]->open().value(), "NCCL 2.27.7, NCCL_SOCKET_IFNAME=ib0");
}

Test(nccl, runs_of_all_sizes_arrive_in_their_order, .timeout = 120) {
  Ends ends;
  cr_assert_eq(ends.join(), "");
  // More than a group of operations, and more than a chunk.
  constexpr std::uint64_t kSmall = 600, kLarge = NcclPairs::kChunk + 4096;
  std::vector<char> from(kSmall * 3 + kLarge), to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
  std::vector<Run> sent, received;
  const auto add = [&](std::size_t at, std::size_t end, std::size_t bytes) {
    sent.push_back({reinterpret_cast<std::uint64_t>(from.data() + at), 0, bytes});
    received.push_back({reinterpret_cast<std::uint64_t>(to.data() + end), 0, bytes});
  };
  for (std::uint64_t i = 0; i < kSmall; ++i) add(3 * i, 3 * (kSmall - 1 - i), 3);
  add(3 * kSmall, 3 * kSmall, kLarge);
  auto other = std::async(std::launch::async,
                          [&] { return ends.states[1]->transfer(7, true, sent, kLimit, {}); });
  const auto mine = ends.states[0]->transfer(7, false, received, kLimit, {});
  cr_assert(mine.ok(), "%s", mine.ok() ? "" : mine.error().message().c_str());
  cr_assert(other.get().ok());
  for (std::uint64_t i = 0; i < kSmall; ++i)
    cr_assert_eq(std::memcmp(&to[3 * (kSmall - 1 - i)], &from[3 * i], 3), 0);
  cr_assert_eq(std::memcmp(&to[3 * kSmall], &from[3 * kSmall], kLarge), 0);
  ends.states.clear();
  cr_assert_eq(ends.said("misuse"), 0);
  cr_assert_eq(ends.said("abort"), 2);
}

Test(nccl, refuses_anything_but_a_pair) {
  Ends ends;
  std::vector<char> bytes(16);
  const Run run{reinterpret_cast<std::uint64_t>(bytes.data()), 0, bytes.size()};
  const auto none = [&] {
    return ends.states[0]->transfer(8, true, {&run, 1}, kLimit, {}).error().message();
  };
  cr_assert_eq(none(), "there is no communicator 8 here");
  cr_assert_eq(ends.join(), "");
  cr_assert_eq(none(), "there is no communicator 8 here");
  const auto again = ends.states[0]->join(7, std::string(128, 'x'), 0, kLimit, {});
  cr_assert_neq(again.error().message().find("a communicator"), std::string::npos);
  ends.states[1]->leave();
  cr_assert_not(ends.states[1]->join(9, "short", 0, kLimit, {}).ok());
  ends.states[1]->leave();
  cr_assert_not(ends.states[1]->join(9, std::string(128, 'x'), 2, kLimit, {}).ok());
  ends.states.clear();
  cr_assert_eq(ends.said("misuse"), 0);
}

Test(nccl, after_a_communicator_that_was_not_made_there_is_none_until_it_has_left) {
  Ends ends;
  const auto id = ends.states[0]->make_id().value();
  // Nobody else joins.
  const auto alone = ends.states[0]->join(7, id, 0, 50ms, {});
  constexpr const char* kWhy =
      "NCCL 2.27.7: making a communicator: it was called off, or has taken too long";
  cr_assert_eq(alone.error().message(), kWhy);
  cr_assert_eq(ends.join(8, 50ms),
               std::string("a communicator of this program has failed: ") + kWhy);
  ends.states[0]->leave();
  ends.states[1]->leave();
  cr_assert_eq(ends.join(9), "");
}

Test(nccl, a_transfer_that_is_called_off_ends_the_pair_and_no_other, .timeout = 120) {
  Ends ends;
  cr_assert_eq(ends.join(7), "");
  cr_assert_eq(ends.join(8), "");
  std::vector<char> from(1 << 20, 'a'), to(from.size());
  const Run sent{reinterpret_cast<std::uint64_t>(from.data()), 0, from.size()},
      received{reinterpret_cast<std::uint64_t>(to.data()), 0, to.size()};
  // Nobody sends.
  const auto off = ends.states[0]->transfer(7, false, {&received, 1}, kLimit, [] { return true; });
  cr_assert_eq(off.error().message(),
               "NCCL 2.27.7: moving state: it was called off, or has taken too long");
  cr_assert_not(ends.states[0]->is_stuck());
  cr_assert_eq(ends.said("abort"), 1);
  auto other = std::async(std::launch::async, [&] {
    return ends.states[1]->transfer(8, true, {&sent, 1}, kLimit, {});
  });
  cr_assert(ends.states[0]->transfer(8, false, {&received, 1}, kLimit, {}).ok());
  cr_assert(other.get().ok());
  cr_assert_eq(to, from);
}

Test(nccl, a_call_that_never_returns_is_left_behind, .timeout = 120) {
  Ends ends(300ms);
  setenv("STAND_IN_NCCL_HANGS", "id", 1);
  const auto id = ends.states[0]->make_id();
  cr_assert_eq(id.error().message(),
               "NCCL 2.27.7 has not returned from a call, and is not used any more");
  cr_assert(ends.states[0]->is_stuck());
  for (const auto& state : ends.states)
    cr_assert_eq(state->open().error().message(), "NCCL has hung in this process before");
}

Test(nccl, a_communicator_that_cannot_be_given_up_does_not_hold_the_program, .timeout = 120) {
  Ends ends(300ms);
  cr_assert_eq(ends.join(), "");
  setenv("STAND_IN_NCCL_HANGS", "abort", 1);
  ends.states[0]->leave();
  cr_assert(ends.states[0]->is_stuck());
  ends.states.clear();  // the other one's neither
}
