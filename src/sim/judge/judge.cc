// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/judge.h"

#include <algorithm>
#include <queue>

#include "sim/judge/rings.h"

namespace swell::sim::judge {

namespace {

constexpr double kWireStart_s = 5e-6;  // before the first byte of a message between stages moves

/// 1F1B: the passes of one stage in order. Stage i runs as many forward passes ahead as there are
/// stages behind it, then one backward for each forward.
struct Step {
  bool backward;
  int micro_batch;
};

std::vector<Step> one_forward_one_backward(int stage, int stages, int micro_batches) {
  std::vector<Step> order;
  const int ahead = std::min(stages - stage - 1, micro_batches);
  int forward = 0, backward = 0;
  while (forward < ahead) order.push_back({false, forward++});
  while (backward < micro_batches) {
    if (forward < micro_batches) order.push_back({false, forward++});
    order.push_back({true, backward++});
  }
  return order;
}

/// Samples [first, last) of each micro-batch that a group computes.
struct Range {
  int first, last;
  bool meets(const Range& other) const { return first < other.last && other.first < last; }
};

class Executor {
 public:
  Executor(const plan::Layout& layout, const cluster::Cluster& cluster, const Hardware& hardware, bool record)
      : layout_(layout), cluster_(cluster), hardware_(hardware), record_(record) {
    for (int i = 0; i < layout.pp(); ++i) {
      const plan::StageLayout& stage = stage_at(i);
      int next = 0;
      first_worker_.push_back(static_cast<int>(workers_.size()));
      for (std::size_t j = 0; j < stage.groups.size(); ++j) {
        const plan::GroupLayout& group = stage.groups[j];
        Worker worker{i, static_cast<int>(j), one_forward_one_backward(i, layout.pp(), layout.micro_batches),
                      {next, next + group.local_batch}, 0, 0, 0, {}, {}, false};
        next += group.local_batch;
        const DeviceSpeed& speed = hardware.devices[static_cast<std::size_t>(group.type)];
        const double reduce = group_allreduce_s(group, stage.tp, hardware.activation_bytes * group.local_batch, cluster);
        for (int layer = 0; layer < stage.layers; ++layer) {
          worker.forward_s += group.local_batch / (speed.forward_layers_per_s * stage.tp) + 2 * reduce;
          worker.backward_s += group.local_batch / (speed.backward_layers_per_s * stage.tp) + 2 * reduce;
        }
        worker.inputs.assign(static_cast<std::size_t>(layout.micro_batches), 0);
        worker.gradients.assign(static_cast<std::size_t>(layout.micro_batches), 0);
        workers_.push_back(std::move(worker));
      }
    }
  }

  Iteration run() {
    for (std::size_t w = 0; w < workers_.size(); ++w) start_if_ready(w, 0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.arrival) arrive(event);
      else complete(event);
    }
    finish_stages();
    Iteration iteration{end_s_, 0, std::move(operations_)};
    double busy = 0, gpus = 0;
    for (const Worker& worker : workers_) {
      busy += worker.busy_s * stage_at(worker.stage).tp;
      gpus += stage_at(worker.stage).tp;
    }
    if (end_s_ > 0) iteration.idle_share = 1 - busy / (gpus * end_s_);
    return iteration;
  }

 private:
  struct Worker {  // one TP group: its GPUs act as one
    int stage, group;
    std::vector<Step> order;
    Range samples;
    double forward_s, backward_s;
    std::size_t done;
    std::vector<int> inputs;     ///< samples of each micro-batch that have come from the stage in front
    std::vector<int> gradients;  ///< and from the stage behind
    bool busy;
    double busy_s = 0, last_begin_s = 0, last_end_s = 0;
  };
  struct Event {
    double at_s;
    long number;  ///< events of one time in the order in which they were made
    bool arrival;
    std::size_t worker;
    bool backward;
    int micro_batch, samples;
    bool operator<(const Event& other) const { return at_s != other.at_s ? at_s > other.at_s : number > other.number; }
  };

  const plan::StageLayout& stage_at(int i) const { return layout_.stages[static_cast<std::size_t>(i)]; }
  const plan::GroupLayout& group_of(const Worker& worker) const {
    return stage_at(worker.stage).groups[static_cast<std::size_t>(worker.group)];
  }

  void start_if_ready(std::size_t w, double now) {
    Worker& worker = workers_[w];
    if (worker.busy || worker.done == worker.order.size()) return;
    const Step step = worker.order[worker.done];
    const std::size_t m = static_cast<std::size_t>(step.micro_batch);
    const int needed = worker.samples.last - worker.samples.first;
    const bool waits = step.backward ? worker.stage + 1 < layout_.pp() && worker.gradients[m] < needed
                                     : worker.stage > 0 && worker.inputs[m] < needed;
    if (waits) return;
    const double takes = step.backward ? worker.backward_s : worker.forward_s;
    worker.busy = true;
    worker.busy_s += takes;
    worker.last_begin_s = now;
    worker.last_end_s = now + takes;
    note(step.backward ? Operation::Kind::backward : Operation::Kind::forward, worker, step.micro_batch, now, now + takes);
    events_.push({now + takes, ++events_made_, false, w, step.backward, step.micro_batch, 0});
  }

  void complete(const Event& event) {
    Worker& worker = workers_[event.worker];
    worker.busy = false;
    ++worker.done;
    end_s_ = std::max(end_s_, event.at_s);
    const int other = worker.stage + (event.backward ? -1 : 1);
    if (other >= 0 && other < layout_.pp()) send(worker, other, event);
    start_if_ready(event.worker, event.at_s);
  }

  /// Every group of stage `other` that computes some of these samples gets them.
  void send(const Worker& worker, int other, const Event& event) {
    const int first = first_worker_[static_cast<std::size_t>(other)];
    for (int j = 0; j < stage_at(other).dp(); ++j) {
      const Worker& to = workers_[static_cast<std::size_t>(first + j)];
      if (!worker.samples.meets(to.samples)) continue;
      const int samples = std::min(worker.samples.last, to.samples.last) - std::max(worker.samples.first, to.samples.first);
      const cluster::GpuRef a{group_of(worker).node, std::countr_zero(group_of(worker).gpus)};
      const cluster::GpuRef b{group_of(to).node, std::countr_zero(group_of(to).gpus)};
      const double took = kWireStart_s + samples * hardware_.activation_bytes / cluster_.effective_bandwidth(a, b);
      note(Operation::Kind::send, worker, event.micro_batch, event.at_s, event.at_s + took);
      events_.push({event.at_s + took, ++events_made_, true, static_cast<std::size_t>(first + j), event.backward, event.micro_batch, samples});
    }
  }

  void arrive(const Event& event) {
    Worker& worker = workers_[event.worker];
    (event.backward ? worker.gradients : worker.inputs)[static_cast<std::size_t>(event.micro_batch)] += event.samples;
    start_if_ready(event.worker, event.at_s);
  }

  /// Each stage's gradients are reduced once its last backward pass has begun to give them, layer
  /// by layer from the rear; then each group updates its parameters.
  void finish_stages() {
    for (int i = 0; i < layout_.pp(); ++i) {
      const plan::StageLayout& stage = stage_at(i);
      const std::size_t first = static_cast<std::size_t>(first_worker_[static_cast<std::size_t>(i)]);
      double begin = 0, end = 0;
      for (int j = 0; j < stage.dp(); ++j) {
        const Worker& worker = workers_[first + static_cast<std::size_t>(j)];
        begin = std::max(begin, worker.last_begin_s);
        end = std::max(end, worker.last_end_s);
      }
      double reduced = end;
      if (stage.dp() > 1) {
        // Layers give their gradients one after the other; the wire takes them in that order.
        const double all = stage_allreduce_s(stage, hardware_.gradient_bytes * stage.layers, cluster_);
        const double early = hardware_.overlapped_share * all / stage.layers;
        double wire = begin;
        for (int layer = 1; layer <= stage.layers; ++layer) {
          const double ready = begin + (end - begin) * layer / stage.layers;
          wire = std::max(wire, ready) + early;
        }
        reduced = std::max(wire, end) + (1 - hardware_.overlapped_share) * all;
      }
      for (int j = 0; j < stage.dp(); ++j) {
        const Worker& worker = workers_[first + static_cast<std::size_t>(j)];
        const DeviceSpeed& speed = hardware_.devices[static_cast<std::size_t>(group_of(worker).type)];
        const double updated = reduced + stage.layers / (speed.optimizer_layers_per_s * stage.tp);
        if (stage.dp() > 1) note(Operation::Kind::gradients, worker, 0, begin, reduced);
        note(Operation::Kind::optimizer, worker, 0, reduced, updated);
        end_s_ = std::max(end_s_, updated);
      }
    }
  }

  void note(Operation::Kind kind, const Worker& worker, int micro_batch, double begin, double end) {
    if (record_) operations_.push_back({kind, worker.stage, worker.group, micro_batch, begin, end});
  }

  const plan::Layout& layout_;
  const cluster::Cluster& cluster_;
  const Hardware& hardware_;
  bool record_;
  std::vector<Worker> workers_;
  std::vector<int> first_worker_;
  std::priority_queue<Event> events_;
  std::vector<Operation> operations_;
  long events_made_ = 0;
  double end_s_ = 0;
};

}  // namespace

Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster, const Hardware& hardware, bool record) {
  return Executor(layout, cluster, hardware, record).run();
}

}  // namespace swell::sim::judge
