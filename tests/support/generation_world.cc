// SPDX-License-Identifier: GPL-2.0-or-later
#include "support/generation_world.h"

#include <variant>

namespace generation_world {

using control::JobState;

World::World(GenerationMachine::Settings settings, bool says_sizes, Choices& choices)
    : settings_(settings),
      says_sizes_(says_sizes),
      choices_(choices),
      machine_(settings, {worker_node(0, kJob, "node1", kBasicWorkers)}) {
  machine_.start(now_);
  carry_out();
}

void World::require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%.2f: broken: %s\n", now_, what);
  std::abort();
}

// ---- time and messages

void World::tick() {
  for (int looks = 0; machine_.deadline() && *machine_.deadline() <= now_; ++looks) {
    require(looks < 20, "the agent is asked to look again at once");
    machine_.tick(now_);
    carry_out();
  }
}

/// Delivers the messages and deadlines that are due until then in their order.
void World::advance(double seconds) {
  const double until = now_ + seconds;
  for (int events = 0;; ++events) {
    require(events < 100'000, "time goes on");
    double next = until;
    if (machine_.deadline()) next = std::min(next, *machine_.deadline());
    if (!timeline_.empty()) next = std::min(next, timeline_.begin()->first);
    int oldest = -1;
    for (const auto& [from, sent] : outbox_)
      if (!sent.empty() && sent.front().since + kAge_s <= next) {
        next = sent.front().since + kAge_s;
        oldest = from;
      }
    const bool is_switching = !switches_.empty() && switches_.front().goes_on_at <= next;
    if (is_switching) next = switches_.front().goes_on_at;
    now_ = std::max(now_, next);
    if (is_switching) {
      go_on_switching();
    } else if (oldest >= 0) {
      deliver(oldest);
    } else if (!timeline_.empty() && timeline_.begin()->first <= now_) {
      const News news = std::move(timeline_.begin()->second);
      timeline_.erase(timeline_.begin());
      news();
    } else if (machine_.deadline() && *machine_.deadline() <= now_) {
      tick();
    } else {
      return;
    }
    carry_out();
  }
}

void World::deliver(int from) {
  if (trace_) std::fprintf(stderr, "%8.2f news from %d.%d\n", now_, from / 8, from % 8);
  const News news = std::move(outbox_[from].front().news);
  outbox_[from].pop_front();
  news();
  carry_out();
}

bool World::deliver_something(int which) {
  std::vector<int> senders;
  for (const auto& [from, sent] : outbox_)
    if (!sent.empty()) senders.push_back(from);
  if (senders.empty()) return false;
  deliver(senders[static_cast<std::size_t>(which) % senders.size()]);
  return true;
}

// ---- programs

Program* World::program(WorkerId id, int generation) {
  const auto shim = shims_.find(id);
  if (shim == shims_.end()) return nullptr;
  const auto found = shim->second.programs.find(generation);
  return found == shim->second.programs.end() ? nullptr : &found->second;
}

void World::ends(WorkerId id, int generation, Exit exit) {
  if (program(id, generation) == nullptr) return;
  shims_[id].programs.erase(generation);
  // A program that ends with 0 after the last step has succeeded, whatever made it end.
  if (generations_[generation].is_at_its_end && exit.status() == 0)
    generations_[generation].ended.insert(id);
  if (trace_)
    std::fprintf(stderr, "%8.2f program %d of %d.%d ends with %d\n", now_, generation, id.node,
                 id.local, exit.status());
  send(channel(id), [=, this] { handle(event::Exited{id, exit, generation}); });
  send(channel(id), [=, this] { handle(event::Hello{id, "host", 1000 + id.local}); });
}

void World::breaks(int id) {
  Generation& generation = generations_[id];
  if (std::exchange(generation.is_broken, true) || generation.is_at_its_end ||
      !generation.fails_when_broken)
    return;
  const double after_s = choices_.below(8) * 0.2;
  for (const WorkerId member : generation.members)
    later(after_s, [=, this] {
      if (const Program* one = program(member, id); one != nullptr && one->trains)
        ends(member, id, {1, 0});
    });
}

/// Ends the program as it was asked to; its peers cannot train without it.
void World::leaves(WorkerId id, int generation) {
  if (program(id, generation) == nullptr) return;
  generations_[generation].is_broken = true;  // its peers expect this and do not fail
  ends(id, generation, {});
}

void World::told(WorkerId id, int generation, int signal) {
  Program* one = program(id, generation);
  if (one == nullptr) return;
  if (signal == SIGKILL || signal == SIGTERM) {
    ends(id, generation, {0, signal});
    return breaks(generation);
  }
  if (signal != settings_.restart_signal || one->ignores || generations_[generation].ignores)
    return;
  if (!settings_.live && !one->handles) {
    one->keeps_signal = true;
    return;
  }
  // A program in a collective that never ends runs no signal handler.
  if (!one->trains ||
      (generations_[generation].is_broken && !generations_[generation].is_at_its_end &&
       generations_[generation].fails_when_broken))
    return;
  // Some programs use the signal for something else; some take longer than they may.
  const int kind = choices_.below(16);
  one->ignores = kind == 15;
  if (one->ignores) return;
  const double late_s = kind == 14 ? 20.0 + choices_.below(64) : 0;
  later(late_s + choices_.below(4) * 0.3, [=, this] { leaves(id, generation); });
}

/// After this event, workers that do not leave may be killed.
void World::may_kill() {
  for (auto& [id, generation] : generations_) generation.may_be_killed = true;
}

/// The last step is done; each worker ends soon after.
void World::ends_training(int id) {
  Generation& generation = generations_[id];
  if (generation.is_broken || generation.is_at_its_end) return;
  for (const WorkerId member : generation.members)
    if (const Program* one = program(member, id); one == nullptr || !one->trains || one->is_paused)
      return;
  generation.is_at_its_end = true;
  for (const WorkerId member : generation.members)
    later(choices_.below(8) * 0.4, [=, this] {
      if (program(member, id) == nullptr) return;
      ends(member, id, {});
    });
}

// ---- actions that the machine requests

void World::carry_out() {
  for (auto actions = machine_.take(); !actions.empty(); actions = machine_.take())
    for (const action::Any& each : actions) std::visit([this](const auto& one) { act(one); }, each);
}

void World::act(const action::StartStep& start) {
  const int kind = start.job == kJob ? 0 : choices_.below(16);
  if (kind == 15) later(3, [=, this] { take_away(start.job); });  // srun fails
  for (const WorkerNode& node : start.nodes) {
    if (kind >= 14) continue;  // kind 14: srun hangs
    for (int local = 0; local < node.workers; ++local) {
      const WorkerId id{node.id, local};
      shims_[id].job = start.job;
      later(choices_.below(16) * 0.2, [=, this] {
        Shim& shim = shims_[id];
        if (start.job != kJob &&
            (companions_[start.job].is_gone || companions_[start.job].is_released))
          return;
        shim.is_there = true;
        send(channel(id), [=, this] { handle(event::Hello{id, "host", 1000 + id.local}); });
      });
    }
  }
}

void World::act(const action::StartWorkers& start) {
  Generation& generation = generations_[start.generation];
  generation.fails_when_broken = choices_.below(2) != 0;
  generation.ignores = choices_.below(8) == 7;
  generation.since = now_;
  if (!settings_.live) training_ = start.generation;
  for (const auto& [worker, environment] : start.workers) {
    const WorkerId id = worker;
    generation.members.insert(id);
    Shim& shim = shims_[id];
    if (!shim.is_there) {
      breaks(start.generation);
      continue;
    }
    require(settings_.live || shim.programs.empty(), "one program at a time");
    shim.programs[start.generation].trains = !settings_.live;
    if (trace_)
      std::fprintf(stderr, "%8.2f program %d of %d.%d\n", now_, start.generation, id.node,
                   id.local);
    if (settings_.live)
      send(channel(id), [=, this] { handle(event::Hello{id, "host", 2000 + id.local}); });
    else
      later(choices_.below(8) * 0.2, [=, this] {
        Program* one = program(id, start.generation);
        if (one == nullptr) return;
        one->handles = true;
        if (says_sizes_) send(channel(id), [this] { handle(event::CanRunWith{{2, 4, 6}}); });
        send(channel(id), [=, this, of = start.generation] { handle(event::Listens{id, of}); });
        if (one->keeps_signal) told(id, start.generation, settings_.restart_signal);
      });
  }
}

void World::act(const action::SignalWorkers& signal) {
  for (const WorkerId id : signal.workers) {
    std::vector<int> running;
    for (const auto& [generation, one] : shims_[id].programs) running.push_back(generation);
    for (const int generation : running)
      if (signal.generation < 0 || signal.generation == generation) {
        // A growth does not kill workers: a program may be killed only if GPUs are reclaimed, lost
        // or broken.
        if (signal.signal == SIGKILL && !settings_.live && settings_.grow_s <= 0)
          require(generations_[generation].may_be_killed || generations_[generation].is_broken ||
                      generations_[generation].is_at_its_end,
                  "no worker is killed for a growth");
        told(id, generation, signal.signal);
      }
  }
}

void World::act(const action::BeginLive& begin) {
  send(kLive, [=, this] {
    const bool all = std::all_of(begin.ranks.begin(), begin.ranks.end(), [&](WorkerId id) {
      return program(id, begin.generation) != nullptr;
    });
    if (!all) return handle(event::Begun{begin.generation, "a program has ended"});
    const bool has_lent = std::any_of(begin.ranks.begin(), begin.ranks.end(),
                                      [](WorkerId id) { return id.node != 0; });
    if ((has_lent || begin.from_snapshot) && choices_.below(8) == 7) {
      generations_[begin.generation].is_broken = true;
      for (const WorkerId id : begin.ranks)  // programs that were still loading stay
        if (choices_.below(4) != 0) ends(id, begin.generation, {choices_.below(4) == 0, 0});
      return handle(event::Begun{begin.generation, "the tensors differ"});
    }
    for (const WorkerId id : begin.ranks) program(id, begin.generation)->trains = true;
    if (says_sizes_) handle(event::CanRunWith{{2, 4, 6}});
    training_ = begin.generation;
    handle(event::Begun{begin.generation, "", 0, !says_sizes_});
  });
}

void World::act(const action::Tell& tell) {
  const auto* status = std::get_if<control::Status>(&tell.message);
  if (status == nullptr) return;
  require(status->requeue_order == last_order_, "a status answers the last order");
  if (!status->has_left) return;
  require(status->not_requeued.empty(), "an order is followed or refused");
  for (const auto& [id, shim] : shims_)
    require(!shim.is_there || shim.programs.empty(), "nobody trains who has left for a requeue");
}

void World::act(const action::SwitchLive& order) {
  Switch one{order.generation, training_, order.from, order.to};
  one.goes_on_at = now_ + kAge_s;
  one.may_let_go = order.leave_within_s > 0 && choices_.below(2) != 0;
  one.in_chunks = choices_.below(2) != 0;
  for (Switch& before : switches_) before.is_called_off = true;
  switches_.push_back(std::move(one));
}

void World::act(const action::CallOffLive&) {
  for (Switch& each : switches_) each.is_called_off = true;
  if (!switches_.empty() && switches_.front().phase == kCommit)
    handle(event::Switching{switches_.front().generation, SwitchPhase::commit});
}

void World::act(const action::StopLive& stop) {
  send(kLive, [=, this] {
    const bool can = std::all_of(stop.workers.begin(), stop.workers.end(), [&](WorkerId id) {
      const Program* one = program(id, stop.generation);
      return one != nullptr && one->trains && !generations_[stop.generation].is_broken;
    });
    if (!can) return handle(event::Stopped{stop.generation, 0, stop.workers});
    for (const WorkerId id : stop.workers)
      later(choices_.below(4) * 0.3, [=, this] { leaves(id, stop.generation); });
    handle(event::Stopped{stop.generation, 7, {}});
  });
}

void World::act(const action::Allocate& allocate) {
  const bool refused = choices_.below(8) == 0;
  const int gpus = 1 + choices_.below(3);
  const double after_s = choices_.below(16) * (choices_.below(2) != 0 ? 0.1 : 2);
  const std::string nonce = allocate.grow.offers.front().nonce;
  later(after_s, [=, this] {
    send(kSalloc, [=, this] {
      if (refused) return handle(event::Allocated{{{nonce, 0, "none are idle", {}}}});
      const JobId job = next_job_++;
      companions_[job] = {};
      handle(event::Allocated{{{nonce, job, "", {worker_node(0, 0, "node2", gpus)}}}});
    });
  });
}

void World::act(const action::Release& release) {
  Companion& companion = companions_.at(release.job);
  require(!companion.is_released, "a companion is released once");
  companion.is_released = true;
  if (trace_) std::fprintf(stderr, "%8.2f companion %u is released\n", now_, release.job);
  for (auto& [id, shim] : shims_) {
    if (shim.job != release.job) continue;
    require(code_ || !shim.programs.contains(training_) || !program(id, training_)->trains ||
                generations_[training_].is_broken || generations_[training_].is_at_its_end,
            "nobody who trains loses its GPUs");
    shim.programs.clear();
    shim.is_there = false;
    outbox_.erase(channel(id));
  }
  send(kSlurm, [=, this] { handle(event::Released{release.job}); });
}

void World::act(const action::Finish& finish) {
  code_ = finish.code;
  if (trace_) std::fprintf(stderr, "%8.2f finished with %d\n", now_, finish.code);
  require(finish.code == 0, "nothing of the run's own has failed");
  require(std::any_of(generations_.begin(), generations_.end(),
                      [](const auto& each) {
                        return !each.second.members.empty() &&
                               each.second.ended == each.second.members;
                      }),
          "the training has ended on all workers of a generation");
}

// ---- live switches

void World::pause(const Switch& one, bool is_paused) {
  for (const WorkerId id : one.from)
    if (Program* old = program(id, one.before)) old->is_paused = is_paused;
}

void World::abort_switch(const Error& why) {
  const Switch one = std::move(switches_.front());
  switches_.pop_front();
  pause(one, false);
  SwitchOutcome outcome;
  outcome.why = outcome.summary = outcome.brief = why.message();
  outcome.code = why.code();
  outcome.phase = kPhases[std::max(one.phase, 0)];
  const bool is_old_gone = one.in_chunks && one.phase >= kMove;
  const int before = one.before;
  if (one.has_let_go || is_old_gone) generations_[before].is_broken = true;
  if (is_old_gone)
    for (const WorkerId id : one.from) later(0.1, [=, this] { leaves(id, before); });
  handle(event::Switched{one.generation, outcome});
  carry_out();
}

/// Enters the coordinator's next phase.
void World::go_on_switching() {
  Switch& one = switches_.front();
  one.goes_on_at = now_ + (choices_.below(8) != 0 ? kAge_s : choices_.below(100));
  if (one.is_called_off && one.phase < kCommit) return abort_switch(runtime::called_off());
  const auto leaves_now = [&](WorkerId id) {
    return std::find(one.to.begin(), one.to.end(), id) == one.to.end();
  };
  bool is_broken = false;
  for (const WorkerId id : one.from)
    if (!(one.has_let_go && leaves_now(id)))
      is_broken =
          is_broken || program(id, one.before) == nullptr || !program(id, one.before)->trains;
  for (const WorkerId id : one.to) is_broken = is_broken || program(id, one.generation) == nullptr;
  if (one.phase < kCommit &&
      (is_broken || (one.phase < kQuiesce && generations_[one.before].is_at_its_end)))
    return abort_switch(Error("a program has ended"));
  if (one.phase == kCommit) {
    const Switch done = std::move(switches_.front());
    switches_.pop_front();
    SwitchOutcome outcome;
    outcome.committed = true;
    outcome.summary = outcome.brief = "done";
    for (const WorkerId id : done.to)
      if (!shims_[id].is_there) outcome.lost.push_back(id);
    handle(event::Switched{done.generation, outcome});
    return carry_out();
  }
  if (one.phase == kMove && one.may_let_go && !std::exchange(one.has_let_go, true)) {
    for (const WorkerId id : one.from)
      if (leaves_now(id))
        later(choices_.below(4) * 0.2, [=, this, before = one.before] { ends(id, before, {}); });
    handle(event::LetGo{one.generation});
    return carry_out();
  }
  ++one.phase;
  if (one.phase == kSecure && !one.in_chunks) ++one.phase;
  if (one.phase == kQuiesce) pause(one, true);
  if (one.phase == kCommit) {
    for (const WorkerId id : one.from)
      later(choices_.below(4) * 0.2, [=, this, before = one.before] { ends(id, before, {}); });
    generations_[one.before].is_broken = true;
    training_ = one.generation;
    generations_[training_].since = now_;
    for (const WorkerId id : one.to)
      if (Program* next = program(id, one.generation)) next->trains = true;
  }
  handle(event::Switching{one.generation, kPhases[one.phase]});
  carry_out();
}

}  // namespace generation_world
