// SPDX-License-Identifier: GPL-2.0-or-later
// Switches in chunks of state on GPUs, over a stand-in for the driver: two ranks, each with half of
// twelve tensors on a GPU of its own.
#include <atomic>
#include <condition_variable>
#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime/gpu_job.h"
#include "runtime/stand_in_gpus.h"

using namespace gpu_jobs;

namespace {

using Hold = Keeper::Options::Hold;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
/// The state of a rank: six slabs of two halves of 2 MiB, and one of 2 MiB for "small".
constexpr std::uint64_t kState = 26 * kMiB, kSlab = 4 * kMiB, kBound = 4 * kMiB;

Coordinator::Options bounded() {
  auto made = options();
  made.max_extra_bytes = kBound;
  return made;
}

/// Two old ranks, each with its GPU, and new ones that wait.
struct Job {
  explicit Job(std::vector<std::string> its_variables = {}, const char* steps = "300",
               const std::function<bool(Hold)>& holds = {}, bool apart = false,
               const std::optional<NcclOptions>& nccl = {}, int shims = 2)
      : live(SWELL_DEVICE_PROGRAM, shims, {steps}, apart, holds, {}, nccl, kSlab),
        variables(std::move(its_variables)) {}
  pid_t start(const PlanShape& plan, int rank, int shim) {
    live.variables = variables;  // the first of a name counts
    for (const std::string& each :
         {kDriver, "STAND_IN_FIRST=" + std::to_string(shim), std::string("TENSORS=12"),
          std::string("SWELL_SNAPSHOT_EVERY=1000000000")})  // in time for none
      live.variables.push_back(each);
    return live.start_rank(plan, static_cast<std::size_t>(rank), static_cast<std::size_t>(shim));
  }
  void begin(Coordinator& coordinator) {
    for (const int rank : {0, 1}) old.push_back(start(kTwo, rank, rank));
    const auto begun = coordinator.begin(live.shims(kTwo), 1);
    cr_assert(begun.ok(), "%s", begun.ok() ? "" : begun.error().message().c_str());
    wait_for_steps(live, 0, 2);
  }
  /// The two ranks change their places: of all but "small" nothing stays.
  void begin_swap(Coordinator& coordinator) {
    begin(coordinator);
    for (const int rank : {0, 1}) next.push_back(start(kTwo, rank, 1 - rank));
    for (const int shim : {0, 1}) wait_for_waiting(live, shim);
  }
  SwitchReport swap(Coordinator& coordinator) {
    const auto shims = live.shims(kTwo);
    auto report = coordinator.switch_plan(shims, {shims[1], shims[0]}, 2);
    cr_assert(report.ok(), "%s", report.ok() ? "" : report.error().message().c_str());
    return *report;
  }
  void end_well(const SwitchReport& report) {
    cr_assert(report.committed, "%s", report.summary().c_str());
    for (const pid_t pid : old) cr_assert_eq(live.wait(pid), 0, "it leaves");
    for (const pid_t pid : next) cr_assert_eq(live.wait(pid), 0, "every value is as it must be");
  }
  /// All processes that may have memory of a GPU.
  std::vector<pid_t> all() const {
    std::vector<pid_t> pids{getpid()};
    pids.insert(pids.end(), old.begin(), old.end());
    pids.insert(pids.end(), next.begin(), next.end());
    return pids;
  }
  LiveJob live;
  std::vector<std::string> variables;
  std::vector<pid_t> old, next;
};

/// Made within the bound, in chunks of which each has two tensors.
void is_within(const SwitchReport& report) {
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_geq(report.chunks, 6, "%s", report.summary().c_str());
  cr_assert(report.max_extra_bytes > 0 && report.max_extra_bytes <= kBound, "%s",
            report.summary().c_str());
}

std::string way_of(const SwitchReport& report) {
  std::string text;
  std::map<std::string, std::uint64_t> paths;
  for (const PathBytes& path : report.paths) paths[path.path] += path.bytes;
  for (const auto& [path, bytes] : paths) text += path + "; ";
  return text;
}

/// Bytes of each GPU that anybody of these processes has mapped or holds.
std::map<std::string, std::uint64_t> taken_on_gpus(const std::vector<pid_t>& pids) {
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> files;  // by name and inode
  for (const pid_t pid : pids) {
    const std::string folder = "/proc/" + std::to_string(pid);
    std::ifstream maps(folder + "/maps");
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      std::string range, mode, offset, device, name;
      std::uint64_t inode = 0;
      words >> range >> mode >> offset >> device >> inode >> name;
      if (!name.starts_with("/memfd:stand-in-gpu-")) continue;
      const auto dash = range.find('-');
      files[{name, inode}] = std::stoull(range.substr(dash + 1), nullptr, 16) -
                             std::stoull(range.substr(0, dash), nullptr, 16);
    }
    std::error_code ended;
    for (const auto& each : std::filesystem::directory_iterator(folder + "/fd", ended)) {
      const auto target = std::filesystem::read_symlink(each.path(), ended).string();
      struct stat found {};
      if (target.starts_with("/memfd:stand-in-gpu-") && stat(each.path().c_str(), &found) == 0)
        files[{target.substr(0, target.find(' ')), found.st_ino}] =
            static_cast<std::uint64_t>(found.st_size);
    }
  }
  std::map<std::string, std::uint64_t> sums;
  for (const auto& [file, bytes] : files) sums[file.first] += bytes;
  return sums;
}

/// Lets shims go on between two chunks once all are there; then nobody takes or gives memory.
class AllBetweenChunks {
 public:
  explicit AllBetweenChunks(int shims, std::function<void()> look)
      : shims_(shims), look_(std::move(look)) {}
  bool waits(Hold hold) {
    if (hold != Hold::chunk) return false;
    std::unique_lock lock(mutex_);
    const int round = round_;
    if (++here_ < shims_) {
      changed_.wait_for(lock, 60s, [&] { return round_ != round; });
      return false;
    }
    look_();
    here_ = 0;
    ++round_;
    changed_.notify_all();
    return false;
  }
  int rounds() const { return round_; }

 private:
  const int shims_;
  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0, round_ = 0;
};

}  // namespace

Test(device_chunks, no_gpu_ever_has_more_than_its_state_and_the_bound, .timeout = 300) {
  Job* own = nullptr;
  std::uint64_t most = 0;
  AllBetweenChunks between(2, [&] {
    for (const auto& [gpu, bytes] : taken_on_gpus(own->all())) most = std::max(most, bytes);
  });
  Job job({}, "300", [&](Hold hold) { return between.waits(hold); });
  own = &job;
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  is_within(report);
  cr_assert_eq(way_of(report), "device to device, another GPU; in place; ");
  cr_assert_eq(between.rounds(), static_cast<int>(report.chunks) - 1);
  cr_assert_geq(most, kState, "it was looked at");
  cr_assert_leq(most, kState + kBound, "%lu bytes", static_cast<unsigned long>(most));
  job.end_well(report);
}

// The third shim, which has nothing yet, takes its memory when all prepare at once; then again, in
// chunks.
Test(device_chunks, memory_taken_to_move_all_at_once_goes_back, .timeout = 300) {
  const PlanShape three{1, 1, 3, 0};
  Job* own = nullptr;
  std::map<std::string, std::uint64_t> most;
  AllBetweenChunks between(3, [&] {
    for (const auto& [gpu, bytes] : taken_on_gpus(own->all()))
      most[gpu] = std::max(most[gpu], bytes);
  });
  Job job(
      {}, "300", [&](Hold hold) { return between.waits(hold); }, false, {}, 3);
  own = &job;
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin(coordinator);
  for (const int rank : {0, 1, 2}) job.next.push_back(job.start(three, rank, (rank + 1) % 3));
  const auto shims = job.live.shims(three);
  const auto report =
      coordinator.switch_plan(job.live.shims(kTwo), {shims[1], shims[2], shims[0]}, 2).value();
  cr_assert(report.committed && report.chunks > 1, "%s", report.summary().c_str());
  // A third of each tensor has a slab of 2 MiB, as does "small".
  const std::uint64_t third = most["/memfd:stand-in-gpu-2"];
  cr_assert(third > 0 && third <= kState + kBound, "%lu bytes", static_cast<unsigned long>(third));
  job.end_well(report);
}

Test(device_chunks, where_there_is_room_nothing_is_made_in_chunks, .timeout = 300) {
  Job job;
  auto roomy = options();
  roomy.max_extra_bytes = kState;
  Coordinator coordinator(LiveJob::cluster(), roomy);
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  cr_assert_eq(report.chunks, 0, "%s", report.summary().c_str());
  cr_assert_gt(report.max_extra_bytes, kBound);
  job.end_well(report);
}

Test(device_chunks, a_bound_below_one_slab_is_refused_before_anything_stops, .timeout = 300) {
  Job job({}, "1000000000");
  auto tight = options();
  tight.max_extra_bytes = kMiB;
  Coordinator coordinator(LiveJob::cluster(), tight);
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  cr_assert(!report.committed && !report.is_old_gone, "%s", report.summary().c_str());
  cr_assert_eq(report.failed_in, Phase::prepare);
  cr_assert(report.why.ends_with("it is not made in chunks: a bound of 1048576 bytes is too small "
                                 "for chunks"),
            "%s", report.why.c_str());
  wait_for_steps(job.live, 0, job.live.status(0).step);
}

Test(device_chunks, state_in_host_memory_beside_it_has_the_bound_for_itself, .timeout = 300) {
  Job job({"MIXED=1"});
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  cr_assert(report.committed && report.chunks >= 3, "%s", report.summary().c_str());
  cr_assert_leq(report.max_extra_bytes, kBound, "%s", report.summary().c_str());
  cr_assert_eq(way_of(report), "device to device, another GPU; in place; mapped arena; ");
  job.end_well(report);
}

Test(device_chunks, gpus_that_cannot_map_each_other_go_through_host_memory, .timeout = 300) {
  Job job({"STAND_IN_NO_PEER=1"});
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  is_within(report);
  cr_assert_eq(way_of(report), "in place; through host memory, from a GPU, to a GPU; ");
  job.end_well(report);
}

Test(device_chunks, hosts_apart_give_back_what_the_others_have_fetched, .timeout = 300) {
  Job job({}, "300", {}, true);
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  is_within(report);
  cr_assert_eq(way_of(report), "in place; tcp, from a GPU, to a GPU; ");
  job.end_well(report);
}

Test(device_chunks, nccl_carries_chunk_after_chunk, .timeout = 300) {
  NcclOptions nccl;
  nccl.join_limit = nccl.patience = 40s;
  Job job({}, "300", {}, true, nccl);
  job.variables.push_back("STAND_IN_NCCL_LOG=" + job.live.folder() + "/nccl");
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  is_within(report);
  cr_assert_eq(way_of(report), "in place; nccl, between nodes, from a GPU, to a GPU; ");
  job.end_well(report);
}

Test(device_chunks, memory_that_programs_allocated_moves_beside_it, .timeout = 300) {
  Job job({"SMALL=1"});
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  is_within(report);
  job.end_well(report);
}

Test(device_chunks, a_rank_that_leaves_hands_over_in_chunks, .timeout = 300) {
  Job job;
  auto with_limit = bounded();
  with_limit.leave_limit = 60s;
  Coordinator coordinator(LiveJob::cluster(), with_limit);
  job.begin(coordinator);
  job.next = {job.start(kOne, 0, 0)};
  const auto report =
      coordinator.switch_plan(job.live.shims(kTwo), job.live.shims(kOne), 2).value();
  cr_assert(report.committed && report.chunks > 1, "%s", report.summary().c_str());
  cr_assert_leq(report.max_extra_bytes, kBound, "%s", report.summary().c_str());
  job.end_well(report);
}

Test(device_chunks, programs_that_stay_lose_only_the_old_state, .timeout = 300) {
  Job job({"STAYS=1"}, "600");
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin(coordinator);
  for (const int shim : {0, 1})
    cr_assert(job.live.keepers[static_cast<std::size_t>(shim)]->offer_next(
        2, {{"PLAN", "1,1,2,0"}, {"RANK", std::to_string(1 - shim)}, {"WHERE", "device"}}));
  const auto report = job.swap(coordinator);
  is_within(report);
  job.end_well(report);
}

Test(device_chunks, an_old_program_killed_once_its_state_is_secured_is_not_missed, .timeout = 300) {
  Job job;
  auto with_kill = bounded();
  with_kill.on_phase = [&](Phase begins) {
    if (begins == Phase::move) job.live.stop(job.old[1]);
  };
  Coordinator coordinator(LiveJob::cluster(), with_kill);
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  is_within(report);
  for (const pid_t pid : job.next) cr_assert_eq(job.live.wait(pid), 0);
}

/// Something is lost while both shims are between two chunks: all go on from a snapshot of the very
/// step. `lose` is told the job; whom the run goes on with then.
static void lose_between_chunks(const std::function<std::vector<Shim>(Job&)>& lose) {
  std::atomic<bool> is_reached = false, is_held = true;
  Job job({}, "1000000000", [&](Hold hold) {
    if (hold != Hold::chunk) return false;
    is_reached = true;
    return is_held.load();
  });
  Coordinator coordinator(LiveJob::cluster(), bounded());
  job.begin_swap(coordinator);
  SwitchReport report;
  std::thread under_way([&] { report = job.swap(coordinator); });
  while (!is_reached) std::this_thread::yield();
  const std::uint64_t step = job.live.status(0).step;
  const std::vector<Shim> holders = lose(job);
  is_held = false;
  under_way.join();
  cr_assert(report.is_old_gone && !report.committed, "%s", report.summary().c_str());
  cr_assert_eq(report.failed_in, Phase::move);
  for (const auto& all : {job.old, job.next})
    for (const pid_t pid : all) job.live.stop(pid);
  job.live.arguments = {std::to_string(step + 30)};
  const pid_t fresh = job.start(kOne, 0, 0);
  Coordinator again(LiveJob::cluster(), options());
  const auto back = again.recover(holders, job.live.shims(kOne), 3);
  cr_assert(back.ok(), "%s", back ? "" : back.error().message().c_str());
  cr_assert(back->committed, "%s", back->summary().c_str());
  cr_assert_eq(back->step, step, "no step is lost");
  cr_assert_eq(job.live.wait(fresh), 0, "every value is what it must be");
}

Test(device_chunks, a_new_program_killed_between_chunks_costs_no_step, .timeout = 300) {
  lose_between_chunks([](Job& job) {
    job.live.stop(job.next[1]);
    return job.live.shims(kTwo);
  });
}

Test(device_chunks, a_shim_killed_between_chunks_costs_no_step, .timeout = 300) {
  lose_between_chunks([](Job& job) {
    job.live.keepers[1].reset();
    return job.live.shims(kOne);
  });
}

Test(device_chunks, a_switch_without_room_at_once_is_made_in_chunks_of_free_memory,
     .timeout = 300) {
  Job job;
  const std::string file = job.live.folder() + "/gpus";
  constexpr std::uint64_t kFree = 8 * kMiB;  // below the state, and far below the bound
  stand_in::Gpus::make(file, kState + kFree);
  job.variables = {"STAND_IN_MEMORY=" + file};
  Coordinator coordinator(LiveJob::cluster(), options());
  cr_assert_gt(options().max_extra_bytes, kState);
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  cr_assert(report.committed && !report.lacks_room, "%s", report.summary().c_str());
  cr_assert_geq(report.chunks, 3, "%s", report.summary().c_str());
  cr_assert(report.max_extra_bytes > 0 && report.max_extra_bytes <= kFree, "%s",
            report.summary().c_str());
  job.end_well(report);
}

Test(device_chunks, a_switch_without_room_for_chunks_is_refused_with_the_first_reason,
     .timeout = 300) {
  Job job;
  const std::string file = job.live.folder() + "/gpus";
  stand_in::Gpus::make(file, kState);  // not one byte is free
  job.variables = {"STAND_IN_MEMORY=" + file};
  Coordinator coordinator(LiveJob::cluster(), options());
  job.begin_swap(coordinator);
  const auto report = job.swap(coordinator);
  cr_assert(!report.committed && !report.is_old_gone && report.lacks_room, "%s",
            report.summary().c_str());
  cr_assert(
      report.why.find("no room on GPU 0: 4194304 bytes are needed, 0 are free; it is not made "
                      "in chunks: ") != std::string::npos,
      "%s", report.why.c_str());
  const std::uint64_t step = job.live.status(0).step;
  wait_for_steps(job.live, 0, step + 3);
}
