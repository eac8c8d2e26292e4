// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/judge.h"

#include <algorithm>
#include <queue>

#include "sim/judge/collectives.h"
#include "sim/judge/compute.h"

namespace swell::sim::judge {

namespace {

/// A pass of a stage in 1F1B order: stage i runs as many forward passes ahead as there are stages
/// behind it, then one backward pass for each forward pass.
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
  Executor(const plan::Layout& layout, const cluster::Cluster& cluster, const Hardware& hardware,
           bool record)
      : layout_(layout),
        cluster_(cluster),
        hardware_(hardware),
        record_(record),
        leaving_(cluster.nodes().size(), 0),
        arriving_(leaving_) {
    for (int i = 0; i < layout.pp(); ++i) {
      const plan::StageLayout& stage = stage_at(i);
      int next = 0;
      first_worker_.push_back(static_cast<int>(workers_.size()));
      for (std::size_t j = 0; j < stage.groups.size(); ++j) {
        const plan::GroupLayout& group = stage.groups[j];
        Worker worker{i,
                      static_cast<int>(j),
                      one_forward_one_backward(i, layout.pp(), layout.micro_batches),
                      {next, next + group.local_batch},
                      0,
                      0,
                      0,
                      {},
                      {},
                      false};
        next += group.local_batch;
        const Passes passes = passes_of(i, group);
        worker.forward_s = passes.forward_s;
        worker.backward_s = passes.backward_s;
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
  /// One TP group, whose GPUs act as one.
  struct Worker {
    int stage, group;
    std::vector<Step> order;
    Range samples;
    double forward_s, backward_s;
    std::size_t done;
    /// Samples of each micro-batch that have arrived from the stage in front, and from the stage
    /// behind.
    std::vector<int> inputs;
    std::vector<int> gradients;
    bool busy;
    double busy_s = 0, last_begin_s = 0, last_end_s = 0;
  };
  struct Event {
    double at_s;
    long number;  ///< orders events of equal time by their creation
    bool arrival;
    std::size_t worker;
    bool backward;
    int micro_batch, samples;
    bool operator<(const Event& other) const {
      return at_s != other.at_s ? at_s > other.at_s : number > other.number;
    }
  };

  const plan::StageLayout& stage_at(int i) const {
    return layout_.stages[static_cast<std::size_t>(i)];
  }
  const plan::GroupLayout& group_of(const Worker& worker) const {
    return stage_at(worker.stage).groups[static_cast<std::size_t>(worker.group)];
  }

  /// Passes of one micro-batch in a group: all its layers, and what the first and last stage have
  /// besides.
  Passes passes_of(int i, const plan::GroupLayout& group) {
    const plan::StageLayout& stage = stage_at(i);
    const double slowness = hardware_.of_type(group.type) * hardware_.of_node(group.node);
    const Kind kind{i, group.type, group.local_batch, slowness};
    if (kind == known_kind_) return known_passes_;
    const models::Model& model = hardware_.model;
    const Device device{cluster_.type(group.type), stage.tp, slowness};
    const double reduce =
        group_allreduce_s(group, stage.tp, activation_bytes() * group.local_batch, cluster_);
    const Passes layer = layer_passes(model, hardware_.software, device, group.local_batch, reduce);
    Passes all{layer.forward_s * stage.layers, layer.backward_s * stage.layers};
    if (i == 0) all += embedding_passes(hardware_.software);
    if (i == layout_.pp() - 1)
      all += head_passes(model, hardware_.software, device, group.local_batch);
    known_kind_ = kind;
    return known_passes_ = all;
  }

  double activation_bytes() const {
    return 2.0 * hardware_.model.sequence * hardware_.model.hidden;
  }

  double parameters_of(int i) const {
    const models::Model& model = hardware_.model;
    const bool first = i == 0, last = i == layout_.pp() - 1;
    const int embeddings = (first ? 1 : 0) + (last && !(first && model.tied_embedding) ? 1 : 0);
    return stage_at(i).layers * parameters_of_layer(model) +
           embeddings * parameters_of_embedding(model);
  }

  /// Arrival time of `bytes`, given that they would arrive at `alone_s` on networks without other
  /// transfers.
  double shared_network(int a, int b, double bytes, double now, double alone_s) {
    if (a == b) return alone_s;
    return std::max({alone_s, queued(leaving_, a, bytes, now), queued(arriving_, b, bytes, now)});
  }

  /// Queues `bytes` behind the other transfers of one direction of a node's network; returns the
  /// time at which they are through.
  double queued(std::vector<double>& free_s, int node, double bytes, double now) {
    double& free = free_s[static_cast<std::size_t>(node)];
    return free = std::max(free, now) + bytes / cluster_.node(node).network_bytes_per_s;
  }

  void start_if_ready(std::size_t w, double now) {
    Worker& worker = workers_[w];
    if (worker.busy || worker.done == worker.order.size()) return;
    const Step step = worker.order[worker.done];
    const std::size_t m = static_cast<std::size_t>(step.micro_batch);
    const int needed = worker.samples.last - worker.samples.first;
    const bool waits = step.backward
                           ? worker.stage + 1 < layout_.pp() && worker.gradients[m] < needed
                           : worker.stage > 0 && worker.inputs[m] < needed;
    if (waits) return;
    const double takes = step.backward ? worker.backward_s : worker.forward_s;
    worker.busy = true;
    worker.busy_s += takes;
    worker.last_begin_s = now;
    worker.last_end_s = now + takes;
    note(step.backward ? Operation::Kind::backward : Operation::Kind::forward, worker,
         step.micro_batch, now, now + takes);
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

  /// Sends the samples of `event` to every group of stage `other` that computes some of them.
  void send(const Worker& worker, int other, const Event& event) {
    const int first = first_worker_[static_cast<std::size_t>(other)];
    for (int j = 0; j < stage_at(other).dp(); ++j) {
      const Worker& to = workers_[static_cast<std::size_t>(first + j)];
      if (!worker.samples.meets(to.samples)) continue;
      const int samples = std::min(worker.samples.last, to.samples.last) -
                          std::max(worker.samples.first, to.samples.first);
      const plan::GroupLayout &a = group_of(worker), &b = group_of(to);
      const double bytes = samples * activation_bytes();
      const double arrived = shared_network(a.node, b.node, bytes, event.at_s,
                                            event.at_s + send_s(a, b, bytes, cluster_));
      note(Operation::Kind::send, worker, event.micro_batch, event.at_s, arrived);
      events_.push({arrived, ++events_made_, true, static_cast<std::size_t>(first + j),
                    event.backward, event.micro_batch, samples});
    }
  }

  void arrive(const Event& event) {
    Worker& worker = workers_[event.worker];
    (event.backward ? worker.gradients
                    : worker.inputs)[static_cast<std::size_t>(event.micro_batch)] += event.samples;
    start_if_ready(event.worker, event.at_s);
  }

  /// Reduces each stage's gradients from the begin of its last backward pass on, layer by layer
  /// from the rear; then each group updates its parameters.
  void finish_stages() {
    for (int i = 0; i < layout_.pp(); ++i) {
      const plan::StageLayout& stage = stage_at(i);
      const std::size_t first =
          static_cast<std::size_t>(first_worker_[static_cast<std::size_t>(i)]);
      double begin = 0, end = 0;
      for (int j = 0; j < stage.dp(); ++j) {
        const Worker& worker = workers_[first + static_cast<std::size_t>(j)];
        begin = std::max(begin, worker.last_begin_s);
        end = std::max(end, worker.last_end_s);
      }
      const Software& software = hardware_.software;
      double reduced = end;
      if (stage.dp() > 1) {
        // Layers produce their gradients one after the other; the network takes them in that order.
        const double bytes = software.gradient_bytes * parameters_of(i);
        const double all = stage_allreduce_s(stage, bytes, cluster_, software);
        const double early = software.overlapped_share * all / stage.layers;
        double wire = begin;
        for (int layer = 1; layer <= stage.layers; ++layer) {
          const double ready = begin + (end - begin) * layer / stage.layers;
          wire = std::max(wire, ready) + early;
        }
        reduced = ring_done(stage, bytes, end,
                            std::max(wire, end) + (1 - software.overlapped_share) * all);
      }
      for (int j = 0; j < stage.dp(); ++j) {
        const Worker& worker = workers_[first + static_cast<std::size_t>(j)];
        const double updated = reduced + update_s(parameters_of(i) / stage.tp, software,
                                                  cluster_.type(group_of(worker).type));
        if (stage.dp() > 1) note(Operation::Kind::gradients, worker, 0, begin, reduced);
        note(Operation::Kind::optimizer, worker, 0, reduced, updated);
        end_s_ = std::max(end_s_, updated);
      }
    }
  }

  /// End of a stage's ring, which shares the network of its nodes with other stages' rings.
  double ring_done(const plan::StageLayout& stage, double bytes, double begin, double alone_s) {
    const double moved = 2.0 * (stage.dp() - 1) / stage.dp() * bytes;
    double done = alone_s;
    int before = -1;
    for (const plan::GroupLayout& group : stage.groups) {
      if (group.node == before) continue;
      const bool only = stage.groups.front().node == stage.groups.back().node;
      before = group.node;
      if (!only) done = std::max(done, queued(leaving_, group.node, moved, begin));
    }
    return done;
  }

  void note(Operation::Kind kind, const Worker& worker, int micro_batch, double begin, double end) {
    if (record_) operations_.push_back({kind, worker.stage, worker.group, micro_batch, begin, end});
  }

  const plan::Layout& layout_;
  const cluster::Cluster& cluster_;
  const Hardware& hardware_;
  /// Groups of one kind take equally long.
  struct Kind {
    int stage = -1, type = 0, samples = 0;
    double slowness = 0;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  bool record_;
  /// Times at which each node's network is free in that direction.
  std::vector<double> leaving_, arriving_;
  Kind known_kind_;
  Passes known_passes_;
  std::vector<Worker> workers_;
  std::vector<int> first_worker_;
  std::priority_queue<Event> events_;
  std::vector<Operation> operations_;
  long events_made_ = 0;
  double end_s_ = 0;
};

}  // namespace

Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster,
                  const Hardware& hardware, bool record) {
  return Executor(layout, cluster, hardware, record).run();
}

}  // namespace swell::sim::judge
