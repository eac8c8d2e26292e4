// SPDX-License-Identifier: GPL-2.0-or-later
// Measures the cost of moving state from one GPU to another by NCCL during a pause: creating a
// communicator of two (part of every pause), moving the bytes, and destroying it. Compares with
// moving the same bytes through this host's memory, 1 MiB at a time, as state moves without NCCL
// (but without a network). Two processes with one GPU each, as in a switch; the received bytes are
// checked. usage: gpu-nccl [MIB [GPU [OTHER_GPU]]] (1024, 0, 1). Exits with 77 if there are fewer
// than two GPUs, or no NCCL. Last line: JSON.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/byte_message.h"
#include "gpu_bench.h"
#include "runtime/device/nccl_state.h"
#include "runtime/transport/channel.h"

using namespace swell;
using namespace swell::runtime;
using namespace bench;

namespace {

constexpr std::uint16_t kId = 1, kReady = 2, kSkipped = 3;
constexpr NcclState::Milliseconds kLimit{60'000};
constexpr int kRounds = 3;

/// Returns `bytes` bytes as words, each with a different value.
std::vector<std::uint64_t> pattern(std::uint64_t bytes) {
  std::vector<std::uint64_t> made(bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = i * 0x9e3779b97f4a7c15;
  return made;
}

/// Runs in both programs: rank 0 receives, as the new program of a switch does, and prints.
void program(Channel& other, int rank, int gpu, std::uint64_t bytes) {
  auto device = Device::open(gpu);
  const auto skip = [&](const std::string& why) {
    static_cast<void>(other.send(kSkipped, why));
    if (rank == 0) std::printf("gpu-nccl: skipped: %s\n", why.c_str());
    std::fflush(nullptr);
    std::_Exit(77);
  };
  const auto hear = [&](std::uint16_t op) {
    Message message = must(other.receive());
    if (message.op == kSkipped) skip(message.body);
    if (message.op != op) die("the other program says something else");
    return message;
  };
  if (!device) skip(device.error().message());
  auto begin = Clock::now();
  NcclState nccl(*device);
  const auto about = nccl.open();
  const double open_s = since(begin);
  if (!about) skip(about.error().message());
  must(other.send(kReady, (*device)->gpu()));
  if (hear(kReady).body == (*device)->gpu()) skip("both GPUs are the same");
  const Slab memory = must(Slab::create(*device, bytes));
  const auto expected = pattern(bytes);
  if (rank == 1) must((*device)->to_device(memory.address(), expected.data(), bytes));
  const Run run{memory.address(), 0, bytes};
  std::vector<double> id_s, join_s, move_s, leave_s;
  for (int round = 0; round < kRounds; ++round) {
    std::string id;
    begin = Clock::now();
    if (rank == 0) {
      id = must(nccl.make_id());
      id_s.push_back(since(begin));
      must(other.send(kId, id));
    } else {
      id = hear(kId).body;
    }
    begin = Clock::now();
    must(nccl.join(1, id, rank, kLimit, {}));
    join_s.push_back(since(begin));
    for (int again = 0; again < kRounds; ++again) {
      must(other.send(kReady, ""));
      hear(kReady);
      begin = Clock::now();
      must(nccl.transfer(1, rank == 1, {&run, 1}, kLimit, {}));
      move_s.push_back(since(begin));
    }
    must(other.send(kReady, ""));
    hear(kReady);
    begin = Clock::now();
    nccl.leave();
    leave_s.push_back(since(begin));
    if (nccl.is_stuck()) die("a communicator could not be given up");
  }
  std::vector<std::uint64_t> found(expected.size());
  must((*device)->to_host(found.data(), memory.address(), bytes));
  if (found != expected) die("what arrived is not what was sent");
  // The same transfer through the host.
  std::vector<char> staging(kMiB);
  begin = Clock::now();
  for (std::uint64_t at = 0; at < bytes; at += kMiB) {
    const std::size_t count = std::min(kMiB, bytes - at);
    if (rank == 1) {
      must((*device)->to_host(staging.data(), memory.address() + at, count));
      must(other.send_bytes(staging.data(), count));
    } else {
      must(other.receive_bytes(staging.data(), count));
      must((*device)->to_device(memory.address() + at, staging.data(), count));
    }
  }
  const double hosts_s = since(begin);
  if (rank != 0) return;
  const double best_s = *std::min_element(move_s.begin(), move_s.end());
  std::printf("%s: %.0f MiB from GPU to GPU: NCCL %.1f GB/s, through the host %.1f GB/s\n",
              about->c_str(), static_cast<double>(bytes) / static_cast<double>(kMiB),
              static_cast<double>(bytes) / best_s / 1e9,
              static_cast<double>(bytes) / hosts_s / 1e9);
  std::printf(
      "{\"bytes\": %llu, \"open_s\": %.4f, \"id_s\": %.4f, \"first_join_s\": %.4f, \"join_s\": %.4f, "
      "\"first_move_s\": %.4f, \"move_s\": %.4f, \"leave_s\": %.4f, \"through_host_s\": %.4f}\n",
      static_cast<unsigned long long>(bytes), open_s, id_s.front(), join_s.front(), join_s.back(),
      move_s.front(), best_s, leave_s.back(), hosts_s);
}

std::uint64_t number(const char* word, const char* what) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(word, &end, 10);
  if (*word == '\0' || *end != '\0')
    die(std::string(what) + " is \"" + word + "\"; it is a whole number");
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t bytes = (argc > 1 ? number(argv[1], "MIB") : 1024) * kMiB;
  const int gpus[] = {static_cast<int>(argc > 2 ? number(argv[2], "GPU") : 0),
                      static_cast<int>(argc > 3 ? number(argv[3], "OTHER_GPU") : 1)};
  if (bytes == 0) die("MIB is 1 or more");
  int ends[2] = {};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) die("socketpair");
  std::vector<pid_t> started;
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid > 0) {
      started.push_back(pid);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[1 - rank]);
    Channel other{Descriptor(ends[rank])};
    program(other, rank, gpus[rank], bytes);
    std::fflush(nullptr);
    _exit(0);
  }
  close(ends[0]);
  close(ends[1]);
  int worst = 0;
  for (const pid_t pid : started) {
    int status = 0;
    waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}
