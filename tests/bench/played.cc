// SPDX-License-Identifier: GPL-2.0-or-later
// Plays one rank of a job of the simulator's workload on a machine without such GPUs. It computes
// nothing: its steps take as long as the simulator's judge predicts for the job's plan, divided by
// SCALE, and it reports the values that a profiler would measure on the judge's hardware.
//
// usage: played types CLUSTER
//        Prints "MODEL,PP,DP,TP,MICRO_BATCHES" of each model that `swell sim` draws for the cluster
//        in the file CLUSTER (JSON), as tuned there.
//        played CLUSTER MODEL,PP,DP,TP,MICRO_BATCHES SEED JOB SECONDS SCALE
//        Trains for SECONDS of the simulator's time on the basic plan. OUT=FOLDER: rank 0 saves the
//        number of completed steps there at the restart signal, and new programs continue from it;
//        with SWELL_RUNTIME the state is libswell's, and moves live. STARTED=SECONDS, since 1970:
//        start time of the job.
//
// Only time is scaled, and not in what Swell is told. Regions cannot be timed in milliseconds
// beside 64 other processes, so the profile is the judge's, in the model's own seconds and bytes,
// with the simulator's noise. The time of an iteration is measured, and reported times SCALE. So
// coefficients, the check against the limits of GPUs, predictions and the trust in them are the
// same as on real GPUs. The time that Swell and Slurm take is not scaled, nor are the clocks of
// swell.conf.
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <time.h>

#include "core/json.h"
#include "core/slurm_text/hostlist.h"
#include "played_job.h"
#include "runtime/api/session.h"

using namespace swell;

namespace {

constexpr double kStart_s = 25;  // core/redeploy: kInitialize_s, included once in durations
constexpr double kStep_s = 0.2;  // this machine's time for a step of the basic plan
constexpr double kProfileIterations = 10;  // as in src/sim/state.cc

volatile std::sig_atomic_t asked_to_leave = 0;
void note(int) { asked_to_leave = 1; }

[[noreturn]] void die(const std::string& what) {
  fmt::print(stderr, "played: {}\n", what);
  std::exit(1);
}

std::string variable(const char* name, const char* otherwise = "") {
  const char* text = std::getenv(name);
  return text != nullptr ? text : otherwise;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double now_s() { return seconds_of(CLOCK_MONOTONIC); }

/// Returns early if the process is asked to leave.
void sleep_until(double at_s) {
  const double whole = std::floor(at_s);
  const timespec at{static_cast<time_t>(whole), static_cast<long>((at_s - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR && !asked_to_leave)
    continue;
}

cluster::Cluster read_cluster(const char* path) {
  std::ifstream in(path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const auto json = Json::parse(text);
  if (!json) die(fmt::format("{}: {}", path, json.error().message()));
  auto cluster = cluster::Cluster::from_json(*json);
  if (!cluster) die(fmt::format("{}: {}", path, cluster.error().message()));
  return *std::move(cluster);
}

int print_types(const cluster::Cluster& cluster) {
  const auto types = sim::job_types(cluster, {});
  if (!types) die(types.error().message());
  for (const sim::JobType& type : *types)
    fmt::print("{},{},{},{},{}\n", type.model->name, type.pp, type.dp, type.tp, type.micro_batches);
  return 0;
}

/// Returns the index of each rank's node: srun and swellrun give the number of tasks on each node,
/// as "8(x2),4".
std::vector<int> nodes_of_ranks(const cluster::Cluster& cluster) {
  const auto names = slurm_text::expand_hostlist(variable("SLURM_STEP_NODELIST"));
  if (!names) die(names.error().message());
  const std::string counts = variable("SLURM_STEP_TASKS_PER_NODE");
  std::vector<int> nodes;
  auto name = names->begin();
  for (const char* at = counts.c_str(); *at != '\0' && name != names->end();) {
    int tasks = 0, times = 1, read = 0;
    if (std::sscanf(at, "%d%n(x%d)%n", &tasks, &read, &times, &read) < 1) break;
    at += read;
    if (*at == ',') ++at;
    for (; times > 0 && name != names->end(); --times, ++name) {
      const auto found = std::find_if(cluster.nodes().begin(), cluster.nodes().end(),
                                      [&](const auto& node) { return node.name == *name; });
      if (found == cluster.nodes().end()) die("no node of the cluster is called " + *name);
      nodes.insert(nodes.end(), static_cast<std::size_t>(tasks),
                   static_cast<int>(found - cluster.nodes().begin()));
    }
  }
  return nodes;
}

played::Spec spec_of(char** words) {
  played::Spec spec;
  char model[64] = "";
  if (std::sscanf(words[0], "%63[^,],%d,%d,%d,%d", model, &spec.pp, &spec.dp, &spec.tp,
                  &spec.micro_batches) != 5)
    die(fmt::format("\"{}\" is not MODEL,PP,DP,TP,MICRO_BATCHES", words[0]));
  spec.model = model;
  spec.seed = std::strtoull(words[1], nullptr, 10);
  spec.job = static_cast<std::uint32_t>(std::atoi(words[2]));
  spec.basic_s = std::atof(words[3]);
  return spec;
}

/// Returns a piece of state, so that there is some to move.
runtime::Entry state() {
  runtime::Entry entry;
  entry.tensor.name = "w";
  entry.tensor.layer = 0;
  entry.tensor.dtype = runtime::DType::f64;
  entry.tensor.shape = {4096};
  entry.part = runtime::Part::whole(entry.tensor.shape);
  return entry;
}

/// The number of steps that a program saved when it was asked to leave.
class Kept {
 public:
  Kept() : path_(variable("OUT", ".") + "/step") {}
  std::uint64_t read() const {
    std::uint64_t step = 0;
    std::ifstream(path_) >> step;
    return step;
  }
  void write(std::uint64_t step) const {
    std::ofstream(path_ + ".new") << step << '\n';
    std::rename((path_ + ".new").c_str(), path_.c_str());
  }

 private:
  std::string path_;
};

}  // namespace

int main(int argc, char** argv) {
  const double began = now_s();
  std::signal(SIGUSR1, note);
  if (argc == 3 && std::string(argv[1]) == "types") return print_types(read_cluster(argv[2]));
  if (argc != 7) die("usage: played CLUSTER MODEL,PP,DP,TP,MICRO_BATCHES SEED JOB SECONDS SCALE");
  const cluster::Cluster cluster = read_cluster(argv[1]);
  const double scale = std::atof(argv[6]), basic_s = std::atof(argv[5]) / scale;
  auto job = played::Job::make(spec_of(argv + 2), cluster);
  if (!job) die(job.error().message());
  const int rank = std::atoi(variable("RANK", variable("SLURM_PROCID", "0").c_str()).c_str());
  const std::vector<int> nodes = nodes_of_ranks(cluster);
  if (rank < 0 || rank >= static_cast<int>(nodes.size()))
    die(fmt::format("rank {} is none of {} tasks", rank, nodes.size()));
  const int basic_ranks =
      std::atoi(variable("SWELL_BASIC_WORKERS", std::to_string(nodes.size()).c_str()).c_str());
  auto part = job->part(rank, nodes, basic_ranks, variable("SWELL_PLAN"));
  if (!part) die(part.error().message());

  // The job's time on its own GPUs without its start, in steps whose number is the same for every
  // plan.
  const double trains_s = std::max(basic_s - kStart_s / scale, 0.1);
  const auto steps = static_cast<std::uint64_t>(std::max(std::llround(trains_s / kStep_s), 1LL));
  const double iterations = job->iterations() * trains_s / basic_s / static_cast<double>(steps);
  const double step_s = iterations * part->iteration_s / scale;

  // The start of a job includes all the time that Slurm and swellrun take for it.
  double ready = began + kStart_s / scale;
  if (const double since = std::atof(variable("STARTED", "0").c_str());
      since > 0 && std::atoi(variable("SWELL_GENERATION", "0").c_str()) == 0)
    ready += since - seconds_of(CLOCK_REALTIME) + (now_s() - began);
  sleep_until(ready);

  const std::string socket = variable("SWELL_RUNTIME");
  auto session = runtime::Session::open(socket);
  if (!session) die(session.error().message());
  if (auto added = (*session)->add(state()); !added) die(added.error().message());
  const auto adopted = (*session)->adopt();
  if (!adopted && adopted.error().code() == ErrorCode::cancelled) return 0;
  if (!adopted) die(adopted.error().message());
  const Kept kept;
  const double first = now_s();
  const std::uint64_t from = socket.empty() || adopted->fresh ? kept.read() : adopted->step;
  for (std::uint64_t done = from; done < steps;) {
    sleep_until(first + static_cast<double>(done + 1 - from) * step_s);
    if (asked_to_leave) {
      if (rank == 0) kept.write(done);
      return 0;
    }
    ++done;
    const double seen = iterations * static_cast<double>(done - from);
    if (part->profile && seen >= kProfileIterations) {
      part->profile->times.step_s = (now_s() - first) * scale / seen;
      if (auto told = (*session)->profile().report(*part->profile); !told)
        die(told.error().message());
      part->profile.reset();
    }
    const auto action = (*session)->step(done);
    if (!action) die(action.error().message());
    if (*action == runtime::Session::Action::switched || *action == runtime::Session::Action::stop)
      break;
  }
  return 0;
}
