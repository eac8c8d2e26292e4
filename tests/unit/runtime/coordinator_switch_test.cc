// SPDX-License-Identifier: GPL-2.0-or-later
// The times of a switch, among shims whose answers are given.
#include <chrono>
#include <criterion/criterion.h>
#include <filesystem>
#include <list>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "runtime/coordinator.h"
#include "support/random_worlds.h"

using namespace swell;
using namespace swell::runtime;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

/// What a shim answers to one request to stop, and how long after it.
struct Stop {
  std::chrono::milliseconds after;
  bool is_late = false;
};

/// A shim without a program: says what the coordinator wants to hear.
class GivenShim {
 public:
  GivenShim(const std::string& path, std::vector<Stop> stops)
      : listening_(listen_unix(path).value()),
        stops_(stops.begin(), stops.end()),
        thread_([this] { serve(); }) {}
  ~GivenShim() {
    shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }
  GivenShim(const GivenShim&) = delete;
  GivenShim& operator=(const GivenShim&) = delete;

 private:
  void serve() {
    for (std::vector<Channel> channels;;) {
      std::vector<pollfd> polled{{listening_.get(), POLLIN, 0}};
      for (const Channel& each : channels) polled.push_back({each.fd(), POLLIN, 0});
      poll(polled.data(), polled.size(), -1);
      for (std::size_t i = 0; i + 1 < polled.size(); ++i) {
        if (polled[i + 1].revents == 0) continue;
        const auto asked = channels[i].receive();
        if (!asked || !channels[i].send(kDoneOp, answer(*asked))) channels[i] = Channel();
      }
      std::erase_if(channels, [](const Channel& each) { return !each; });
      if (polled[0].revents == 0) continue;
      auto taken = accept_any(listening_.get());
      if (!taken) return;
      channels.emplace_back(std::move(*taken));
    }
  }

  std::string answer(const Message& asked) {
    switch (static_cast<Op>(asked.op)) {
      case Op::status: return write(Status{});
      case Op::table: return write(std::uint64_t{1}, std::vector<Held>());
      case Op::wait_ready: return write(std::vector<Entry>());
      case Op::prepare: return write(Prepared{});
      case Op::move: return write(Moved{});
      case Op::quiesce: {
        const Stop stop = stops_.front();
        stops_.pop_front();
        std::this_thread::sleep_for(stop.after);
        const auto step = Reader(asked.body).get<std::uint64_t>();
        return Writer().put(step).put<std::uint8_t>(stop.is_late).take();
      }
      default: return {};
    }
  }

  Descriptor listening_;
  std::list<Stop> stops_;
  std::thread thread_;
};

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
    const GivenShim stands(shims[0].unix_socket, {{100ms}, {0ms}});
    const GivenShim goes_on(shims[1].unix_socket, {{200ms, true}, {0ms}});
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
