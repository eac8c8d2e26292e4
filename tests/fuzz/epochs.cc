// SPDX-License-Identifier: GPL-2.0-or-later
// Whatever Slurm, the nodes and the controller do, in whatever order news of it come: a run whose
// program makes no error ends with 0, and only when all workers of one generation have ended the
// training; GPUs that are asked back are free in time; nothing is held for ever, and the agent is
// never asked to look again at once. No worker is killed for a growth alone. GENERATIONS_TRACE=1
// shows what happens for an input.
#include "support/generation_world.h"

namespace generation_world {

std::vector<JobId> World::held() const {
  std::vector<JobId> jobs;
  for (const auto& [job, companion] : companions_)
    if (!companion.is_released && !companion.is_gone) jobs.push_back(job);
  return jobs;
}

/// All of its processes get it; then the rest of its time.
void World::signal_companion(JobId job, int signal, bool notice_first, int code) {
  for (auto& [key, shim] : shims_) {
    const WorkerId id = key;
    if (shim.job != job || !shim.is_there) continue;
    const auto tell = [&] { send(channel(id), [=, this] { handle(event::Notice{id, signal}); }); };
    if (notice_first) tell();
    std::vector<int> running;
    for (const auto& [generation, one] : shim.programs) running.push_back(generation);
    for (const int generation : running) {
      if (signal == SIGURG) continue;
      if (signal == SIGTERM) {
        ends(id, generation, code == 3 ? Exit{0, SIGTERM} : Exit{code & 1, 0});
        breaks(generation);
      } else if (program(id, generation)->handles) {
        leaves(id, generation);
      } else {
        ends(id, generation, {0, signal});
        breaks(generation);
      }
    }
    if (!notice_first) tell();
  }
  later(30, [=, this] { take_away(job); });
}

/// Its node dies, or Slurm kills all of it.
void World::take_away(JobId job) {
  Companion& companion = companions_.at(job);
  if (companion.is_released || std::exchange(companion.is_gone, true)) return;
  may_kill();
  if (trace_) std::fprintf(stderr, "%8.2f companion %u is taken away\n", now_, job);
  std::set<int> hit;
  for (auto& [key, shim] : shims_) {
    const WorkerId id = key;
    if (shim.job != job || !shim.is_there) continue;
    for (const auto& [generation, one] : shim.programs) hit.insert(generation);
    shim.programs.clear();
    shim.is_there = false;
    send(channel(id), [=, this] { handle(event::Lost{id}); });
  }
  for (const int generation : hit) breaks(generation);
  send(kSlurm, [=, this] { handle(event::StepEnded{job, {0, SIGKILL}}); });
}

void World::step() {
  const int what = choices_.next();
  const std::vector<JobId> jobs = held();
  const JobId job =
      jobs.empty() ? 0 : jobs[static_cast<std::size_t>(choices_.next()) % jobs.size()];
  if (trace_ && what % 16 >= 9)
    std::fprintf(stderr, "%8.2f choice %d, companion %u\n", now_, what % 16, job);
  switch (what % 16) {
    case 0:
    case 1: advance(choices_.next() / 64.0); break;
    case 2: advance(choices_.below(64)); break;
    case 3:
    case 4:
    case 5:
    case 6: deliver_something(choices_.next()); break;
    case 7:
    case 8:
      if (what >= 128) order_requeue();
      else if (!switches_.empty()) go_on_switching();
      break;
    case 9:
    case 10: {
      if (jobs.size() >= 3) break;
      control::Grow grow;
      grow.offers.resize(1);
      grow.offers[0].nonce = "nonce";
      handle(grow);
      break;
    }
    case 11:
    case 12: {
      if (job == 0) break;
      const int deadline_s = 5 + choices_.below(40);
      Companion& asked = companions_.at(job);
      may_kill();
      const double by = now_ + deadline_s;
      asked.must_be_free_by = std::min(asked.must_be_free_by.value_or(by), by);
      later(deadline_s + 4, [=, this] {
        require(companions_.at(job).is_released || companions_.at(job).is_gone,
                "GPUs that are asked back are free in time");
      });
      handle(control::Shrink{{job}, deadline_s, "needed", {}});
      break;
    }
    case 13: {
      if (job == 0) break;
      const int kind = choices_.next();
      may_kill();
      const int warning = settings_.live ? SIGURG : settings_.restart_signal;
      signal_companion(job, kind % 3 == 0 ? warning : SIGTERM, (kind & 8) != 0, kind >> 4 & 3);
      break;
    }
    case 14: {
      if (job == 0) break;
      if (choices_.below(2) != 0) {
        take_away(job);
        break;
      }
      const bool is_fault = choices_.below(2) != 0;  // that shows on lent GPUs only
      may_kill();
      for (const auto& [key, shim] : shims_) {
        const WorkerId id = key;
        if (shim.job != job || shim.programs.empty()) continue;
        const int generation = shim.programs.begin()->first;
        if (is_fault && now_ < generations_[generation].since + 500) {
          ends(id, generation, {1, 0});
          breaks(generation);
        } else {
          told(id, generation, SIGKILL);
        }
        break;
      }
      break;
    }
    default: ends_training(training_); break;
  }
  carry_out();
  tick();
}

/// A later order, the same one again, one of before, or any; to leave, or to stay.
void World::order_requeue() {
  const int kind = choices_.next();
  control::Requeue order;
  order.order = (kind & 3) == 0   ? last_order_ + 1
                : (kind & 3) == 3 ? kind
                                  : last_order_ - (kind & 1);
  order.called_off = (kind & 4) != 0;
  order.wait_s = choices_.below(64);
  order.reason = "the job moves";
  if (!order.called_off) last_order_ = order.order;
  if (trace_)
    std::fprintf(stderr, "%8.2f requeue order %d%s\n", now_, static_cast<int>(order.order),
                 order.called_off ? " is called off" : "");
  handle(order);
}

void World::come_to_an_end() {
  for (int rounds = 0; !code_; ++rounds) {
    require(rounds < 5'000, "the run comes to an end");
    advance(1);
    for (int i = 0; !switches_.empty() && i < 8; ++i) go_on_switching();
    if (training_ >= 0) ends_training(training_);
    carry_out();
  }
  advance(60);
  for (const auto& [job, companion] : companions_)
    require(companion.is_released, "every companion is released in the end");
}

}  // namespace generation_world

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  generation_world::Choices choices(data, std::min<std::size_t>(size, 600));
  swell::launcher::GenerationMachine::Settings settings;
  const int kind = choices.next();
  settings.job = generation_world::kJob;
  settings.restart_signal = SIGUSR1;
  settings.live = (kind & 1) != 0;
  settings.first_offer_s = settings.live ? 2 : 0;
  if ((kind & 2) != 0) settings.recover_s = 60;
  if ((kind & 4) != 0) settings.grow_s = 20;
  if ((kind & 8) != 0) settings.sizes = {2, 4};
  generation_world::World world(settings, (kind & 16) != 0, choices);
  while (!choices.none() && !world.is_over()) world.step();
  world.come_to_an_end();
  return 0;
}
