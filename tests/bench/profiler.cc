// SPDX-License-Identifier: GPL-2.0-or-later
// Measures the cost of the profiler in a training step: pairs of steps of fixed computation with
// and without 100 regions, each first in turn, through the C API. Each difference is in processor
// time of this thread, so that other processes on the machine do not count; the result is the
// median over all pairs. usage: profiler [STEP_MS]. Last line: JSON.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "runtime/api/swell.h"

namespace {

constexpr int kRegionsAStep = 100;
constexpr int kPairs = 400;

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

volatile double sink;

void compute(long rounds) {
  double x = 1;
  for (long i = 0; i < rounds; ++i) x = x * 1.0000001 + 1e-9;
  sink = x;
}

[[noreturn]] void die(swell_session_t* session, const char* what) {
  std::fprintf(stderr, "profiler: %s: %s\n", what, swell_last_error(session));
  std::exit(2);
}

/// Runs one step: 100 pieces of work, each a region if `session` is given. The number of
/// micro-batches changes every ten steps, so that the profile never becomes stable and all steps
/// are observed.
double step_s(swell_session_t* session, long rounds) {
  static std::uint64_t step = 0;
  static constexpr swell_region_kind_t kKinds[] = {SWELL_FORWARD, SWELL_TP_ALLREDUCE,
                                                   SWELL_BACKWARD, SWELL_SEND};
  const int per_micro_batch = step / 10 % 2 == 0 ? 4 : 10;
  const double began = cpu_s();
  for (int i = 0; i < kRegionsAStep; ++i) {
    int number = 0;
    if (session != nullptr) {
      swell_region_t region{};
      region.field_mask = SWELL_REGION_MICRO_BATCH | SWELL_REGION_LAYERS | SWELL_REGION_MEMORY;
      region.kind = kKinds[i % 4];
      region.micro_batch = i / per_micro_batch;
      region.layers = 2;
      region.allocated_bytes = 1 << 20;
      number = swell_region_begin(session, &region);
    }
    compute(rounds);
    if (session != nullptr && swell_region_end(session, number, 2 << 20) != 0)
      die(session, "closing a region");
  }
  if (session != nullptr && swell_step(session, ++step) != SWELL_GO_ON) die(session, "a step");
  return cpu_s() - began;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const double step_ms = argc > 1 ? std::atof(argv[1]) : 10;
  if (!(step_ms > 0)) {
    std::fprintf(stderr, "profiler: STEP_MS is \"%s\"; it must be above 0\n", argv[1]);
    return 2;
  }
  unsetenv("SWELL_RUNTIME");
  swell_session_t* session = nullptr;
  swell_role_t role{};
  role.layers = role.local_batch = 1;
  if (swell_open(nullptr, &session) != 0 || swell_adopt(session, nullptr) != 0 ||
      swell_set_role(session, &role) != 0)
    die(session, "opening a session");
  long rounds = 1000;
  for (int i = 0; i < 20; ++i)
    rounds = std::max(1L, static_cast<long>(static_cast<double>(rounds) * step_ms / 1e3 /
                                            step_s(nullptr, rounds)));
  step_s(session, rounds);
  std::vector<double> without, extra;
  for (int i = 0; i < kPairs; ++i) {
    double with_s = 0, without_s = 0;
    if (i % 2 == 0) with_s = step_s(session, rounds);
    without_s = step_s(nullptr, rounds);
    if (i % 2 != 0) with_s = step_s(session, rounds);
    without.push_back(without_s);
    extra.push_back(with_s - without_s);
  }
  swell_times_t times;
  if (swell_profile(session, &times) != 0 || times.stable)
    die(session, "the steps were not profiled");
  swell_close(session);
  const double overhead = median(extra) / median(without);
  std::printf("a step of %.2f ms with %d regions costs %.1f us more, %.0f ns a region\n",
              median(without) * 1e3, kRegionsAStep, median(extra) * 1e6,
              median(extra) * 1e9 / kRegionsAStep);
  std::printf(
      "{\"step_ms\": %.2f, \"regions\": %d, \"pairs\": %d, \"overhead_percent\": %.4f, "
      "\"goal_percent\": 0.5}\n",
      median(without) * 1e3, kRegionsAStep, kPairs, overhead * 100);
  return overhead <= 0.005 ? 0 : 1;
}
