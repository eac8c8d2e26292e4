// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/judge.h"

#include <algorithm>
#include <fmt/format.h>
#include <queue>

#include "core/count_of.h"
#include "core/plan/chunks.h"
#include "core/schedule/named.h"
#include "sim/judge/collectives.h"
#include "sim/judge/compute.h"

namespace swell::sim::judge {

namespace {

constexpr double kParameterBytes = 2;

/// Samples [first, last) of each micro-batch that a group computes.
struct Range {
  int first, last;
  bool meets(const Range& other) const { return first < other.last && other.first < last; }
};

class Executor {
 public:
  Executor(const plan::Layout& layout, const Pipeline& pipeline, const cluster::Cluster& cluster,
           const Hardware& hardware, bool record)
      : layout_(layout),
        pipeline_(pipeline),
        shape_(pipeline.schedule.shape),
        splits_(pipeline.schedule.splits_weights()),
        cluster_(cluster),
        hardware_(hardware),
        record_(record),
        leaving_(cluster.nodes().size(), 0),
        arriving_(leaving_) {
    const std::size_t chunks = static_cast<std::size_t>(shape_.chunks);
    const std::size_t passes = chunks * static_cast<std::size_t>(layout.micro_batches);
    for (int i = 0; i < layout.pp(); ++i) {
      const plan::StageLayout& stage = stage_at(i);
      int next = 0;
      first_worker_.push_back(static_cast<int>(workers_.size()));
      for (std::size_t j = 0; j < stage.groups.size(); ++j) {
        const plan::GroupLayout& group = stage.groups[j];
        Worker worker{i, static_cast<int>(j), {next, next + group.local_batch}, kind_of(i, group)};
        next += group.local_batch;
        worker.inputs.assign(passes, 0);
        worker.gradients.assign(passes, 0);
        worker.last.assign(chunks, {});
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
  struct Span {
    double begin_s = 0, end_s = 0;
  };
  /// One TP group, whose GPUs act as one.
  struct Worker {
    int stage, group;
    Range samples;
    std::size_t kind;  ///< index into passes_
    /// Samples that have arrived from the chunk in front, and gradients from the chunk behind, by
    /// chunk and micro-batch.
    std::vector<int> inputs{}, gradients{};
    /// By chunk: the pass that completed its gradients.
    std::vector<Span> last{};
    std::size_t done = 0;
    bool busy = false;
    double busy_s = 0;
  };
  struct Event {
    double at_s;
    long number;  ///< orders events of equal time by their creation
    bool arrival;
    std::size_t worker;
    schedule::Operation pass;  ///< for an arrival: the pass that gets the samples
    int samples;
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

  /// Returns the kind of a group of stage `i`: groups of one kind have passes of equal times.
  std::size_t kind_of(int i, const plan::GroupLayout& group) {
    const plan::StageLayout& stage = stage_at(i);
    const double slowness = hardware_.of_type(group.type) * hardware_.of_node(group.node);
    const Kind kind{i, group.type, group.local_batch, slowness};
    if (kind == known_kind_) return passes_.size() - 1;
    known_kind_ = kind;
    const models::Model& model = hardware_.model;
    const Device device{cluster_.type(group.type), stage.tp, slowness};
    const double reduce =
        group_allreduce_s(group, stage.tp, activation_bytes() * group.local_batch, cluster_);
    const Passes layer = layer_passes(model, hardware_.software, device, group.local_batch, reduce);
    std::vector<Passes>& by_chunk = passes_.emplace_back();
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      const models::Load& load = pipeline_.at(i, chunk);
      const int layers = load.layers;
      Passes all{layer.forward_s * layers, layer.backward_s * layers, layer.weights_s * layers};
      if (load.embeddings > 0) all += embedding_passes(hardware_.software);
      for (int module = 0; module < load.modules; ++module)
        all += module_passes(model, hardware_.software, device, group.local_batch, layer);
      for (int head = 0; head < load.heads; ++head)
        all += head_passes(model, hardware_.software, device, group.local_batch);
      by_chunk.push_back(all);
    }
    return passes_.size() - 1;
  }

  double seconds_of(const Worker& worker, const schedule::Operation& pass) const {
    const Passes& all = passes_[worker.kind][static_cast<std::size_t>(pass.chunk)];
    if (pass.kind == schedule::Kind::forward) return all.forward_s;
    if (pass.kind == schedule::Kind::weights) return all.weights_s;
    return splits_ ? all.backward_s - all.weights_s : all.backward_s;
  }

  std::size_t place_of(const schedule::Operation& pass) const {
    return static_cast<std::size_t>(pass.chunk) * static_cast<std::size_t>(layout_.micro_batches) +
           static_cast<std::size_t>(pass.micro_batch);
  }

  double activation_bytes() const {
    return 2.0 * hardware_.model.sequence * hardware_.model.hidden;
  }

  /// Returns the number of parts in which the gradients of a run of units are reduced while later
  /// ones are computed.
  static int parts_of(const models::Load& load) { return load.layers + load.modules; }

  double parameters_of(int i) const {
    return judge::parameters_of(pipeline_.stage(i), hardware_.model);
  }

  /// Returns the arrival time of `bytes` that would arrive at `alone_s` if the networks had no
  /// other transfers.
  double shared_network(const plan::GroupLayout& a, const plan::GroupLayout& b, double bytes,
                        double now, double alone_s) {
    if (plan::together(a, b)) return alone_s;
    return std::max(
        {alone_s, queued(leaving_, a.node, bytes, now), queued(arriving_, b.node, bytes, now)});
  }

  /// Queues `bytes` behind the other transfers of one direction of a node's network. Returns the
  /// time at which they have passed.
  double queued(std::vector<double>& free_s, int node, double bytes, double now) {
    double& free = free_s[static_cast<std::size_t>(node)];
    return free = std::max(free, now) + bytes / cluster_.node(node).network_bytes_per_s;
  }

  void start_if_ready(std::size_t w, double now) {
    Worker& worker = workers_[w];
    const schedule::Order& order =
        pipeline_.schedule.orders[static_cast<std::size_t>(worker.stage)];
    if (worker.busy || worker.done == order.size()) return;
    const schedule::Operation& pass = order[worker.done];
    const int needed = worker.samples.last - worker.samples.first;
    const std::vector<int>& come =
        pass.kind == schedule::Kind::forward ? worker.inputs : worker.gradients;
    if (schedule::need_of(shape_, worker.stage, pass).any && come[place_of(pass)] < needed) return;
    const double takes = seconds_of(worker, pass);
    worker.busy = true;
    worker.busy_s += takes;
    if (pass.kind == (splits_ ? schedule::Kind::weights : schedule::Kind::backward))
      worker.last[static_cast<std::size_t>(pass.chunk)] = {now, now + takes};
    note(pass.kind == schedule::Kind::forward    ? Operation::Kind::forward
         : pass.kind == schedule::Kind::backward ? Operation::Kind::backward
                                                 : Operation::Kind::weights,
         worker, pass, now, now + takes);
    events_.push({now + takes, ++events_made_, false, w, pass, 0});
  }

  void complete(const Event& event) {
    Worker& worker = workers_[event.worker];
    worker.busy = false;
    ++worker.done;
    end_s_ = std::max(end_s_, event.at_s);
    if (event.pass.kind != schedule::Kind::weights) hand_on(worker, event);
    start_if_ready(event.worker, event.at_s);
  }

  /// Sends the result of a forward pass to the chunk behind, or of a backward pass to the chunk in
  /// front.
  void hand_on(Worker& worker, const Event& event) {
    const int step = event.pass.kind == schedule::Kind::forward ? 1 : -1;
    schedule::Operation to = event.pass;
    int other = worker.stage + step;
    if (other < 0 || other == layout_.pp()) {
      to.chunk = static_cast<std::int16_t>(to.chunk + step);
      if (to.chunk < 0 || to.chunk == shape_.chunks) return;
      other = step > 0 ? 0 : layout_.pp() - 1;
    }
    if (other == worker.stage) come(worker, to) = worker.samples.last - worker.samples.first;
    else send(worker, other, to, event);
  }

  int& come(Worker& worker, const schedule::Operation& pass) {
    return (pass.kind == schedule::Kind::forward ? worker.inputs
                                                 : worker.gradients)[place_of(pass)];
  }

  /// Sends the samples of `event` to every group of stage `other` that computes some of them.
  void send(const Worker& worker, int other, const schedule::Operation& pass, const Event& event) {
    const int first = first_worker_[static_cast<std::size_t>(other)];
    for (int j = 0; j < stage_at(other).dp(); ++j) {
      const Worker& to = workers_[static_cast<std::size_t>(first + j)];
      if (!worker.samples.meets(to.samples)) continue;
      const int samples = std::min(worker.samples.last, to.samples.last) -
                          std::max(worker.samples.first, to.samples.first);
      const plan::GroupLayout &a = group_of(worker), &b = group_of(to);
      const double bytes = samples * activation_bytes();
      const double arrived =
          shared_network(a, b, bytes, event.at_s, event.at_s + send_s(a, b, bytes, cluster_));
      note(Operation::Kind::send, worker, event.pass, event.at_s, arrived);
      events_.push(
          {arrived, ++events_made_, true, static_cast<std::size_t>(first + j), pass, samples});
    }
  }

  void arrive(const Event& event) {
    come(workers_[event.worker], event.pass) += event.samples;
    start_if_ready(event.worker, event.at_s);
  }

  /// Returns by chunk, in order of time, the pass of the slowest group that completed its
  /// gradients.
  std::vector<std::pair<Span, int>> last_passes(int i) const {
    std::vector<std::pair<Span, int>> all;
    const std::size_t first = static_cast<std::size_t>(first_worker_[static_cast<std::size_t>(i)]);
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      Span slowest;
      for (int j = 0; j < stage_at(i).dp(); ++j) {
        const Span& own =
            workers_[first + static_cast<std::size_t>(j)].last[static_cast<std::size_t>(chunk)];
        slowest.begin_s = std::max(slowest.begin_s, own.begin_s);
        slowest.end_s = std::max(slowest.end_s, own.end_s);
      }
      all.emplace_back(slowest, chunk);
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first.begin_s < b.first.begin_s;
    });
    return all;
  }

  /// Reduces each stage's gradients layer by layer from the rear, from the start of the first pass
  /// that completes any. Then each group updates its parameters.
  void finish_stages() {
    for (int i = 0; i < layout_.pp(); ++i) {
      const plan::StageLayout& stage = stage_at(i);
      const std::size_t first =
          static_cast<std::size_t>(first_worker_[static_cast<std::size_t>(i)]);
      const auto passes = last_passes(i);
      const double begin = passes.front().first.begin_s;
      double end = 0;
      for (const auto& [span, chunk] : passes) end = std::max(end, span.end_s);
      const Software& software = hardware_.software;
      double reduced = end;
      if (stage.dp() > 1) {
        // Layers produce their gradients one after the other; the network takes them in that order.
        const double bytes = software.gradient_bytes * parameters_of(i);
        const double all = stage_allreduce_s(stage, bytes, cluster_, software);
        const int parts = parts_of(pipeline_.stage(i));
        const double early = parts > 0 ? software.overlapped_share * all / parts : 0;
        double wire = begin;
        for (const auto& [span, chunk] : passes) {
          const int layers = parts_of(pipeline_.at(i, chunk));
          for (int layer = 1; layer <= layers; ++layer) {
            const double ready = span.begin_s + (span.end_s - span.begin_s) * layer / layers;
            wire = std::max(wire, ready) + early;
          }
        }
        reduced = ring_done(stage, bytes, end,
                            std::max(wire, end) + (1 - software.overlapped_share) * all);
      }
      const bool divides = software.divides_updates && stage.dp() > 1;
      double last_updated = reduced;
      for (int j = 0; j < stage.dp(); ++j) {
        const Worker& worker = workers_[first + static_cast<std::size_t>(j)];
        const double its = parameters_of(i) / stage.tp / (divides ? stage.dp() : 1);
        const double updated =
            reduced + update_s(its, software, cluster_.type(group_of(worker).type));
        if (stage.dp() > 1) note(Operation::Kind::gradients, worker, {}, begin, reduced);
        note(Operation::Kind::optimizer, worker, {}, reduced, updated);
        last_updated = std::max(last_updated, updated);
      }
      end_s_ = std::max(end_s_, divides ? gather_updated(i, last_updated) : last_updated);
    }
  }

  /// Gathers the parameters that the groups of a stage have updated in parts. Returns the end.
  double gather_updated(int i, double now) {
    const plan::StageLayout& stage = stage_at(i);
    const double bytes = kParameterBytes * parameters_of(i);
    // Each part takes one of the two ways of an all-reduce.
    const double alone = stage_allreduce_s(stage, bytes, cluster_, hardware_.software) / 2;
    const double done = ring_done(stage, bytes / 2, now, now + alone);
    const std::size_t first = static_cast<std::size_t>(first_worker_[static_cast<std::size_t>(i)]);
    for (int j = 0; j < stage.dp(); ++j)
      note(Operation::Kind::gather, workers_[first + static_cast<std::size_t>(j)], {}, now, done);
    return done;
  }

  /// Returns the end of a stage's ring, which shares the network of its nodes with other stages'
  /// rings.
  double ring_done(const plan::StageLayout& stage, double bytes, double begin, double alone_s) {
    const double moved = 2.0 * (stage.dp() - 1) / stage.dp() * bytes;
    double done = alone_s;
    const plan::GroupLayout* before = nullptr;
    for (const plan::GroupLayout& group : stage.groups) {
      if (before != nullptr && plan::together(group, *before)) continue;
      const bool only = plan::together(stage.groups.front(), stage.groups.back());
      before = &group;
      if (!only) done = std::max(done, queued(leaving_, group.node, moved, begin));
    }
    return done;
  }

  void note(Operation::Kind kind, const Worker& worker, const schedule::Operation& pass,
            double begin, double end) {
    if (record_)
      operations_.push_back(
          {kind, worker.stage, worker.group, pass.micro_batch, begin, end, pass.chunk});
  }

  const plan::Layout& layout_;
  const Pipeline& pipeline_;
  const schedule::Shape shape_;
  const bool splits_;  ///< weight gradients are separate passes
  const cluster::Cluster& cluster_;
  const Hardware& hardware_;
  struct Kind {
    int stage = -1, type = 0, samples = 0;
    double slowness = 0;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  bool record_;
  /// Times at which each node's network becomes free, by direction.
  std::vector<double> leaving_, arriving_;
  Kind known_kind_;
  std::vector<std::vector<Passes>> passes_;  ///< by kind, then by chunk
  std::vector<Worker> workers_;
  std::vector<int> first_worker_;
  std::priority_queue<Event> events_;
  std::vector<Operation> operations_;
  long events_made_ = 0;
  double end_s_ = 0;
};

}  // namespace

Pipeline Pipeline::of(const plan::Layout& layout, const models::Model& model,
                      schedule::Schedule schedule) {
  return {std::move(schedule), plan::chunk_loads(layout, models::Chain(model))};
}

Pipeline Pipeline::of(const plan::Layout& layout, const models::Model& model) {
  const schedule::Shape shape{layout.pp(), layout.chunks(), layout.micro_batches};
  auto passes = plan::schedule_of(layout);
  return of(layout, model, passes ? *std::move(passes) : schedule::interleaved(shape));
}

Pipeline Pipeline::even_chunks(const plan::Layout& layout, schedule::Schedule schedule,
                               int mtp_heads) {
  const int chunks = schedule.shape.chunks;
  Pipeline pipeline{std::move(schedule), {}};
  for (const plan::StageLayout& stage : layout.stages)
    for (int chunk = 0; chunk < chunks; ++chunk)
      pipeline.loads.push_back(
          {0, stage.layers / chunks + (chunk < stage.layers % chunks ? 1 : 0), 0, 0});
  pipeline.loads.front().embeddings = 1;
  pipeline.loads.back().heads = 1 + mtp_heads;
  pipeline.loads.back().modules = mtp_heads;
  return pipeline;
}

models::Load Pipeline::stage(int i) const noexcept {
  models::Load sum;
  for (int chunk = 0; chunk < schedule.shape.chunks; ++chunk) sum += at(i, chunk);
  return sum;
}

Result<void> Pipeline::check(const plan::Layout& layout) const {
  const schedule::Shape& own = schedule.shape;
  if (const auto valid = schedule::check(schedule, {layout.pp(), own.chunks, layout.micro_batches});
      !valid)
    return valid;
  if (loads.size() != static_cast<std::size_t>(own.stages) * static_cast<std::size_t>(own.chunks))
    return Error(fmt::format("{} are given; the schedule is for {} of {}",
                             count_of(loads.size(), "chunk"), count_of(own.stages, "stage"),
                             count_of(own.chunks, "chunk")));
  for (std::size_t at = 0; at < loads.size(); ++at)
    if (const models::Load& load = loads[at];
        std::min({load.embeddings, load.layers, load.heads, load.modules}) < 0)
      return Error(fmt::format("stage {}: a chunk has {}, {} and {}; none may be negative",
                               at / static_cast<std::size_t>(own.chunks),
                               count_of(load.layers, "layer"), count_of(load.heads, "head"),
                               count_of(load.modules, "MTP module")));
  for (int i = 0; i < layout.pp(); ++i)
    if (const int layers = stage(i).layers;
        layers != layout.stages[static_cast<std::size_t>(i)].layers)
      return Error(fmt::format("stage {}: its {} have {}; the stage has {}", i,
                               count_of(own.chunks, "chunk"), count_of(layers, "layer"),
                               layout.stages[static_cast<std::size_t>(i)].layers));
  return {};
}

Iteration execute(const plan::Layout& layout, const Pipeline& pipeline,
                  const cluster::Cluster& cluster, const Hardware& hardware, bool record) {
  return Executor(layout, pipeline, cluster, hardware, record).run();
}

Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster,
                  const Hardware& hardware, bool record) {
  return execute(layout, Pipeline::of(layout, hardware.model), cluster, hardware, record);
}

}  // namespace swell::sim::judge
