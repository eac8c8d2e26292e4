// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/transport/fetcher.h"

#include <criterion/criterion.h>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/keeper/keeper.h"

using namespace swell::runtime;

namespace {

const std::string kKey = "a key of one job, 32 bytes long..";

/// A keeper of host "h" without a program, and an arena to fetch into.
struct Near {
  Near() {
    std::string pattern = std::filesystem::temp_directory_path() / "swell-fetcher-XXXXXX";
    cr_assert_neq(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    Keeper::Options options;
    options.unix_socket = folder + "/own/socket";
    options.tcp_host = "127.0.0.1";
    options.key = kKey;
    options.arena_bytes = 1 << 20;
    keeper = Keeper::start(std::move(options)).value();
  }
  ~Near() { std::filesystem::remove_all(folder); }

  /// The path that 8 bytes take from the memory of process `pid` of a PID namespace, or why not.
  std::string path_from(pid_t pid, const std::string& processes) {
    Prepare plan;
    plan.from.push_back(
        {{}, {"h", keeper->unix_socket(), keeper->tcp_address(), pid, processes}, {}});
    Placement placement;
    placement.fetches.push_back({0,
                                 Memory::program,
                                 Memory::arena,
                                 {{reinterpret_cast<std::uintptr_t>(&value), 4096, sizeof value}}});
    auto fetcher = Fetcher::open({"h", "pid:[1]", kKey, arena}, plan, placement.fetches);
    cr_assert(fetcher.ok(), "%s", fetcher ? "" : fetcher.error().message().c_str());
    const auto moved =
        fetcher->fetch_all(placement, 0, Verify::all, {[](const Fetch&) { return false; }, {}});
    return moved ? moved->paths.at(0).path : moved.error().message();
  }

  std::string folder;
  std::unique_ptr<Keeper> keeper;
  const std::uint64_t value = 42;
  const std::shared_ptr<const Arena> arena =
      std::make_shared<const Arena>(Arena::create(1 << 20).value());
};

const std::string kAskedItsShim =
    "moving state from old rank 0: another node's shim: no program trains here whose memory could "
    "be read";

}  // namespace

Test(fetcher, reads_a_program_s_memory_where_it_may) {
  Near near;
  cr_assert_eq(near.path_from(getpid(), "pid:[1]"), "process_vm_readv");
  cr_assert_eq(*reinterpret_cast<const std::uint64_t*>(near.arena->data() + 4096), 42);
}

Test(fetcher, checks_what_moves_within_a_node_where_it_was_asked_for) {
  Near near;
  // Two sources for one destination: the first one's bytes are not there in the end.
  const std::uint64_t values[] = {1, 2};
  Prepare plan;
  plan.from.push_back(
      {{}, {"h", near.keeper->unix_socket(), near.keeper->tcp_address(), getpid(), "pid:[1]"}, {}});
  Placement placement;
  placement.fetches.push_back({0,
                               Memory::program,
                               Memory::arena,
                               {{reinterpret_cast<std::uintptr_t>(&values[0]), 4096, 8},
                                {reinterpret_cast<std::uintptr_t>(&values[1]), 4096, 8}}});
  auto fetcher = Fetcher::open({"h", "pid:[1]", kKey, near.arena}, plan, placement.fetches).value();
  const auto moved = [&](Verify verify) {
    return fetcher.fetch_all(placement, 0, verify, {[](const Fetch&) { return false; }, {}});
  };
  cr_assert_neq(moved(Verify::all).error().message().find("the state has checksum"),
                std::string::npos);
  cr_assert(moved(Verify::network).ok());
  cr_assert(moved(Verify::none).ok());
}

Test(fetcher, asks_the_program_s_shim_where_the_pid_means_another_process) {
  Near near;
  cr_assert_eq(near.path_from(getpid(), "pid:[2]"), kAskedItsShim);
}

Test(fetcher, asks_the_program_s_shim_where_its_memory_is_not_to_be_read) {
  Near near;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  cr_assert_eq(waitpid(child, nullptr, 0), child);
  cr_assert_eq(near.path_from(child, "pid:[1]"), kAskedItsShim);
}

Test(fetcher, fetches_first_what_no_rank_has_that_stays) {
  const auto arena = std::make_shared<const Arena>(Arena::create(1 << 20).value());
  Prepare plan;
  plan.old_rank = 0;
  plan.from.push_back({{}, {"h", "", "", 0, ""}, {}});
  Placement placement;
  for (std::uint64_t i = 0; i < 20; ++i)
    placement.fetches.push_back({0, Memory::arena, Memory::arena, {{i, 4096 + i, 1}}, i % 3 == 0});
  auto fetcher = Fetcher::open({"h", "", kKey, arena}, plan, placement.fetches).value();
  std::mutex mutex;
  int rest = 0;
  bool in_order = true;
  const auto moved = fetcher.fetch_all(placement, 0, Verify::all,
                                       {[&](const Fetch& fetch) {
                                          std::lock_guard lock(mutex);
                                          if (fetch.only_there) in_order = in_order && rest == 0;
                                          else ++rest;
                                          return false;
                                        },
                                        {}});
  cr_assert(moved.ok());
  cr_assert(in_order);
  cr_assert_eq(rest, 13);
}
