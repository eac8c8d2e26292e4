// SPDX-License-Identifier: GPL-2.0-or-later
// A program of meeting.h whose ranks meet in each step, as training does in its
// collectives: who goes on without another waits for it for ever.
//   PLAN      1,DP,1,0: DP ranks, each with all of the state, the number of steps that were made
//   MEET      a file that they share; empty: they do not meet
//   PACE_US   for a step of this rank
//   DEAF_FROM the step at which it hangs, for ever; 0: at none
//   NOTES     a folder: what it was told, and at which step, is a file "ACTION.RANK" there
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/api/swell.h"

namespace {

constexpr int kMaxRanks = 64;
using Counter = std::atomic<std::uint64_t>;

std::string variable(const char* name, const char* otherwise) {
  const char* set = std::getenv(name);
  return set != nullptr && *set != '\0' ? set : otherwise;
}

[[noreturn]] void die(const char* what, swell_session_t* session) {
  std::fprintf(stderr, "meeting_program: %s: %s\n", what, swell_last_error(session));
  std::exit(1);
}

/// Returns the step that each rank has come to; nullptr: they do not meet.
Counter* meeting() {
  const std::string path = variable("MEET", "");
  if (path.empty()) return nullptr;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Counter) * kMaxRanks) != 0) return nullptr;
  void* at = mmap(nullptr, sizeof(Counter) * kMaxRanks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Counter*>(at);
}

void meet(Counter* met, int rank, int world, std::uint64_t step) {
  if (met == nullptr) return;
  met[rank].store(step);
  for (int other = 0; other < world; ++other)
    while (met[other].load() < step) usleep(20);
}

void note(const char* action, int rank, std::uint64_t step) {
  std::ofstream(variable("NOTES", "/nowhere") + "/" + action + "." + std::to_string(rank)) << step;
}

}  // namespace

int main() {
  const int rank = std::atoi(variable("RANK", "0").c_str());
  int world = 1;
  if (std::sscanf(variable("PLAN", "").c_str(), "1,%d,1,0", &world) != 1) return 2;
  const auto pace = static_cast<useconds_t>(std::atoi(variable("PACE_US", "0").c_str()));
  const std::uint64_t deaf_from = std::strtoull(variable("DEAF_FROM", "0").c_str(), nullptr, 10);
  Counter* const met = meeting();
  swell_session_t* session = nullptr;
  if (swell_open(nullptr, &session) != 0) die("opening", nullptr);
  swell_tensor_t steps{};
  steps.name = "steps";
  steps.dtype = SWELL_I64;
  steps.dims = 1;
  steps.shape[0] = 1;
  swell_generation_t generation{};
  if (swell_register(session, &steps) != 0) die("registering", session);
  if (swell_adopt(session, &generation) != 0) die("adopting", session);
  void* address = nullptr;
  if (swell_address(session, "steps", 0, &address, nullptr) != 0) die("its address", session);
  auto* made = static_cast<std::int64_t*>(address);
  if (generation.fresh != 0) *made = 0;
  if (*made != static_cast<std::int64_t>(generation.step)) return 3;
  for (std::uint64_t step = generation.step + 1;; ++step) {
    meet(met, rank, world, step);
    if (pace > 0) usleep(pace);
    while (step == deaf_from) pause();
    ++*made;
    const int action = swell_step(session, step);
    if (action < 0) die("step", session);
    if (action == SWELL_CHECKPOINT) note("checkpoint", rank, step);
    if (action != SWELL_STOP) continue;
    note("stop", rank, step);
    swell_close(session);
    return 0;
  }
}
