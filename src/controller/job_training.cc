// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/job_training.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>

#include "controller/plausible.h"
#include "core/count_of.h"
#include "core/perf/check_profile.h"
#include "core/perf/performance_model.h"
#include "core/perf/profile_json.h"
#include "core/perf/solve.h"
#include "core/plan/chunks.h"
#include "core/plan/max_passes.h"
#include "core/plan/validate.h"

namespace swell::controller {

namespace {

constexpr long kMaxSamples = 1 << 16;  // of a micro-batch: planning time grows with them
constexpr double kMinStep_s = 1e-6;

/// Whether a plan over `used` is one for a job that holds `held`, of which `basic` are its own: it
/// has a use for all that is lent, and may do without some of its own.
bool is_over(const HeldGpus& used, const HeldGpus& basic, const HeldGpus& held) {
  const auto at = [](const HeldGpus& gpus, int node) {
    const auto found = gpus.find(node);
    return found != gpus.end() ? found->second : plan::GpuMask{0};
  };
  for (const auto& [node, gpus] : used)
    if ((gpus & ~at(held, node)) != 0) return false;
  for (const auto& [node, gpus] : held)
    if ((gpus & ~at(basic, node) & ~at(used, node)) != 0) return false;
  return true;
}

Result<void> check_size(const plan::Plan& plan) {
  long layers = 0, samples = 0;
  for (const plan::Stage& stage : plan.stages) layers += stage.layers;
  if (plan.pp() > 0)
    for (const plan::TpGroup& group : plan.stages.front().groups) samples += group.local_batch;
  if (layers > models::kMostLayers)
    return Error(fmt::format("its plan has {}; at most {} are planned for",
                             count_of(layers, "layer"), models::kMostLayers));
  if (samples > kMaxSamples || samples * plan.micro_batches > models::kMostBatch)
    return Error(
        fmt::format("its plan has {} of {}; at most {} of {} a micro-batch are planned for",
                    count_of(plan.micro_batches, "micro-batch"), count_of(samples, "sample"),
                    count_of(models::kMostBatch, "sample"), kMaxSamples));
  for (std::size_t i = 0; i < plan.stages.size(); ++i)
    if (plan.stages[i].layers < 1)
      return Error(fmt::format("stage {} of its plan has no layer; give each stage one", i));
  if (!plan.has_chunks() && plan.schedule.empty()) return {};
  // Each prediction executes the schedule: its time and memory grow with the passes.
  const double passes =
      static_cast<double>(plan.stages.size()) *
      static_cast<double>(std::max<std::size_t>(plan.stages.front().chunks.size(), 1)) *
      plan.micro_batches;
  if (passes > plan::kMaxPasses)
    return Error(fmt::format(
        "its plan has {:.0f} passes of micro-batches through chunks; at most {} are planned "
        "for, so use fewer chunks or micro-batches",
        passes, plan::kMaxPasses));
  return {};
}

double samples_of(const plan::Plan& plan) {
  return static_cast<double>(plan.micro_batches) * plan.micro_batch_samples();
}

/// The model as far as the plan and the bytes show it: layers, batch and the TP degrees in use.
std::shared_ptr<const models::Model> model_of(const perf::Profile& profile) {
  auto model = std::make_shared<models::Model>();
  model->name = "observed";
  double bytes = 0;
  for (const plan::Stage& stage : profile.plan.stages) {
    model->layers += stage.layers;
    model->heads = std::max(model->heads, stage.tp);
  }
  model->mtp_heads = plan::mtp_heads_of(profile.plan);
  for (const perf::GroupObservation& seen : profile.groups) {
    const plan::Stage& stage = profile.plan.stages[static_cast<std::size_t>(seen.stage)];
    bytes = std::max(bytes, seen.layer_param_bytes * stage.tp / stage.layers);
  }
  const double width = std::sqrt(bytes / 2 / 12);
  model->hidden = model->heads * static_cast<int>(std::clamp(width / model->heads, 1.0, 1e6));
  model->kv_heads = model->heads;
  model->ffn = 4 * model->hidden;
  model->vocab = 1;
  model->sequence = static_cast<int>(std::clamp(profile.activ_bytes / 2 / model->hidden, 1.0, 1e7));
  model->tied_embedding = profile.tied_embedding;
  model->global_batch = static_cast<int>(samples_of(profile.plan));
  return model;
}

/// Returns the sum of a step's regions, in a pipeline that waits for its slowest stage.
double seconds_of_regions(const perf::Profile& profile) {
  double pass = 0, rest = 0;
  for (const perf::GroupObservation& seen : profile.groups) {
    pass = std::max(pass, seen.fwd_s + seen.bwd_s);
    rest = std::max(rest, seen.optim_s + seen.commu_extra_s);
  }
  return (profile.plan.micro_batches + profile.plan.pp() - 1) * pass + rest;
}

/// Takes from `before` what only some schedules show.
template <typename Solved>
void keep_weights_share(Solved& solved, const perf::Coefficients& before) {
  perf::Coefficients kept = *solved.coefficients;
  for (std::size_t i = 0; i < std::min(kept.types.size(), before.types.size()); ++i)
    if (kept.types[i].weights_share == 0)
      kept.types[i].weights_share = before.types[i].weights_share;
  solved.coefficients = std::make_shared<const perf::Coefficients>(std::move(kept));
}

}  // namespace

/// A program that makes its own plans divides samples alone: one layer that cannot be cut.
plan::Plan JobTraining::as_planned(plan::Plan plan) const {
  if (told_.makes_own_plans() && plan.pp() == 1 && plan.stages.front().tp == 1) {
    plan.stages.front().layers = 1;
    plan.stages.front().chunks.clear();
    plan.schedule.clear();
  }
  return plan;
}

Result<perf::Profile> JobTraining::read(const Json& json, const cluster::Cluster& machines) const {
  auto profile = perf::profile_from_json(json, machines);
  if (!profile) return profile.error();
  if (auto good = check_size(profile->plan); !good) return good.error();
  if (auto good = perf::check(*profile, machines); !good) return good.error();
  const int layers = profile->plan.stages.front().layers;
  profile->plan = as_planned(std::move(profile->plan));
  if (profile->plan.stages.front().layers != layers) profile->layer_launch_s *= layers;
  return profile;
}

Result<JobTraining::Solved> JobTraining::solve(const perf::Profile& profile,
                                               const cluster::Cluster& machines,
                                               const plan::Allocations& allocations) const {
  auto coefficients = perf::solve(profile, machines, allocations, *model_of(profile));
  if (!coefficients) return coefficients.error();
  return Solved{model_of(profile),
                std::make_shared<const perf::Coefficients>(std::move(*coefficients))};
}

Result<void> JobTraining::take(const control::Profile& report, const HeldGpus& basic,
                               const HeldGpus& held, const cluster::Cluster& machines,
                               const plan::Allocations& allocations) {
  is_incomplete_ = false;
  if (!(report.step_s >= kMinStep_s))
    return Error(
        fmt::format("step_s is {:g}; it must be at least {:g} s", report.step_s, kMinStep_s));
  auto profile = read(report.profile, machines);
  if (!profile) return profile.error();
  auto original = plan::Plan::from_json(report.profile.at("plan"));
  if (!original) return original.error();
  for (std::size_t i = 0; i < original->stages.size(); ++i)
    for (std::size_t j = 0; j < original->stages[i].groups.size(); ++j)
      original->stages[i].groups[j].gpu_type = profile->plan.stages[i].groups[j].gpu_type;

  const auto model = model_of(*profile);
  if (auto good = plan::validate(profile->plan, *model, machines); !good) return good.error();
  auto layout = plan::resolve(profile->plan, machines);
  if (!layout) return layout.error();
  allocations.label(*layout);
  bool lent = false;
  for (const auto& [node, gpus] : gpus_of(*layout)) {
    const auto own = basic.find(node);
    lent = lent || own == basic.end() || (gpus & ~own->second) != 0;
    const auto there = held.find(node);
    if (there == held.end() || (gpus & ~there->second) != 0)
      return Error(
          fmt::format("its plan uses GPUs on {} that it does not hold", machines.node(node).name));
  }
  if (auto good = check_possible(*profile, machines); !good) return good.error();
  Observed seen{report.profile, *original, samples_of(*original) / report.step_s};
  // Agents of older versions leave chunks out.
  const bool says_chunks = profile->takes_chunks || original->has_chunks();
  if (told_.see(*original, report.generation, says_chunks))
    return take(report, basic, held, machines, allocations);
  // How fast it is, is known also where its passes do not say why.
  speedup_ = lent ? speedup_of(seen, machines, allocations) : std::nullopt;
  version_.change();
  const double regions_s = seconds_of_regions(*profile);
  is_incomplete_ = explains_too_little(regions_s, report.step_s);
  if (auto good = check_explains(regions_s, report.step_s); !good) return good.error();
  auto solved = solve(*profile, machines, allocations);
  if (!solved) return solved.error();
  if (solved_.coefficients && solved_for_ == machines.types())
    keep_weights_share(*solved, *solved_.coefficients);
  // A set within 2 % of the one before changes nothing: plans and their tables stay good.
  const bool is_same = recent_.add(*solved->coefficients);
  const bool same_model = solved_.model != nullptr && *solved_.model == *solved->model;
  if (solved_.model != nullptr && !same_model) ran_.clear();
  if (!is_same || !same_model || solved_for_ != machines.types()) {
    adopted_ = report.profile;
    solved_ = std::move(*solved);
    solved_for_ = machines.types();
  }
  if (!lent) basic_ = seen;
  add_speed(seen, *layout);
  current_ = std::move(seen);
  version_.change();
  return {};
}

void JobTraining::add_speed(const Observed& seen, const plan::Layout& layout) {
  const std::uint64_t shape = perf::shape_of(layout);
  std::erase_if(ran_, [&](const Ran& one) { return one.shape == shape; });
  if (ran_.size() >= policy::MeasuredSpeed::kMax) ran_.erase(ran_.begin() + 1);
  ran_.push_back({seen.plan, seen.rate, shape});
}

std::vector<policy::MeasuredSpeed> JobTraining::speeds(const cluster::Cluster& machines,
                                                       const plan::Allocations& allocations) const {
  std::vector<policy::MeasuredSpeed> speeds;
  for (const Ran& ran : ran_) {
    const plan::Plan plan = as_planned(ran.plan);
    if (!plan::validate(plan, *solved_.model, machines)) continue;
    auto layout = plan::resolve(plan, machines);
    if (!layout) continue;
    allocations.label(*layout);
    policy::add_speed(speeds, {std::move(*layout), ran.rate});
  }
  return speeds;
}

/// By the coefficients of the job's own GPUs: those of a report on lent ones would explain what
/// went wrong there.
std::optional<Speedup> JobTraining::speedup_of(const Observed& now,
                                               const cluster::Cluster& machines,
                                               const plan::Allocations& allocations) const {
  if (!basic_ || !(basic_->rate > 0)) return std::nullopt;
  const auto profile = read(basic_->profile, machines);
  if (!profile) return std::nullopt;
  const auto solved = solve(*profile, machines, allocations);
  const auto before = plan::resolve(profile->plan, machines);
  auto after = plan::resolve(as_planned(now.plan), machines);
  if (!solved || !before || !after) return std::nullopt;
  allocations.label(*after);
  const perf::PerformanceModel model(*solved->model, machines, *solved->coefficients,
                                     perf::Sends::counted);
  const double slow = samples_of(basic_->plan) / model.iteration_time(*before).total();
  const double fast = samples_of(now.plan) / model.iteration_time(*after).total();
  return Speedup{fast / slow, now.rate / basic_->rate};
}

std::optional<plan::Layout> JobTraining::layout_of(const plan::Plan& plan, const HeldGpus& basic,
                                                   const HeldGpus& held,
                                                   const cluster::Cluster& machines) const {
  const plan::Plan cut = as_planned(plan);
  if (!plan::validate(cut, *solved_.model, machines)) return std::nullopt;
  auto layout = plan::resolve(cut, machines);
  if (!layout) return std::nullopt;
  const HeldGpus used = gpus_of(*layout);
  if (held == basic ? used != held : !is_over(used, basic, held)) return std::nullopt;
  return std::move(*layout);
}

std::optional<plan::Plan> JobTraining::plan_now() const {
  if (told_.plan() && (told_.is_running() || !current_)) return told_.plan();
  return current_ ? std::optional(current_->plan) : std::nullopt;
}

Result<void> JobTraining::check_plan(const plan::Plan& plan, const HeldGpus& basic,
                                     const HeldGpus& held, const cluster::Cluster& machines,
                                     const plan::Allocations& allocations) const {
  if (told_.makes_own_plans())
    return Error("its program was given a plan before, and made its own");
  if (auto good = check_size(plan); !good) return good.error();
  models::Model model;
  model.name = "of the job";
  const plan::Plan& seen = current_ ? current_->plan : plan;
  for (const plan::Stage& stage : seen.stages) model.layers += stage.layers;
  model.mtp_heads = plan::mtp_heads_of(seen);
  for (const plan::Stage& stage : plan.stages) model.heads = std::max(model.heads, stage.tp);
  model.global_batch = static_cast<int>(samples_of(seen));
  if (auto good = plan::validate(plan, model, machines); !good) return good.error();
  const auto layout = plan::resolve(plan, machines);
  if (!layout) return layout.error();
  if (!is_over(gpus_of(*layout), basic, held))
    return Error(
        "it is not over the GPUs that the job has: it must use each that is lent, and no "
        "other's; `swell jobs` shows them");
  for (const plan::StageLayout& stage : layout->stages)
    for (const plan::GroupLayout& group : stage.groups)
      for (plan::GpuMask left = group.gpus; left != 0; left &= left - 1)
        if (allocations.part_of(group.node, std::countr_zero(left)) !=
            allocations.part_of(group.node, std::countr_zero(group.gpus)))
          return Error(fmt::format(
              "its TP group of GPUs on {} is over two allocations of the job, whose programs cannot "
              "open each other's GPUs there (ConstrainDevices=yes in cgroup.conf); a TP group must "
              "be within one",
              machines.node(group.node).name));
  return {};
}

double JobTraining::step_s() const noexcept {
  return current_ && current_->rate > 0 ? samples_of(current_->plan) / current_->rate : 0;
}

std::shared_ptr<const policy::Training> JobTraining::seen(
    const HeldGpus& basic, const HeldGpus& all,
    const std::shared_ptr<const cluster::Cluster>& machines, planner::Consistency consistency,
    const plan::Allocations& allocations) const {
  if (!is_known() || machines == nullptr || basic.empty()) return nullptr;
  if (seen_.is_to(machines, basic, all, allocations, version_, told_.version())) return seen_.get();
  if (solved_.model == nullptr || solved_for_ != machines->types()) {
    const auto profile = read(adopted_, *machines);
    auto solved =
        profile ? solve(*profile, *machines, allocations) : Result<Solved>(profile.error());
    if (!solved) return nullptr;
    solved_ = std::move(*solved);
    solved_for_ = machines->types();
  }
  const int micro_batches = current_ ? current_->plan.micro_batches : 1;
  std::optional<plan::Layout> before, now;
  if (basic_) before = layout_of(basic_->plan, basic, basic, *machines);
  const auto symmetric = [&](const HeldGpus& held) {
    return symmetric_layout(*solved_.model, *solved_.coefficients, held, micro_batches, *machines,
                            allocations);
  };
  if (!before) before = symmetric(basic);
  if (current_ && !told_.is_running()) now = layout_of(current_->plan, basic, all, *machines);
  if (!now && told_.plan()) now = layout_of(*told_.plan(), basic, all, *machines);
  if (!now && all == basic) now = before;
  if (!now) now = symmetric(all);
  if (!before || !now) return nullptr;
  allocations.label(*now);
  auto training = std::make_shared<policy::Training>();
  training->model = solved_.model;
  training->coefficients = policy::corrected(solved_.coefficients, *solved_.model, *machines,
                                             speeds(*machines, allocations));
  training->basic = std::move(*before);
  training->current = std::move(*now);
  training->consistency = consistency;
  const auto takes_chunks = adopted_.bool_at("takes_chunks");
  training->takes_chunks = !told_.makes_own_plans() && takes_chunks && *takes_chunks;
  return seen_.set(std::move(training));
}

Json JobTraining::to_json() const {
  Json json = Json::object({{"adopted", adopted_}, {"own_plans", told_.makes_own_plans()}});
  for (const auto& [key, seen] : {std::pair{"basic", &basic_}, std::pair{"current", &current_}})
    if (*seen)
      json.set(key, Json::object({{"profile", (*seen)->profile},
                                  {"plan", (*seen)->plan.to_json()},
                                  {"rate", (*seen)->rate}}));
  Json ran = Json::array();
  for (const Ran& each : ran_)
    ran.append(Json::object({{"plan", each.plan.to_json()}, {"rate", each.rate}}));
  json.set("ran", std::move(ran));
  if (told_.plan())
    json.set("decided", told_.plan()->to_json()).set("decided_in", told_.generation());
  if (speedup_)
    json.set("speedup",
             Json::object({{"predicted", speedup_->predicted}, {"measured", speedup_->measured}}));
  return json;
}

Result<JobTraining> JobTraining::from_json(const Json& json) {
  if (!is_object(json) || !is_object(json.at("adopted")))
    return Error("\"adopted\" must be a profile");
  JobTraining made;
  made.adopted_ = json.at("adopted");
  const auto own = json.bool_at("own_plans");
  if (!own) return own.error();
  made.told_ = ToldPlan(*own, std::nullopt, 0);
  for (const auto& [key, seen] :
       {std::pair{"basic", &made.basic_}, std::pair{"current", &made.current_}}) {
    if (!json.has(key)) continue;
    const Json from = json.at(key);
    auto plan = plan::Plan::from_json(from.at("plan"));
    if (!plan) return plan.error().while_doing(key);
    const auto rate = from.number_at("rate", 0, 1e18);
    if (!rate) return rate.error().while_doing(key);
    *seen = Observed{from.at("profile"), std::move(*plan), *rate};
  }
  if (json.has("ran")) {
    for (const Json& from : json.at("ran").items()) {
      auto plan = plan::Plan::from_json(from.at("plan"));
      if (!plan) return plan.error().while_doing("ran");
      const auto rate = from.number_at("rate", 0, 1e18);
      if (!rate) return rate.error().while_doing("ran");
      if (made.ran_.size() < policy::MeasuredSpeed::kMax)
        made.ran_.push_back({std::move(*plan), *rate, 0});
    }
  }
  if (json.has("decided")) {
    auto plan = plan::Plan::from_json(json.at("decided"));
    if (!plan) return plan.error().while_doing("decided");
    const auto generation = json.integer_at("decided_in", 0, 1'000'000);
    if (!generation) return generation.error();
    made.told_ = ToldPlan(*own, std::move(*plan), static_cast<int>(*generation));
  }
  if (json.has("speedup")) {
    const auto predicted = json.at("speedup").number_at("predicted", 0, 1e18);
    const auto measured = json.at("speedup").number_at("measured", 0, 1e18);
    if (!predicted || !measured)
      return (!predicted ? predicted : measured).error().while_doing("speedup");
    made.speedup_ = Speedup{*predicted, *measured};
  }
  made.version_.change();
  return made;
}

}  // namespace swell::controller
