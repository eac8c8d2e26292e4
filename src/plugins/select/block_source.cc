// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/block_source.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <set>
#include <string>

#include "base/mutex.h"
#include "control/background_thread.h"
#include "core/count_of.h"
#include "slurm/fabric_source.h"
#include "slurm/live_slurm.h"

namespace swell::select {

namespace {

using namespace std::chrono_literals;

/// Seconds between loads of the nodes. Switches are rarely replugged; a node that joins publishes
/// its topology within seconds.
constexpr auto kPollInterval = 5s;
constexpr auto kFirstInterval = 300ms;
/// Maximum time after a start in which no job starts because the nodes are not known yet.
constexpr auto kUnknownLimit = 60s;
/// Maximum number of distinct complaints that are logged, so that changing garbage does not fill
/// the log.
constexpr std::size_t kMaxComplaints = 20;

using Published = std::atomic<std::shared_ptr<const Blocks>>;

// Returns the published blocks. Never destroyed: an abandoned thread may outlive static
// destructors.
Published& published() {
  static Published* const instance = new Published;
  return *instance;
}

// Returns the published absent nodes, likewise.
std::atomic<std::shared_ptr<const Absent>>& published_absent() {
  static auto* const instance = new std::atomic<std::shared_ptr<const Absent>>;
  return *instance;
}
std::atomic<std::chrono::steady_clock::time_point> started{};

/// One run of the thread.
class Source final : public control::BackgroundThread {
 public:
  explicit Source(const Log& log) : log_(log) {}

 private:
  void failed(const char* why) noexcept override {
    published().store(nullptr);
    published_absent().store(nullptr);
    try {
      complain(fmt::format("nearness is off: {}; it is tried again", why));
    } catch (...) {  // out of memory: nearness is off in any case
    }
  }

  void loop() override {
    slurm::FabricSource source(slurm::find_fabric_files);
    std::shared_ptr<const slurm::KnownFabric> known;
    std::vector<NodeKind> kinds;
    std::time_t last = 0;
    bool answered = false;
    while (
        !pause(answered && !absence_.waits() ? Clock::duration(kPollInterval) : kFirstInterval)) {
      if (answered) tell(absence_.pass(Clock::now()));
      const auto nodes = slurm::load_nodes_since(last);
      if (!nodes) {
        if (answered) complain(nodes.error().message());
        continue;
      }
      answered = true;
      if (!*nodes) continue;
      tell(absence_.see(absent_among(**nodes), Clock::now()));
      std::vector<NodeKind> kinds_now;
      for (const slurm::NodeRecord& node : **nodes)
        kinds_now.push_back({node.memory_mib, node.weight});
      auto now_known = source.update(**nodes, std::time(nullptr));
      if (now_known == known && kinds_now == kinds) continue;
      known = std::move(now_known);
      kinds = std::move(kinds_now);
      for (const std::string& note : known->notes) complain(note);
      if (known->slurm_shapes_jobs) publish(nullptr, "Slurm's topology gives jobs their shape");
      else publish(blocks_from(known->fabric, kinds), "nothing tells nodes apart");
    }
  }

  /// Publishes `blocks`. `otherwise`: text for the log if they are null.
  void publish(std::shared_ptr<const Blocks> blocks, const char* otherwise) {
    const std::shared_ptr<const Blocks> before = published().load();
    if (said_ && (blocks == before || (blocks && before && *blocks == *before))) return;
    said_ = true;
    const std::string text =
        blocks
            ? fmt::format("swell: select: {} under {} or blocks", count_of(blocks->nodes, "node"),
                          count_of(blocks->leaves.size(), "switch"))
            : fmt::format("swell: select: {}, so cons_tres decides alone", otherwise);
    if (log_.info != nullptr) log_.info(text.c_str());
    published().store(std::move(blocks));
  }

  /// Publishes the nodes that are absent now, and logs changes.
  void tell(AbsenceWatch::News news) {
    const Absent& absent = absence_.absent();
    const std::shared_ptr<const Absent> before = published_absent().load();
    if (!absence_.waits()) published_absent().store(nullptr);
    else if (!before || *before != absent)
      published_absent().store(std::make_shared<const Absent>(absent));
    if (news == AbsenceWatch::News::waits)
      say(fmt::format(
          "swell: select: not registered since slurmctld started: {} with GPUs; no job starts there until then",
          count_of(absent.count, "node")));
    else if (news == AbsenceWatch::News::all_there)
      say("swell: select: all nodes with GPUs have registered");
    else if (news == AbsenceWatch::News::gave_up)
      say(
          fmt::format("swell: select: not registered in {} s: {}; jobs may start there, without "
                      "GPUs",
                      AbsenceWatch::kLimit.count(), absent.names));
  }

  void say(const std::string& text) {
    if (log_.info != nullptr) log_.info(text.c_str());
  }

  void complain(const std::string& text) {
    if (complaints_.size() >= kMaxComplaints || !complaints_.insert(text).second) return;
    if (log_.error != nullptr) log_.error(("swell: select: " + text).c_str());
  }

  const Log log_;
  bool said_ = false;
  AbsenceWatch absence_;
  std::set<std::string> complaints_;
};

struct Shared {
  Mutex mutex;
  std::shared_ptr<Source> source SWELL_GUARDED_BY(mutex);
};
Shared& shared() {
  static Shared* const instance = new Shared;
  return *instance;
}

}  // namespace

void start_block_source(const Log& log) noexcept {
  try {
    stop_block_source();
    started.store(std::chrono::steady_clock::now());
    published_absent().store(
        std::make_shared<const Absent>(Absent{.names = {}, .count = 0, .known = false}));
    auto source = std::make_shared<Source>(log);
    source->start();
    Lock lock(shared().mutex);
    shared().source = std::move(source);
  } catch (const std::exception& problem) {
    published_absent().store(nullptr);
    if (log.error != nullptr) log.error(problem.what());
  }
}

void stop_block_source() noexcept {
  try {
    std::shared_ptr<Source> source;
    {
      Lock lock(shared().mutex);
      source = std::move(shared().source);
    }
    if (source) source->stop(1s);
  } catch (...) {  // slurmctld is ending, and nothing can be done
  }
}

std::shared_ptr<const Blocks> current_blocks() noexcept { return published().load(); }

std::shared_ptr<const Absent> current_absent() noexcept {
  std::shared_ptr<const Absent> absent = published_absent().load();
  const bool too_late = std::chrono::steady_clock::now() - started.load() > kUnknownLimit;
  if (absent && !absent->known && too_late) return nullptr;
  return absent;
}

}  // namespace swell::select
