// SPDX-License-Identifier: GPL-2.0-or-later
// Checks whether an observed profile predicts measured times. Real processes train plans of a model
// by 1F1B, pass real tensors through sockets, sum gradients over DP groups, and mark their regions
// by swell.h. Coefficients are solved from the profile of the first plan only; then other plans are
// predicted, and run. The measured times do not use the performance model: the length of a step
// results from processes that wait for each other.
//
// Paced: a layer does its computation, then waits until a device of a stated speed would have been
// ready, so that two cores can simulate eight devices. The output says so. usage: profile-truth
// [LAYER_US]. Last line: JSON.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "core/cluster/presets.h"
#include "core/models/model.h"
#include "core/perf/performance_model.h"
#include "core/perf/solve.h"
#include "profiler/assemble.h"
#include "runtime/api/swell.h"

namespace {

using namespace swell;

constexpr int kSteps = 40;  // maximum steps of a plan
constexpr int kSequence = 16, kHidden = 64;
constexpr double kBackward = 1.9;  // in forward passes
constexpr int kMaxRanks = 16;
constexpr int kGradients = 4096;  // floats of a layer

double layer_us = 800;  // forward pass of one sample

/// A symmetric plan; `layers` by stage.
struct Shape {
  const char* name;
  int dp, micro_batches, local_batch;
  std::vector<int> layers;
  int pp() const { return static_cast<int>(layers.size()); }
  int ranks() const { return pp() * dp; }
};

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "profile-truth: %s\n", what.c_str());
  std::_Exit(1);
}

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Ends of the sockets between ranks: ends[a][b] is rank a's end of the socket to rank b.
using Mesh = std::vector<std::vector<int>>;

void write_all(int fd, const void* data, std::size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) die(std::string("sending: ") + std::strerror(errno));
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}
void read_all(int fd, void* data, std::size_t bytes) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got <= 0) die("another rank has ended");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

class Rank {
 public:
  Rank(const Shape& shape, int rank, const Mesh& mesh)
      : shape_(shape),
        rank_(rank),
        stage_(rank / shape.dp),
        group_(rank % shape.dp),
        layers_(shape.layers[static_cast<std::size_t>(stage_)]),
        mesh_(mesh),
        activations_(static_cast<std::size_t>(kSequence * kHidden * shape.local_batch), 1.0f),
        gradients_(static_cast<std::size_t>(kGradients * layers_), 1.0f) {}

  /// Trains, then reports the time of a step and the profile.
  void run(int report) {
    open_session();
    std::vector<double> steps;
    double began = now_us();
    for (int step = 1; step <= kSteps; ++step) {
      train();
      if (swell_step(session_, static_cast<std::uint64_t>(step)) < 0)
        die(swell_last_error(session_));
      const double ended = now_us();
      steps.push_back((ended - began) / 1e6);
      began = ended;
    }
    std::nth_element(steps.begin(), steps.begin() + kSteps / 2, steps.end());
    swell_times_t times{};
    if (swell_profile(session_, &times) != 0) die(swell_last_error(session_));
    const double step_s = steps[kSteps / 2];
    write_all(report, &step_s, sizeof step_s);
    write_all(report, &times, sizeof times);
    swell_close(session_);
  }

 private:
  void open_session() {
    swell_role_t role{};
    role.field_mask = SWELL_ROLE_ACTIVATION | SWELL_ROLE_WHOLE_ACTIVATIONS;
    role.stage = stage_;
    role.group = group_;
    role.layers = layers_;
    role.local_batch = shape_.local_batch;
    role.activation_dtype = SWELL_F32;
    role.activation_dims = 2;
    role.activation_shape[0] = kSequence;
    role.activation_shape[1] = kHidden;
    role.whole_activations = 5;
    if (swell_open(nullptr, &session_) != 0 || swell_adopt(session_, nullptr) != 0 ||
        swell_set_role(session_, &role) != 0)
      die("no session");
  }
  int open(swell_region_kind_t kind, int micro_batch) {
    swell_region_t region{};
    region.field_mask = SWELL_REGION_MICRO_BATCH | SWELL_REGION_LAYERS;
    region.kind = kind;
    region.micro_batch = micro_batch;
    region.layers = layers_;
    const int opened = swell_region_begin(session_, &region);
    if (opened < 0) die("a region");
    return opened;
  }
  void close(int region) {
    if (swell_region_end(session_, region, 0) != 0) die("closing a region");
  }
  /// Runs all layers of a micro-batch: computation, then the rest of the device's time.
  void compute(double of_forward) {
    const double until = now_us() + layer_us * of_forward * layers_ * shape_.local_batch;
    for (int layer = 0; layer < layers_; ++layer)
      for (float& value : activations_) value = value * 0.999f + 0.001f;
    for (double left = until - now_us(); left > 0; left = until - now_us()) {
      const timespec wait{0, static_cast<long>(std::min(left, 9e5) * 1e3)};
      nanosleep(&wait, nullptr);
    }
  }
  void pass_on(int stage, swell_region_kind_t kind, int micro_batch) {
    if (stage < 0 || stage >= shape_.pp()) return;
    const int fd = mesh_[static_cast<std::size_t>(rank_)]
                        [static_cast<std::size_t>(stage * shape_.dp + group_)];
    const int region = open(kind, micro_batch);
    const std::size_t bytes = activations_.size() * sizeof(float);
    if (kind == SWELL_SEND) write_all(fd, activations_.data(), bytes);
    else read_all(fd, activations_.data(), bytes);
    close(region);
  }
  void forward(int micro_batch) {
    pass_on(stage_ - 1, SWELL_RECEIVE, micro_batch);
    const int region = open(SWELL_FORWARD, micro_batch);
    compute(1);
    close(region);
    pass_on(stage_ + 1, SWELL_SEND, micro_batch);
  }
  void backward(int micro_batch) {
    pass_on(stage_ + 1, SWELL_RECEIVE, micro_batch);
    const int region = open(SWELL_BACKWARD, micro_batch);
    compute(kBackward);
    close(region);
    pass_on(stage_ - 1, SWELL_SEND, micro_batch);
  }
  /// Sums the gradients over the stage's groups in group 0.
  void synchronize() {
    if (shape_.dp == 1) return;
    const int region = open(SWELL_DP_SYNC, 0);
    const std::size_t bytes = gradients_.size() * sizeof(float);
    const auto towards = [&](int group) {
      return mesh_[static_cast<std::size_t>(rank_)]
                  [static_cast<std::size_t>(stage_ * shape_.dp + group)];
    };
    if (group_ != 0) {
      write_all(towards(0), gradients_.data(), bytes);
      read_all(towards(0), gradients_.data(), bytes);
    } else {
      std::vector<float> other(gradients_.size());
      for (int group = 1; group < shape_.dp; ++group) {
        read_all(towards(group), other.data(), bytes);
        for (std::size_t i = 0; i < other.size(); ++i) gradients_[i] += other[i];
      }
      for (float& value : gradients_) value /= static_cast<float>(shape_.dp);
      for (int group = 1; group < shape_.dp; ++group)
        write_all(towards(group), gradients_.data(), bytes);
    }
    close(region);
  }
  /// Runs one step by 1F1B.
  void train() {
    const int ahead = std::min(shape_.micro_batches, shape_.pp() - stage_);
    int forwards = 0, backwards = 0;
    while (forwards < ahead) forward(forwards++);
    while (backwards < shape_.micro_batches) {
      backward(backwards++);
      if (forwards < shape_.micro_batches) forward(forwards++);
    }
    synchronize();
    const int region = open(SWELL_OPTIMIZER, 0);
    compute(0.1 / shape_.local_batch);  // once a step, for any batch
    close(region);
  }

  const Shape& shape_;
  const int rank_, stage_, group_, layers_;
  const Mesh& mesh_;
  std::vector<float> activations_, gradients_;
  swell_session_t* session_ = nullptr;
};

struct Seen {
  double step_s = 0;
  std::vector<swell_times_t> times;  ///< by rank
};

/// Runs a plan as processes, and collects their reports.
Seen run(const Shape& shape) {
  const auto ranks = static_cast<std::size_t>(shape.ranks());
  Mesh mesh(ranks, std::vector<int>(ranks, -1));
  std::vector<int> every, reports;
  for (std::size_t a = 0; a < ranks; ++a)
    for (std::size_t b = 0; b < a; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) die("no sockets");
      // Large enough for the micro-batches that a stage is ahead, so that sends do not wait for
      // receives.
      const int room = 1 << 20;
      for (const int end : pair) setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
      mesh[a][b] = pair[0];
      mesh[b][a] = pair[1];
      every.insert(every.end(), pair, pair + 2);
    }
  std::vector<pid_t> pids;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    int report[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, report) != 0) die("no sockets");
    const pid_t pid = fork();
    if (pid < 0) die("fork failed");
    if (pid == 0) {
      for (std::size_t other = 0; other < ranks; ++other)
        if (other != rank)
          for (const int end : mesh[other])
            if (end >= 0) ::close(end);
      Rank(shape, static_cast<int>(rank), mesh).run(report[1]);
      std::_Exit(0);
    }
    ::close(report[1]);
    reports.push_back(report[0]);
    pids.push_back(pid);
  }
  for (const int end : every) ::close(end);
  Seen seen;
  for (const int report : reports) {
    double step_s = 0;
    swell_times_t times{};
    read_all(report, &step_s, sizeof step_s);
    read_all(report, &times, sizeof times);
    ::close(report);
    seen.step_s = std::max(seen.step_s, step_s);
    seen.times.push_back(times);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) die("a rank failed");
  }
  return seen;
}

plan::Layout layout_of(const Shape& shape) {
  plan::Layout layout{shape.micro_batches, {}};
  int gpu = 0;
  for (const int layers : shape.layers) {
    plan::StageLayout stage{layers, 1, {}};
    for (int group = 0; group < shape.dp; ++group)
      stage.groups.push_back({0, 0, shape.local_batch, plan::GpuMask{1} << gpu++});
    layout.stages.push_back(stage);
  }
  return layout;
}

/// Returns the reports that the shims would have passed on.
std::vector<profiler::RankProfile> reports_of(const Shape& shape, const Seen& seen) {
  std::vector<profiler::RankProfile> reports;
  for (std::size_t rank = 0; rank < seen.times.size(); ++rank) {
    const swell_times_t& times = seen.times[rank];
    profiler::RankProfile one;
    one.role.stage = static_cast<int>(rank) / shape.dp;
    one.role.group = static_cast<int>(rank) % shape.dp;
    one.role.layers = shape.layers[static_cast<std::size_t>(one.role.stage)];
    one.role.local_batch = shape.local_batch;
    one.role.activ_bytes = kSequence * kHidden * 4;
    one.role.whole_activations = 5;
    one.micro_batches = times.micro_batches;
    one.times.fwd_s = times.forward_s;
    one.times.bwd_s = times.backward_s;
    one.times.optim_s = times.optimizer_s;
    one.times.commu_extra_s = times.dp_sync_s;
    one.layer_param_bytes = kGradients * 4.0 * one.role.layers;
    one.layer_state_bytes = kGradients * 16.0 * one.role.layers;
    // Memory is not tested here, but must hold the state.
    one.peak_bytes = 1e9;
    reports.push_back(one);
  }
  return reports;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) layer_us = std::atof(argv[1]);
  if (!(layer_us >= 50)) {
    std::fprintf(stderr, "profile-truth: LAYER_US is \"%s\"; it must be 50 or more\n", argv[1]);
    return 2;
  }
  unsetenv("SWELL_RUNTIME");
  const Shape observed{"2 stages of 6 and 6", 1, 8, 2, {6, 6}};
  const std::vector<Shape> others = {{"1 stage", 1, 8, 2, {12}},
                                     {"3 stages of 4", 1, 8, 2, {4, 4, 4}},
                                     {"4 stages of 3", 1, 8, 2, {3, 3, 3, 3}},
                                     {"2 stages of 8 and 4", 1, 8, 2, {8, 4}},
                                     {"2 stages, 4 micro-batches of 4", 1, 4, 4, {6, 6}},
                                     {"2 stages, 2 replicas", 2, 8, 1, {6, 6}}};
  const cluster::Cluster cluster =
      cluster::uniform_cluster("paced", *cluster::find_gpu_type("h100"), 1, kMaxRanks, 1e9);
  models::Model model{};
  model.layers = 12;
  model.global_batch = 16;

  std::printf("paced host devices: a layer's forward pass of a sample takes %.0f us\n", layer_us);
  const Seen first = run(observed);
  const auto profile =
      profiler::assemble(plan::name_all(layout_of(observed), cluster), reports_of(observed, first));
  if (!profile) die(profile.error().message());
  const auto coefficients = perf::solve(*profile, cluster);
  if (!coefficients) die(coefficients.error().message());
  const perf::PerformanceModel predictor(model, cluster, *coefficients);
  std::printf("%-32s measured %7.1f ms, predicted %7.1f ms (solved from it)\n", observed.name,
              first.step_s * 1e3, predictor.iteration_time(layout_of(observed)).total() * 1e3);
  double sum = 0, max = 0;
  for (const Shape& shape : others) {
    const double predicted_s = predictor.iteration_time(layout_of(shape)).total();
    const double measured_s = run(shape).step_s;
    const double error = std::abs(predicted_s - measured_s) / measured_s;
    sum += error;
    max = std::max(max, error);
    std::printf("%-32s measured %7.1f ms, predicted %7.1f ms, %.1f %% off\n", shape.name,
                measured_s * 1e3, predicted_s * 1e3, error * 100);
    std::fflush(stdout);
  }
  std::printf("{\"plans\": %zu, \"mean_error_percent\": %.2f, \"max_error_percent\": %.2f}\n",
              others.size(), sum / static_cast<double>(others.size()) * 100, max * 100);
  return 0;
}
