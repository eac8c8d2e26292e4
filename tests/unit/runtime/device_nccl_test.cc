// SPDX-License-Identifier: GPL-2.0-or-later
// Switches whose state goes from GPU to GPU by NCCL, over stand-ins for it and for the driver.
#include <criterion/criterion.h>
#include <fstream>
#include <future>
#include <utility>

#include "runtime/gpu_job.h"

using namespace gpu_jobs;

namespace {

/// The state has few rows, so that many steps are short.
constexpr std::uint64_t kState = kWeights / 8;
constexpr const char* kBetween = "nccl, between nodes, from a GPU, to a GPU";
constexpr const char* kTcp = "tcp, from a GPU, to a GPU";

/// Long limits, but for what is to be seen to hang.
NcclOptions nccl(std::chrono::milliseconds join = 40s, std::chrono::milliseconds move = 40s) {
  NcclOptions made;
  made.join_limit = join;
  made.patience = move;
  return made;
}

struct NcclJob : GpuJob {
  explicit NcclJob(bool apart = true, const NcclOptions& how = nccl(), const char* steps = "1500",
                   const Coordinator::Options& limits = options())
      : GpuJob(apart, steps, limits, how), log("STAND_IN_NCCL_LOG=" + file()) {}
  std::string file() const { return job.folder() + "/nccl"; }
  pid_t start(const PlanShape& plan, int rank, int gpu, std::vector<std::string> more = {}) {
    more.push_back(log);
    more.push_back("ROWS=8");
    return GpuJob::start(plan, rank, gpu, more);
  }
  /// How often the stand-in says so.
  int said(const std::string& what) const {
    std::ifstream lines(file());
    int count = 0;
    for (std::string line; std::getline(lines, line);) count += line.starts_with(what) ? 1 : 0;
    return count;
  }
  const std::string log;
};

std::string notes_of(const SwitchReport& report) {
  std::string all;
  for (const std::string& note : report.notes) all += note + "; ";
  return all;
}

/// One rank on GPU 0 becomes two, the second on GPU 1; `old`, `more`: variables of the programs.
SwitchReport split(NcclJob& gpus, const std::vector<std::string>& old = {},
                   const std::vector<std::string>& more = {}) {
  const pid_t before = gpus.start(kOne, 0, 0, old);
  gpus.begin(kOne);
  const pid_t first = gpus.start(kTwo, 0, 0, more), second = gpus.start(kTwo, 1, 1, more);
  const auto report = gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.job.wait(before), 0, "it leaves");
  cr_assert_eq(gpus.job.wait(first), 0);
  cr_assert_eq(gpus.job.wait(second), 0, "every value is what it must be");
  cr_assert_eq(gpus.said("misuse"), 0);
  return report;
}

}  // namespace

Test(device_nccl, between_nodes_one_gpu_sends_to_the_other, .timeout = 300) {
  NcclJob gpus;
  const auto report = split(gpus);
  cr_assert_eq(gpus.paths[kBetween], kState / 2 + 8, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.paths["in place"], kState / 2 + 8, "%s", gpus.way().c_str());
  cr_assert_eq(notes_of(report), "state of GPUs goes by NCCL 2.27.7; ");
  cr_assert_eq(gpus.said("join"), 2);
  cr_assert_eq(gpus.said("abort"), 2, "both ends give it up");
}

Test(device_nccl, memory_that_programs_allocated_goes_the_same_way, .timeout = 300) {
  NcclJob gpus;
  split(gpus, {"WHERE=own"}, {"WHERE=own"});
  cr_assert_eq(gpus.paths["nccl, between nodes, from own GPU memory, to own GPU memory"],
               kState / 2, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.paths[kBetween], 8, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.said("join"), 2, "one communicator for both");
}

Test(device_nccl, within_a_node_it_is_used_where_memory_cannot_be_mapped, .timeout = 300) {
  {
    NcclJob gpus(false);
    split(gpus, {}, {"STAND_IN_NO_PEER=1"});
    cr_assert_eq(gpus.paths["nccl, within a node, from a GPU, to a GPU"], kState / 2 + 8, "%s",
                 gpus.way().c_str());
  }
  NcclJob gpus(false);
  split(gpus, {"WHERE=own", "STAND_IN_NO_HANDLES=1"}, {"WHERE=own"});
  cr_assert_eq(gpus.paths["nccl, within a node, from own GPU memory, to own GPU memory"],
               kState / 2, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.paths["device to device, another GPU"], 8, "%s", gpus.way().c_str());
}

Test(device_nccl, without_checksums_too, .timeout = 300) {
  auto limits = options();
  limits.verify = Verify::none;
  NcclJob gpus(true, nccl(), "1500", limits);
  split(gpus);
  cr_assert_eq(gpus.paths[kBetween], kState / 2 + 8, "%s", gpus.way().c_str());
}

Test(device_nccl, two_ranks_that_change_places_send_to_each_other_at_once, .timeout = 300) {
  NcclJob gpus;
  const pid_t one = gpus.start(kTwo, 0, 0), other = gpus.start(kTwo, 1, 1);
  gpus.begin(kTwo);
  gpus.job.variables = {kDriver, gpus.log, "ROWS=8", "STAND_IN_FIRST=0"};
  const pid_t last = gpus.job.start_rank(kTwo, 1, 0);
  gpus.job.variables = {kDriver, gpus.log, "ROWS=8", "STAND_IN_FIRST=1"};
  const pid_t first = gpus.job.start_rank(kTwo, 0, 1);
  std::vector<Shim> to = gpus.job.shims(kTwo);
  std::swap(to[0], to[1]);
  const auto report = gpus.coordinator.switch_plan(gpus.job.shims(kTwo), to, 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  for (const PathBytes& path : report.paths) gpus.paths[path.path] = path.bytes;
  cr_assert_eq(gpus.paths[kBetween], kState, "%s", gpus.way().c_str());
  for (const pid_t pid : {one, other, first, last}) cr_assert_eq(gpus.job.wait(pid), 0);
  cr_assert_eq(gpus.said("join"), 4);
  cr_assert_eq(gpus.said("abort"), 4);
  cr_assert_eq(gpus.said("misuse"), 0);
}

Test(device_nccl, a_program_that_stays_sends_and_trains_on, .timeout = 300) {
  NcclJob gpus(true, nccl(), "3000");
  const pid_t stays = gpus.start(kOne, 0, 0, {"STAYS=1"});
  gpus.begin(kOne);
  cr_assert(gpus.job.keepers[0]->offer_next(
      2, {{"PLAN", "1,1,2,0"}, {"RANK", "0"}, {"WHERE", "device"}}));
  const pid_t second = gpus.start(kTwo, 1, 1);
  const auto report = gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  for (const int shim : {0, 1}) wait_for_steps(gpus.job, shim, report.step + 3);
  cr_assert_eq(gpus.said("abort"), 2, "who trains has no communicator left");
  cr_assert_eq(gpus.paths[kBetween], kState / 2 + 8, "%s", gpus.way().c_str());
  cr_assert_eq(gpus.job.wait(stays), 0);
  cr_assert_eq(gpus.job.wait(second), 0);
}

/// All goes by TCP, and a note says why.
static void not_used(const std::vector<std::string>& old, const std::vector<std::string>& more,
                     const std::string& why, const NcclOptions& how = nccl(), int gpu = 1,
                     const std::string& also = {}) {
  NcclJob gpus(true, how);
  const pid_t before = gpus.start(kOne, 0, 0, old);
  gpus.begin(kOne);
  const pid_t first = gpus.start(kTwo, 0, 0, more), second = gpus.start(kTwo, 1, gpu, more);
  const auto report = gpus.change(kOne, kTwo);
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(gpus.paths[kTcp], kState / 2 + 8, "%s", gpus.way().c_str());
  cr_assert_neq(notes_of(report).find(why), std::string::npos, "%s", notes_of(report).c_str());
  cr_assert_neq(notes_of(report).find(also), std::string::npos, "%s", notes_of(report).c_str());
  for (const pid_t pid : {before, first, second}) cr_assert_eq(gpus.job.wait(pid), 0);
  cr_assert_eq(gpus.said("misuse"), 0);
  cr_assert_eq(gpus.said("join"), 0);
}

Test(device_nccl, an_older_release_is_not_used, .timeout = 300) {
  const std::string why = "libnccl.so.2 is NCCL 2.13.4; 2.14 or later is needed; ";
  not_used({}, {"STAND_IN_NCCL_VERSION=21304"}, "NCCL is not used: the new program: " + why);
  not_used({"STAND_IN_NCCL_VERSION=21304"}, {}, "NCCL is not used: another rank's shim: " + why);
}

Test(device_nccl, two_programs_of_one_gpu_have_no_communicator, .timeout = 300) {
  not_used({}, {}, "both programs have the same GPU, of which NCCL takes each once", nccl(), 0);
}

// Nothing has been moved by then: the switch goes on over another way.
Test(device_nccl, where_no_communicator_can_be_made_state_goes_through_hosts, .timeout = 300) {
  const std::string kInstead = "state of GPUs goes through host memory, not by NCCL: ";
  const std::string kFailed = "NCCL 2.27.7: making a communicator: ";
  not_used({}, {"STAND_IN_NCCL_FAILS=id"}, "NCCL 2.27.7: making an id: unhandled system error");
  for (const bool is_old : {true, false}) {
    // Which of both says it first is as it comes.
    const auto where = [&](const char* what, const std::string& why) {
      const std::vector<std::string> none, set{what};
      not_used(is_old ? set : none, is_old ? none : set, kInstead, nccl(), 1, why);
    };
    where("STAND_IN_NCCL_FAILS=init", kFailed + "unhandled system error (2)");
    where("STAND_IN_NCCL_FAILS=joining", kFailed + "remote process exited or there was a network");
    where("STAND_IN_NCCL_FAILS=connecting", "remote process exited or there was a network");
  }
}

Test(device_nccl, where_making_a_communicator_hangs_nobody_waits_for_long, .timeout = 300) {
  const std::string kInstead = "state of GPUs goes through host memory, not by NCCL: ";
  const std::vector<std::string> none, waits{"STAND_IN_NCCL_HANGS=joining"},
      never{"STAND_IN_NCCL_HANGS=init"}, unreachable{"STAND_IN_NCCL_HANGS=connecting"};
  not_used(waits, none, kInstead, nccl(1s));
  not_used(none, waits, kInstead, nccl(1s));
  not_used(never, none, kInstead, nccl(1s));
  not_used(none, never, kInstead, nccl(1s));
  not_used(unreachable, none, kInstead, nccl(1s));
  not_used(none, unreachable, kInstead, nccl(1s));
  not_used({"STAND_IN_NCCL_FAILS=joining"}, {"STAND_IN_NCCL_HANGS=abort"}, kInstead);
}

/// The switch is called off, and the old program trains to the end.
static void called_off(const std::vector<std::string>& old, const std::vector<std::string>& more,
                       const std::string& why, const NcclOptions& how = nccl()) {
  NcclJob gpus(true, how);
  const pid_t before = gpus.start(kOne, 0, 0, old);
  gpus.begin(kOne);
  gpus.start(kTwo, 0, 0);
  gpus.start(kTwo, 1, 1, more);
  const auto report = gpus.change(kOne, kTwo);
  cr_assert_not(report.committed);
  cr_assert_eq(report.failed_in, Phase::move);
  cr_assert_neq(report.why.find(why), std::string::npos, "%s", report.why.c_str());
  cr_assert_lt(report.move_s, 30.0, "nobody waits for longer");
  cr_assert_eq(gpus.job.wait(before), 0, "every value is what it must be");
  cr_assert_eq(gpus.said("misuse"), 0);
}

Test(device_nccl, a_failure_while_state_moves_cancels_the_switch, .timeout = 300) {
  const std::string kRemote = "remote process exited or there was a network error (6)";
  for (const std::string where : {"moving", "group"}) {
    // Where a group fails at one end, the other end may be first to say that it is gone.
    const std::string why = where == "group" ? "NCCL 2.27.7: " : kRemote;
    called_off({"STAND_IN_NCCL_FAILS=" + where}, {}, why);
    called_off({}, {"STAND_IN_NCCL_FAILS=" + where}, why);
  }
}

Test(device_nccl, a_hang_while_state_moves_cancels_the_switch, .timeout = 300) {
  for (const std::string where : {"moving", "group"}) {
    called_off({"STAND_IN_NCCL_HANGS=" + where}, {}, "NCCL 2.27.7", nccl(40s, 1s));
    called_off({}, {"STAND_IN_NCCL_HANGS=" + where}, "NCCL 2.27.7", nccl(40s, 1s));
  }
}

/// Kills one of two programs that hang while state moves; the other does not wait out the limit.
static void killed(bool is_old) {
  NcclJob gpus;
  const std::vector<std::string> hangs{"STAND_IN_NCCL_HANGS=moving"};
  const pid_t before = gpus.start(kOne, 0, 0, hangs);
  gpus.begin(kOne);
  gpus.start(kTwo, 0, 0);
  const pid_t second = gpus.start(kTwo, 1, 1);
  auto changing = std::async(std::launch::async, [&] { return gpus.change(kOne, kTwo); });
  while (gpus.said("join") < 2 && changing.wait_for(10ms) == std::future_status::timeout) continue;
  const auto begun = std::chrono::steady_clock::now();
  gpus.job.stop(is_old ? before : second);
  const auto report = changing.get();
  cr_assert_not(report.committed);
  // The hanging program has not seen it: its shim makes it stop.
  if (!is_old) wait_for_steps(gpus.job, 0, gpus.job.status(0).step);
  cr_assert_lt(std::chrono::steady_clock::now() - begun, 30s);
  if (!is_old) cr_assert_eq(gpus.job.wait(before), 0, "it trains on");
}

Test(device_nccl, a_sender_that_is_killed_ends_the_switch_at_once, .timeout = 300) { killed(true); }

Test(device_nccl, a_receiver_that_is_killed_ends_the_switch_at_once, .timeout = 300) {
  killed(false);
}

Test(device_nccl, other_shims_are_refused_what_is_not_of_the_state, .timeout = 300) {
  NcclJob gpus;
  const pid_t old = gpus.start(kOne, 0, 0);
  gpus.begin(kOne);
  Channel channel = Channel::connect_unix(gpus.job.keepers[0]->unix_socket()).value();
  const auto answer = [&](std::string body) {
    const auto said = ask(channel, Op::nccl, body, within(20s));
    return said ? "" : said.error().message();
  };
  constexpr std::uint8_t kAbout = 0, kJoin = 1, kSend = 2;
  cr_assert_eq(answer(swell::ByteWriter().put(kAbout).take()), "");
  const auto held = read_table(ask(channel, Op::table, {}).value().body).value().second.front();
  const auto asked = [&](Memory memory, std::uint64_t at, std::uint64_t bytes) {
    return swell::ByteWriter()
        .put(kSend)
        .put(memory)
        .put<std::uint8_t>(0)
        .put<std::uint32_t>(1000)
        .put<std::uint32_t>(1)
        .put(at)
        .put(bytes)
        .take();
  };
  const std::string kTrains = "no program waits here that could reach the memory of its GPU";
  const std::string whole = asked(Memory::device, held.at, held.bytes());
  cr_assert_eq(answer(whole), kTrains);
  for (const std::string& body :
       {asked(Memory::device, held.at, held.bytes() + 1), asked(Memory::device, held.at, 0),
        asked(Memory::device, held.at + (std::uint64_t{1} << 45), 8),
        asked(Memory::program_device, held.at, 8), asked(Memory::arena, held.at, 8),
        asked(Memory::program, held.at, 8)})
    cr_assert(answer(body).ends_with(" are not of this state"), "%s", answer(body).c_str());
  cr_assert_eq(
      answer(
          swell::ByteWriter().put(kJoin).text(std::string(128, 'x')).put<std::uint32_t>(1).take()),
      kTrains);
  for (std::size_t size = 0; size < whole.size(); ++size)
    cr_assert_neq(answer(whole.substr(0, size)).find("cannot be read"), std::string::npos);
  cr_assert_neq(answer(whole + "x").find("cannot be read"), std::string::npos);
  cr_assert_eq(gpus.job.wait(old), 0);
  cr_assert_eq(gpus.said("misuse"), 0);
}

// If ranks were asked in turn for a communicator, each would wait for its limit.
Test(device_nccl, a_rank_whose_communicator_failed_makes_no_other, .timeout = 300) {
  const PlanShape kFour{1, 1, 4, 0};
  LiveJob job(SWELL_DEVICE_PROGRAM, 4, {"1500"}, true, {}, {}, nccl(1s));
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto start = [&](const PlanShape& plan, std::size_t rank, const std::string& more) {
    job.variables = {kDriver, "ROWS=8", "STAND_IN_FIRST=" + std::to_string(rank), more};
    return job.start_rank(plan, rank, rank);
  };
  std::vector<pid_t> programs{start(kOne, 0, "STAND_IN_NCCL_HANGS=joining")};
  cr_assert(coordinator.begin(job.shims(kOne), 1).ok());
  wait_for_steps(job, 0, 5);
  for (std::size_t rank = 0; rank < 4; ++rank) programs.push_back(start(kFour, rank, "X=1"));
  const auto report = coordinator.switch_plan(job.shims(kOne), job.shims(kFour), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  const std::string notes = notes_of(report);
  cr_assert_neq(notes.find("has taken too long"), std::string::npos, "%s", notes.c_str());
  cr_assert_neq(notes.find("a communicator of this program has failed: "), std::string::npos, "%s",
                notes.c_str());
  for (const pid_t pid : programs) cr_assert_eq(job.wait(pid), 0);
}
