// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/runtime_host.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <unistd.h>

#include "launcher/own_folder.h"
#include "launcher/switch_network.h"

namespace swell::launcher {

namespace {

namespace fs = std::filesystem;

/// Names a node by boot id and Slurm's name: slurmds on one machine count as different nodes.
std::string host_name(const std::string& node) { return boot_id() + "/" + node; }

/// The arena has twice this as address space: in a switch in chunks both states have places in it,
/// though never all of their memory at once. Pages that are not written take no memory.
std::uint64_t memory_of_this_machine() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// SWELL_TEST_HOLD=WHERE:FILE: a move makes FILE.reached and waits until FILE is gone, so that a
/// test can kill something just then. WHERE is verify: between the first verified block and the
/// last; rest: before the first block that a staying rank has; or chunk: between two chunks.
/// LiveDriver has such a hold at the beginning of each phase.
std::function<bool(runtime::Keeper::Options::Hold)> hold_for_a_test() {
  using Hold = runtime::Keeper::Options::Hold;
  const char* set = std::getenv("SWELL_TEST_HOLD");
  const std::string text = set != nullptr ? set : "", key = text.substr(0, text.find(':') + 1);
  if (key != "verify:" && key != "rest:" && key != "chunk:") return {};
  const Hold wanted = key == "rest:" ? Hold::rest : key == "chunk:" ? Hold::chunk : Hold::verified;
  return [wanted, file = text.substr(key.size())](Hold hold) {
    if (hold != wanted || access(file.c_str(), F_OK) != 0) return false;
    std::ofstream(file + ".reached", std::ios::app).flush();
    return true;
  };
}

}  // namespace

Result<std::unique_ptr<RuntimeHost>> RuntimeHost::start(const Options& options) {
  auto made = make_own_folder("worker", options.folder, std::strlen("/socket"));
  if (!made) return made.error();
  std::string folder = std::move(*made);
  runtime::Keeper::Options its;
  its.unix_socket = folder + "/socket";
  its.tcp_host = options.address;
  its.key = options.key;
  its.ucx = ucx_of(options.network, options.ports, options.address);
  its.nccl = nccl_of(options.network);
  its.on_profile = options.on_profile;
  its.on_adopted = options.on_adopted;
  its.holds = hold_for_a_test();
  its.host = host_name(options.node);
  its.arena_bytes = 2 * memory_of_this_machine();
  auto keeper = runtime::Keeper::start(std::move(its));
  if (!keeper) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return keeper.error().while_doing("the runtime of this worker");
  }
  return std::unique_ptr<RuntimeHost>(new RuntimeHost(std::move(folder), std::move(*keeper)));
}

bool RuntimeHost::ask_to_stop() const {
  auto channel = runtime::Channel::connect_unix(unix_socket());
  if (!channel) return false;
  return runtime::ask(*channel, runtime::Op::request,
                      ByteWriter().put(runtime::kStopRequest).take(),
                      runtime::within(std::chrono::seconds(1)))
      .ok();
}

RuntimeHost::~RuntimeHost() {
  keeper_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace swell::launcher
