// SPDX-License-Identifier: GPL-2.0-or-later
// Against a driver without a device: tests/unit/profiler/fake_cuda.cc.
#include <cmath>
#include <criterion/criterion.h>
#include <cstdio>
#include <unistd.h>

#include "profiler/fake_cuda.h"
#include "profiler/library.h"
#include "profiler/profiler.h"
#include "profiler/recorder.h"
#include "profiler/times.h"

using namespace swell::profiler;

namespace {

struct Driver {
  FakePut put = nullptr;
  FakeRun run = nullptr;
  FakeRefuse refuse = nullptr;
  FakeCapture capture = nullptr;
  FakeFail fail = nullptr;
  FakeCountsOf counts = nullptr;
};

Driver driver() {
  Library library;
  Driver found;
  cr_assert(library.open(SWELL_FAKE_CUDA).ok());
  cr_assert(library
                .find({{"fake_put", &found.put},
                       {"fake_run", &found.run},
                       {"fake_refuse", &found.refuse},
                       {"fake_capture", &found.capture},
                       {"fake_fail", &found.fail},
                       {"fake_counts", &found.counts}})
                .ok());
  return found;
}

std::int64_t now_ns = 0;
std::int64_t test_clock() noexcept { return now_ns; }
Recorder::OpenDevice open_fake() {
  return [] { return open_cuda_clock(SWELL_FAKE_CUDA); };
}

int stream_1, stream_2;

/// Puts a pass of `us` on a stream, which takes the host 20 us.
void pass(Recorder& recorder, const Driver& fake, Kind kind, double us, void* stream = &stream_1) {
  Opening opening;
  opening.kind = kind;
  opening.layers = 2;
  opening.stream = stream;
  const int region = recorder.begin(opening);
  now_ns += 20'000;
  fake.put(stream, us);
  cr_assert(recorder.end(region));
}

bool near(double a, double b) { return std::abs(a - b) < 1e-9; }

}  // namespace

Test(device, times_are_of_the_device_and_nothing_waits_for_it) {
  const Driver fake = driver();
  {
    Recorder recorder(&test_clock, open_fake());
    for (std::uint64_t step = 1; step <= 5; ++step) {
      pass(recorder, fake, Kind::forward, 1000);
      pass(recorder, fake, Kind::backward, 2000);
      recorder.step(step);
      cr_assert_null(recorder.next(), "the device has not come so far");
    }
    fake.run(2 * 3000);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      const Step* done = recorder.next();
      cr_assert(done != nullptr && done->number == step);
      const auto seen = times_of(*done);
      cr_assert(near(seen->times.fwd_s, 0.001), "%g", seen->times.fwd_s);
      cr_assert(near(seen->times.bwd_s, 0.002));
      cr_assert(near(seen->times.layer_launch_s, 10e-6), "20 us for two layers");
    }
    cr_assert_null(recorder.next());
    cr_assert_eq(fake.counts().waits, 0);
  }
  cr_assert_eq(fake.counts().alive, 0, "events of steps that were never taken are freed too");
}

Test(device, events_are_used_again) {
  const Driver fake = driver();
  Recorder recorder(&test_clock, open_fake());
  for (std::uint64_t step = 1; step <= 100; ++step) {
    for (int i = 0; i < 50; ++i) pass(recorder, fake, Kind::forward, 10);
    fake.run(500);
    recorder.step(step);
    cr_assert(recorder.next()->is_whole);
  }
  cr_assert_eq(fake.counts().created, 100);
  cr_assert_eq(fake.counts().waits, 0);
}

Test(device, synchronization_on_another_stream_counts_from_the_end_of_the_backward_pass) {
  const Driver fake = driver();
  Recorder recorder(&test_clock, open_fake());
  pass(recorder, fake, Kind::forward, 1000);
  Opening opening;
  opening.kind = Kind::backward;
  opening.stream = &stream_1;
  const int backward = recorder.begin(opening);
  fake.put(&stream_2, 2500);  // waits for the gradients' first bucket
  pass(recorder, fake, Kind::dp_sync, 1000, &stream_2);
  fake.put(&stream_1, 2000);
  recorder.end(backward);
  recorder.step(1);
  fake.run(3000);
  cr_assert_null(recorder.next(), "one stream of two is behind");
  fake.run(500);
  const auto seen = times_of(*recorder.next());
  cr_assert(near(seen->times.bwd_s, 0.002));
  cr_assert(near(seen->times.commu_extra_s, 0.0005), "%g", seen->times.commu_extra_s);
}

Test(device, a_device_far_behind_costs_its_oldest_steps_and_not_memory) {
  const Driver fake = driver();
  Recorder recorder(&test_clock, open_fake());
  for (std::uint64_t step = 1; step <= 100; ++step) {
    pass(recorder, fake, Kind::forward, 10);
    recorder.step(step);
    cr_assert_null(recorder.next());
  }
  cr_assert_eq(fake.counts().created, 2 * (Recorder::kMaxPending + 1));
  fake.run(1e6);
  cr_assert_eq(recorder.next()->number, 100 - Recorder::kMaxPending + 1);
}

Test(device, a_refused_event_spoils_its_step_alone_and_is_said) {
  const Driver fake = driver();
  Recorder recorder(&test_clock, open_fake());
  fake.refuse(1);
  pass(recorder, fake, Kind::forward, 10);
  fake.refuse(0);
  recorder.step(1);
  pass(recorder, fake, Kind::forward, 10);
  pass(recorder, fake, Kind::backward, 10);
  recorder.step(2);
  fake.run(1000);
  cr_assert_not(recorder.next()->is_whole);
  cr_assert(times_of(*recorder.next()).has_value());
  cr_assert_eq(recorder.device_problem(), "the driver refused an event on a stream");
}

Test(device, a_step_whose_stream_is_captured_into_a_graph_is_left_out_without_an_event) {
  const Driver fake = driver();
  Recorder recorder(&test_clock, open_fake());
  fake.capture(1);
  pass(recorder, fake, Kind::forward, 10);
  pass(recorder, fake, Kind::backward, 10);
  fake.capture(0);
  recorder.step(1);
  pass(recorder, fake, Kind::forward, 10);
  pass(recorder, fake, Kind::backward, 10);
  recorder.step(2);
  fake.run(1000);
  cr_assert_not(recorder.next()->is_whole);
  cr_assert(times_of(*recorder.next()).has_value());
  cr_assert_eq(fake.counts().created, 4, "of the second step alone");
  cr_assert(recorder.device_problem().empty(), "nothing is wrong with the device");
}

Test(device, times_are_read_while_another_stream_is_captured) {
  const Driver fake = driver();
  Recorder recorder(&test_clock, open_fake());
  pass(recorder, fake, Kind::forward, 10);
  pass(recorder, fake, Kind::backward, 10);
  recorder.step(1);
  fake.run(1000);
  fake.capture(1);
  cr_assert(times_of(*recorder.next()).has_value());
  cr_assert_eq(fake.counts().spoiled, 0);
  fake.capture(0);
}

Test(device, an_event_that_fails_later_is_said) {
  const Driver fake = driver();
  Recorder recorder(&test_clock, open_fake());
  pass(recorder, fake, Kind::forward, 10);
  recorder.step(1);
  fake.fail(1);
  cr_assert_not(recorder.next()->is_whole);
  cr_assert_eq(recorder.device_problem(), "the driver has an error for an event");
  fake.fail(0);
}

/// This machine has no driver.
Test(device, a_program_whose_device_has_no_times_hears_of_it_once) {
  Profiler profiler(Profiler::Options{{}, 10, false, 3});
  Opening opening;
  opening.kind = Kind::forward;
  opening.stream = &stream_1;
  if (profiler.recorder().begin(opening) >= 0) return;  // there is a driver here
  std::FILE* said = std::tmpfile();
  const int before = dup(STDERR_FILENO);
  cr_assert_geq(dup2(fileno(said), STDERR_FILENO), 0);
  profiler.boundary(1);
  profiler.boundary(2);
  std::fflush(stderr);
  cr_assert_geq(dup2(before, STDERR_FILENO), 0);
  close(before);
  std::rewind(said);
  char text[1024] = {};
  const std::size_t size = std::fread(text, 1, sizeof text - 1, said);
  std::fclose(said);
  const std::string all(text, size);
  cr_assert_eq(all.find("swell: rank 3: "), 0U, "%s", text);
  cr_assert(all.find("this job has no profile") != std::string::npos);
  cr_assert_eq(all.find("swell: rank 3: ", 1), std::string::npos, "said twice");
}
