// SPDX-License-Identifier: GPL-2.0-or-later
// The times of a switch, among shims whose answers are given.
#include <chrono>
#include <criterion/criterion.h>
#include <filesystem>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/coordinator/coordinator.h"
#include "support/given_shim.h"
#include "support/random_worlds.h"

using namespace swell;
using namespace swell::runtime;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

/// A shim's answer to one request to stop, and its delay.
struct Stop {
  std::chrono::milliseconds after;
  bool is_late = false;
};

/// Says what the coordinator wants to hear.
support::GivenShim::Answer stops_after(std::list<Stop> stops) {
  return [stops = std::move(stops)](const Message& asked) mutable -> std::string {
    switch (static_cast<Op>(asked.op)) {
      case Op::status: return write(Status{});
      case Op::table: return write(std::uint64_t{1}, std::vector<Held>());
      case Op::wait_ready: return write(std::vector<Entry>());
      case Op::prepare: return write(Prepared{});
      case Op::move: return write(Moved{});
      case Op::quiesce: {
        const Stop stop = stops.front();
        stops.pop_front();
        std::this_thread::sleep_for(stop.after);
        const auto step = ByteReader(asked.body).get<std::uint64_t>();
        return ByteWriter().put(step).put<std::uint8_t>(stop.is_late).take();
      }
      default: return {};
    }
  };
}

}  // namespace

// While one rank stood, another went on: it was told too late. Both were asked again.
Test(coordinator_switch, only_the_last_of_several_requests_to_stop_is_part_of_the_pause,
     .timeout = 60) {
  std::string folder = std::filesystem::temp_directory_path() / "swell-switch-XXXXXX";
  cr_assert(mkdtemp(folder.data()));
  const std::vector<Shim> shims{{folder + "/0/socket", "", {0, 0}},
                                {folder + "/1/socket", "", {0, 1}}};
  SwitchReport report;
  double elapsed_s = 0;
  {
    const support::GivenShim stands(shims[0].unix_socket, stops_after({{100ms}, {0ms}}));
    const support::GivenShim goes_on(shims[1].unix_socket, stops_after({{200ms, true}, {0ms}}));
    Coordinator coordinator(support::host_cluster(1, 2), {});
    const auto start = Clock::now();
    report = coordinator.switch_plan(shims, shims, 2).value();
    elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::filesystem::remove_all(folder);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_geq(report.wait_s, 0.2, "%g s", report.wait_s);
  const double sum = report.prepare_s + report.wait_s + report.stopped_s();
  cr_assert_leq(sum, elapsed_s, "%g s of %g s: some of it counts twice", sum, elapsed_s);
}
