// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/live_orders.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "core/number.h"
#include "launcher/profile_book.h"
#include "launcher/say.h"
#include "runtime/transport/transport.h"

namespace swell::launcher {

namespace {

using Phase = runtime::SwitchMachine::Phase;
using namespace std::chrono_literals;

// Programs of the first generation may load for long; the machine limits the time of a switch.
constexpr auto kBeginLimit = std::chrono::hours(24);
constexpr auto kPrepareLimit = std::chrono::hours(1);
constexpr auto kQuiesceLimit = 120s;
// Speeds between hosts are taken as equal: only near and far matter.
constexpr double kNetworkBandwidth = 5e10;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The runtime's generations begin with 1.
std::uint64_t to_runtime(int generation) { return static_cast<std::uint64_t>(generation) + 1; }
int from_runtime(std::uint64_t generation) { return static_cast<int>(generation) - 1; }

SwitchOutcome outcome_of(const runtime::SwitchReport& report) {
  SwitchOutcome outcome;
  outcome.committed = report.committed;
  outcome.why = report.why;
  outcome.code = report.code;
  outcome.lacks_room = report.lacks_room;
  outcome.phase = report.failed_in;
  outcome.is_silent = report.is_silent;
  outcome.summary = report.summary();
  outcome.stopped_s = report.stopped_s();
  outcome.brief = report.committed
                      ? fmt::format("step {}, stopped {:.3f} s", report.step, outcome.stopped_s)
                      : fmt::format("called off in {}: {}", outcome.phase_text(), report.why);
  if (report.committed)
    for (const runtime::PathBytes& path : report.paths)
      outcome.brief += fmt::format(", {} {} bytes", path.path, path.bytes);
  Json paths = Json::object();
  for (const runtime::PathBytes& path : report.paths)
    paths.set(path.path.c_str(), static_cast<std::int64_t>(path.bytes));
  outcome.details =
      Json::object({{"step", static_cast<std::int64_t>(report.step)},
                    {"prepare_s", report.prepare_s},
                    {"wait_s", report.wait_s},
                    {"quiesce_s", report.quiesce_s},
                    {"secure_s", report.secure_s},
                    {"move_s", report.move_s},
                    {"commit_s", report.commit_s},
                    {"extra_bytes", static_cast<std::int64_t>(report.max_extra_bytes)},
                    {"chunks", static_cast<std::int64_t>(report.chunks)},
                    {"bytes", paths}});
  return outcome;
}

}  // namespace

LiveOrders::LiveOrders(Settings settings, const WorkerConnections& workers,
                       GenerationMachine& machine, std::function<void()> wake)
    : settings_(std::move(settings)),
      workers_(workers),
      machine_(machine),
      driver_(settings_.key, std::move(wake)) {}

void LiveOrders::keeper_listens(WorkerId worker, const std::string& address,
                                const std::string& problem) {
  keepers_[worker] = {address, problem};
  give();
}

void LiveOrders::begin(const action::BeginLive& begin) {
  order_ = begin;
  give();
}

void LiveOrders::change(const action::SwitchLive& order) {
  order_ = order;
  give();
}

bool LiveOrders::all_listen(const std::vector<WorkerId>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [this](const WorkerId& rank) { return keepers_.contains(rank); });
}

void LiveOrders::stop(const action::StopLive& stop) {
  const auto ranks = all_listen(stop.workers)
                         ? shims_of(stop.workers)
                         : Result<std::vector<runtime::Shim>>(Error("a shim has left"));
  if (!ranks) return machine_.handle(now(), event::Stopped{stop.generation, 0, stop.workers});
  const auto limit = std::chrono::milliseconds(std::lround(stop.within_s * 1000));
  driver_.order(LiveDriver::Stop{to_runtime(stop.generation), *ranks, runtime::within(limit)},
                cluster_of_nodes());
}

void LiveOrders::call_off() {
  if (const auto generation = driver_.call_off())
    machine_.handle(now(), event::Switching{from_runtime(*generation), Phase::commit});
  answer(runtime::called_off());
}

/// Answers, with the error `why`, an order that has not been given to the driver yet.
void LiveOrders::answer(const Error& why) {
  const auto order = std::exchange(order_, std::monostate());
  if (const auto* begin = std::get_if<action::BeginLive>(&order)) {
    machine_.handle(now(), event::Begun{begin->generation, why.message()});
  } else if (const auto* one = std::get_if<action::SwitchLive>(&order)) {
    SwitchOutcome outcome;
    outcome.phase = Phase::prepare;
    outcome.why = outcome.summary = why.message();
    outcome.code = why.code();
    machine_.handle(now(), event::Switched{one->generation, outcome});
  }
}

/// Returns the nodes by name, each with the maximum number of GPUs of a node.
cluster::Cluster LiveOrders::cluster_of_nodes() const {
  std::vector<cluster::Node> nodes;
  for (const auto& [id, known] : workers_.nodes()) {
    if (std::any_of(nodes.begin(), nodes.end(),
                    [&name = known.name](const cluster::Node& node) { return node.name == name; }))
      continue;
    cluster::Node node;
    node.name = known.name;
    node.gpus.assign(cluster::kMaxGpusPerNode, 0);
    node.network_bytes_per_s = kNetworkBandwidth;
    nodes.push_back(std::move(node));
  }
  return cluster::Cluster::make("job", {*cluster::find_gpu_type("h100")}, std::move(nodes)).value();
}

Result<std::vector<runtime::Shim>> LiveOrders::shims_of(const std::vector<WorkerId>& ranks) const {
  const cluster::Cluster cluster = cluster_of_nodes();
  std::vector<runtime::Shim> shims;
  for (const WorkerId rank : ranks) {
    const WorkerNode& node = workers_.node(rank.node);
    const Keeper& keeper = keepers_.at(rank);
    if (!keeper.problem.empty()) return Error(node.name + ": " + keeper.problem);
    const auto known =
        std::find_if(cluster.nodes().begin(), cluster.nodes().end(),
                     [&](const cluster::Node& each) { return each.name == node.name; });
    shims.push_back({"",
                     keeper.address,
                     {static_cast<int>(known - cluster.nodes().begin()),
                      gpus_of(node, rank.local, settings_.gpus_per_worker).front()},
                     node.job != settings_.job});
  }
  return shims;
}

/// Returns the keepers of the job's own GPUs, with or without a program.
std::vector<runtime::Shim> LiveOrders::own_shims() const {
  std::vector<WorkerId> own;
  for (const auto& [worker, keeper] : keepers_)
    if (keeper.problem.empty() && workers_.node(worker.node).job == settings_.job)
      own.push_back(worker);
  auto shims = shims_of(own);
  return shims ? std::move(*shims) : std::vector<runtime::Shim>();
}

void LiveOrders::give() {
  if (const auto* begin = std::get_if<action::BeginLive>(&order_)) {
    if (!all_listen(begin->ranks)) return;
    auto ranks = shims_of(begin->ranks);
    if (!ranks) return answer(ranks.error());
    runtime::Coordinator::Options limits;
    limits.verify = settings_.verify;
    limits.prepare_limit = kBeginLimit;
    // No limit: without the snapshot nothing trains, and there is no old generation to return to.
    limits.max_extra_bytes = std::numeric_limits<std::uint64_t>::max();
    limits.waiting = own_shims();
    std::vector<WorkerId> known_ones;
    for (const auto& [worker, keeper] : keepers_)
      if (keeper.problem.empty() && begin->from_snapshot) known_ones.push_back(worker);
    auto holders = shims_of(known_ones);
    if (!holders) return answer(holders.error());
    driver_.order(
        LiveDriver::Begin{to_runtime(begin->generation), std::move(*ranks), std::move(*holders)},
        cluster_of_nodes(), limits);
    order_ = std::monostate();
  } else if (const auto* one = std::get_if<action::SwitchLive>(&order_)) {
    if (!all_listen(one->from) || !all_listen(one->to)) return;
    auto from = shims_of(one->from), to = shims_of(one->to);
    if (!from || !to) return answer((!from ? from : to).error());
    runtime::Coordinator::Options limits;
    limits.verify = settings_.verify;
    limits.prepare_limit = kPrepareLimit;
    limits.quiesce_limit = kQuiesceLimit;
    limits.max_extra_bytes = settings_.memory_bytes;
    limits.waiting = own_shims();
    limits.leave_limit = std::chrono::milliseconds(std::lround(one->leave_within_s * 1000));
    driver_.order(LiveDriver::Switch{to_runtime(one->generation), std::move(*from), std::move(*to)},
                  cluster_of_nodes(), limits);
    order_ = std::monostate();
  }
}

void LiveOrders::take_news(const std::function<void()>& after_each) {
  for (const LiveDriver::News& news : driver_.take()) {
    if (const auto* begun = std::get_if<LiveDriver::Begun>(&news))
      machine_.handle(now(), event::Begun{from_runtime(begun->generation), begun->why,
                                          begun->snapshot_step, begun->stays});
    else if (const auto* in = std::get_if<LiveDriver::InPhase>(&news))
      machine_.handle(now(), event::Switching{from_runtime(in->generation), in->phase});
    else if (const auto* gone = std::get_if<LiveDriver::LetGo>(&news))
      machine_.handle(now(), event::LetGo{from_runtime(gone->generation)});
    else if (const auto* stopped = std::get_if<LiveDriver::Stopped>(&news)) take_stopped(*stopped);
    else if (const auto* report = std::get_if<runtime::SwitchReport>(&news))
      take_switch_report(*report);
    after_each();
  }
}

/// Passes the result of a stop on to the machine, unless the stop was called off.
void LiveOrders::take_stopped(const LiveDriver::Stopped& stopped) {
  const runtime::RequestReport& report = stopped.report;
  if (report.code == ErrorCode::cancelled) return;
  if (!report.why.empty()) say("live mode: not all workers leave at one step: " + report.why);
  machine_.handle(now(), event::Stopped{from_runtime(stopped.generation), report.step,
                                        workers_of(report.untold)});
}

void LiveOrders::take_switch_report(const runtime::SwitchReport& report) {
  SwitchOutcome outcome = outcome_of(report);
  const auto went = [&](const char* way) {
    return std::any_of(report.paths.begin(), report.paths.end(),
                       [way](const auto& path) { return path.path == way; });
  };
  if (went(runtime::kTcpToProgram) && !std::exchange(told_of_memory_, true))
    say("workers of one node may not read each other's memory (PID namespaces, or "
        "kernel.yama.ptrace_scope): what a program allocated itself goes between them by TCP; "
        "tensors in Swell's arenas need not");
  if (went(runtime::kTcpWithinNode) && !std::exchange(told_of_tmp_, true))
    say("workers of one node do not see each other's TMPDIR (job_container/tmpfs, or "
        "containers without a common folder): state goes between them by TCP, not by shared memory; a TMPDIR that all jobs of a node share "
        "would change that");
  for (const std::string& note : report.notes)
    if (told_notes_.insert(note).second) say(note);
  outcome.lost = workers_of(report.lost);
  machine_.handle(now(), event::Switched{from_runtime(report.generation), outcome});
}

std::vector<WorkerId> LiveOrders::workers_of(const std::vector<runtime::Shim>& shims) const {
  std::vector<WorkerId> found;
  for (const runtime::Shim& shim : shims)
    for (const auto& [worker, keeper] : keepers_)
      if (keeper.address == shim.tcp) found.push_back(worker);
  return found;
}

}  // namespace swell::launcher
