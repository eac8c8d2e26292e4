// SPDX-License-Identifier: GPL-2.0-or-later
#include "profiler/recorder.h"

#include <criterion/criterion.h>
#include <thread>
#include <vector>

#include "profiler/times.h"

using namespace swell::profiler;

namespace {

int open(Recorder& recorder, Kind kind, void* stream = nullptr) {
  Opening opening;
  opening.kind = kind;
  opening.stream = stream;
  return recorder.begin(opening);
}

}  // namespace

Test(recorder, a_region_is_closed_once_and_in_its_own_step) {
  Recorder recorder;
  const int first = open(recorder, Kind::forward);
  cr_assert(recorder.end(first));
  cr_assert_not(recorder.end(first));
  cr_assert_not(recorder.end(first + 1));
  cr_assert_not(recorder.end(-1));
  const int left = open(recorder, Kind::forward);
  recorder.step(1);
  cr_assert_not(recorder.end(left), "a step ends what was left open");
  const int next = open(recorder, Kind::forward);
  open(recorder, Kind::forward);
  cr_assert_not(recorder.end(left));
  cr_assert(recorder.end(next));
}

Test(recorder, takes_no_region_in_a_step_that_rests) {
  static int readings = 0;
  Recorder recorder([]() noexcept { return static_cast<std::int64_t>(++readings); });
  int stream = 0;  // a device would be opened for it, and events recorded
  recorder.step(1, true);
  readings = 0;
  for (int i = 0; i < 3; ++i)
    cr_assert_eq(open(recorder, Kind::forward, &stream), Recorder::kNotTaken);
  cr_assert(recorder.end(Recorder::kNotTaken, 1 << 20));
  cr_assert_eq(readings, 0);
  cr_assert(recorder.device_problem().empty());
  recorder.step(2);
  recorder.end(open(recorder, Kind::forward));
  recorder.step(3);
  for (const std::size_t regions : {0, 0, 1}) cr_assert_eq(recorder.next()->spans.size(), regions);
}

Test(recorder, gives_steps_in_their_order_with_their_regions) {
  Recorder recorder;
  for (std::uint64_t step = 7; step < 9; ++step) {
    for (std::uint64_t i = 0; i < step; ++i) recorder.end(open(recorder, Kind::send), step * i);
    recorder.step(step);
  }
  for (std::uint64_t step = 7; step < 9; ++step) {
    const Step* done = recorder.next();
    cr_assert(done != nullptr && done->number == step && done->is_whole);
    cr_assert_eq(done->spans.size(), step);
    cr_assert_eq(done->spans.back().allocated_bytes, step * (step - 1));
  }
  cr_assert_null(recorder.next());
  cr_assert_eq(recorder.peak_bytes(), 56);
}

Test(recorder, knows_what_a_region_is_within_on_its_own_thread) {
  Recorder recorder;
  const int forward = open(recorder, Kind::forward);
  // Another thread's region is not in the stack of this one, but in its pass: autograd has threads.
  std::thread other([&] { recorder.end(open(recorder, Kind::tp_allreduce)); });
  other.join();
  const int head = open(recorder, Kind::head);
  recorder.end(head);
  recorder.end(forward);
  recorder.step(1);
  const Step* step = recorder.next();
  cr_assert(step->spans[1].parent == -1 && step->spans[1].in_forward);
  cr_assert(step->spans[1].thread != step->spans[0].thread);
  cr_assert(step->spans[2].parent == 0 && step->spans[2].in_forward);
}

Test(recorder, a_step_with_too_many_regions_is_left_out_and_the_next_is_not) {
  Recorder recorder;
  for (std::size_t i = 0; i < Recorder::kMaxOpen; ++i) cr_assert_geq(open(recorder, Kind::send), 0);
  cr_assert_eq(open(recorder, Kind::send), Recorder::kFull);
  recorder.step(1);
  cr_assert_not(recorder.next()->is_whole);
  for (std::size_t i = 0; i < Recorder::kMaxSpans; ++i)
    cr_assert(recorder.end(open(recorder, Kind::send)));
  cr_assert_eq(open(recorder, Kind::send), Recorder::kFull);
  recorder.step(2);
  cr_assert_not(recorder.next()->is_whole);
  cr_assert(recorder.end(open(recorder, Kind::send)));
  recorder.step(3);
  cr_assert(recorder.next()->is_whole);
}

/// Under ThreadSanitizer this is what finds a race.
Test(recorder, regions_of_many_threads_are_all_there) {
  constexpr int kThreads = 4, kRegions = 500;
  Recorder recorder;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&recorder] {
      for (int k = 0; k < kRegions; ++k) {
        const int outer = open(recorder, Kind::backward), inner = open(recorder, Kind::dp_sync);
        recorder.observe_memory(static_cast<std::uint64_t>(k));
        recorder.end(inner);
        recorder.end(outer, 1);
      }
    });
  std::size_t seen = 0;
  const auto take = [&] {
    while (const Step* step = recorder.next()) {
      seen += step->spans.size();
      times_of(*step);
    }
  };
  for (std::uint64_t step = 1; step < 50; ++step) {
    recorder.step(step);
    take();
  }
  for (std::thread& thread : threads) thread.join();
  recorder.step(50);
  take();
  cr_assert_eq(seen, 2 * kThreads * kRegions);
}

Test(recorder, a_stream_without_a_driver_is_an_error_and_spoils_its_step_alone) {
  Recorder recorder(&Recorder::host_clock, [] { return open_cuda_clock("libno-such-driver.so"); });
  int stream = 0;
  cr_assert_eq(open(recorder, Kind::forward, &stream), Recorder::kNoDevice);
  cr_assert(recorder.device_problem().find("libno-such-driver.so") != std::string::npos);
  recorder.step(1);
  cr_assert_not(recorder.next()->is_whole);
  recorder.end(open(recorder, Kind::forward));
  recorder.step(2);
  cr_assert(recorder.next()->is_whole);
}
