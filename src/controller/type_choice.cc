// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/type_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "control/tag.h"
#include "core/count_of.h"
#include "core/slurm_text/gres.h"

namespace swell::controller {

namespace {

/// Starts that are closer together count as one.
constexpr double kSameStart_s = 60;
/// Minimum gain for which a waiting job moves.
constexpr double kLeastGain_s = 60, kLeastShare = 0.05;

/// Samples that the job makes in all; nothing: not known.
std::optional<double> samples_of(const slurm::JobRecord& job, const control::ElasticSpec& spec,
                                 const control::SpeedTable& table,
                                 const std::vector<TypeOffer>& offers) {
  if (spec.steps > 0) return static_cast<double>(spec.steps) * table.samples_per_step;
  if (job.time_limit_min == 0) return std::nullopt;
  // The time limit is meant for the type that was asked for, or for any.
  double slowest = 0;
  for (const TypeOffer& offer : offers) {
    if (offer.type == type_asked_by(job)) {
      slowest = offer.samples_per_s;
      break;
    }
    slowest = slowest == 0 ? offer.samples_per_s : std::min(slowest, offer.samples_per_s);
  }
  return 60.0 * job.time_limit_min * slowest;
}

bool is_better(const TypeOffer& one, const TypeOffer& other) noexcept {
  if (one.end_s && other.end_s) return *one.end_s < *other.end_s;
  if (std::abs(one.start_s - other.start_s) > kSameStart_s) return one.start_s < other.start_s;
  return one.samples_per_s > other.samples_per_s;
}

std::string text_of(std::time_t at) { return control::Deadline{0, at}.text(); }

/// A submission as the queue would show it.
slurm::JobRecord record_of(const SubmitRequest& request, int basic_gpus) {
  slurm::JobRecord job;
  job.phase = slurm::JobPhase::pending;
  job.partition = request.partition;
  job.min_nodes = std::max(request.min_nodes, 1);
  job.min_cpus_per_node = request.min_cpus_per_node;
  job.min_memory_mib_per_node = request.memory_mib_per_node;
  job.time_limit_min =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(request.time_limit_min, 0, 0x7fffffff));
  job.features = request.features;
  job.excluded_nodes = request.excluded_nodes;
  job.required_nodes = request.required_nodes;
  job.gpus_in_all = slurm_text::sum_gpus(request.tres_per_job);
  job.gpus_per_node = slurm_text::sum_gpus(request.tres_per_node);
  job.gpus_by_task_or_socket = slurm_text::sum_gpus(request.tres_per_task).count > 0 ||
                               slurm_text::sum_gpus(request.tres_per_socket).count > 0;
  // With min= it is submitted for fewer: on fewer nodes, or for fewer on its only one.
  if (job.gpus_in_all.count > 0) job.gpus_in_all.count = basic_gpus;
  else if (job.gpus_per_node.count > 0 && job.min_nodes == 1) job.gpus_per_node.count = basic_gpus;
  else if (job.gpus_per_node.count > 0)
    job.min_nodes = std::max(basic_gpus / job.gpus_per_node.count, 1);
  return job;
}

}  // namespace

std::string duration_words(double seconds) {
  if (seconds >= 3600) return fmt::format("{:.3g} h", seconds / 3600);
  if (seconds >= 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} s", std::max(seconds, 0.0));
}

std::string TypeChoice::words(int gpus) const {
  std::string all;
  for (const TypeOffer& offer : offers) {
    all +=
        fmt::format("{}{} {}: {}", all.empty() ? "" : "; ", gpus, offer.type,
                    offer.start_s < 1 ? "idle now" : "starts in " + duration_words(offer.start_s));
    if (offer.end_s) all += ", done in " + duration_words(*offer.end_s);
    else all += fmt::format(", {:.4g} samples/s", offer.samples_per_s);
  }
  return all;
}

Result<TypeChoice> choose_type(const slurm::JobRecord& job, const control::ElasticSpec& spec,
                               const control::SpeedTable& table, GpuQueue& queue) {
  const int gpus = gpus_asked_by(job);
  const std::string& asked = type_asked_by(job);
  if (gpus == 0)
    return Error(
        "its type stays as it is: only GPUs of --gres, --gpus-per-node and --gpus change their type");
  if (job.gpus_by_task_or_socket)
    return Error("its type stays as it is: it asks for GPUs of each task or socket");
  if (!job.required_nodes.empty())
    return Error("its type stays as it is, since --nodelist names its nodes");
  std::vector<std::string> types = spec.types;
  if (!asked.empty() && std::find(types.begin(), types.end(), asked) == types.end())
    types.insert(types.begin(), asked);
  TypeChoice choice;
  std::string lacking;
  for (const std::string& type : types) {
    const auto speed = table.speed(type, gpus);
    if (!speed) {
      lacking += (lacking.empty() ? "" : "/") + type;
      continue;
    }
    if (const auto start_s = queue.start_of(job, type))
      choice.offers.push_back({type, *start_s, *speed, std::nullopt, table.source_of(type)});
  }
  const auto is_asked = [&](const TypeOffer& offer) { return offer.type == asked; };
  if (!asked.empty() && !table.speed(asked, gpus))
    return Error(fmt::format(
        "its type stays {}: its table has no speed of that type with {}; add it to the table",
        asked, count_of(gpus, "GPU")));
  if (choice.offers.empty())
    return Error(
        lacking.empty()
            ? fmt::format("its type stays as it is: no nodes with {} of {} can run it",
                          count_of(gpus, "GPU"), fmt::join(types, "/"))
            : fmt::format(
                  "its type stays as it is: its table has no speed of {} with {}; add it to the "
                  "table",
                  lacking, count_of(gpus, "GPU")));
  if (const auto samples = samples_of(job, spec, table, choice.offers))
    for (TypeOffer& offer : choice.offers)
      offer.end_s = offer.start_s + *samples / offer.samples_per_s;
  // Equal ones stay in the order in which the user named them, the one asked for first.
  std::stable_partition(choice.offers.begin(), choice.offers.end(), is_asked);
  std::stable_sort(choice.offers.begin(), choice.offers.end(), is_better);
  const auto current = std::find_if(choice.offers.begin(), choice.offers.end(), is_asked);
  if (current == choice.offers.end()) choice.gain_s = GpuQueue::kForever_s;
  else if (choice.best().end_s) choice.gain_s = *current->end_s - *choice.best().end_s;
  else choice.gain_s = current->start_s - choice.best().start_s;
  return choice;
}

bool pays_to_move(const TypeChoice& choice) noexcept {
  const double end_s = choice.best().end_s.value_or(choice.best().start_s);
  return choice.gain_s >= std::max(kLeastGain_s, kLeastShare * end_s);
}

void choose_type(const SubmitRequest& request, Admission& admission, GpuQueue& queue) {
  if (!request.speeds || !admission.admin_comment) return;
  const auto spec = control::ElasticSpec::parse(*request.elastic);
  const auto table = control::SpeedTable::parse(*request.speeds);
  auto tag = control::Tag::find(*admission.admin_comment);
  if (!spec || !table || !tag || spec->types.empty() || spec->table.empty()) return;
  const auto say = [&](const std::string& words) {
    admission.notice += fmt::format("{}--elastic: {}", admission.notice.empty() ? "" : "\n", words);
    tag->set("chosen", control::as_word(words));
    admission.admin_comment = tag->put_into(*admission.admin_comment);
  };
  const auto basic = static_cast<int>(tag->number("basic").value_or(0));
  slurm::JobRecord job = record_of(request, basic);
  const auto choice = choose_type(job, *spec, *table, queue);
  if (!choice) return say(choice.error().message());
  const std::string& type = choice->best().type;
  LoweredRequest& to = admission.lowered;
  const auto typed =
      slurm_text::with_gpu_type_in_both({to.tres_per_job.value_or(request.tres_per_job),
                                         to.tres_per_node.value_or(request.tres_per_node)},
                                        type);
  if (!typed) return say("its type stays as it is: it asks for GPUs of several types");
  if (!typed->in_all.empty()) to.tres_per_job = typed->in_all;
  if (!typed->per_node.empty()) to.tres_per_node = typed->per_node;
  queue.place(
      job, type,
      choice->best().end_s ? *choice->best().end_s - choice->best().start_s : GpuQueue::kForever_s);
  say(fmt::format("{}: {} on {}", choice->words(basic),
                  choice->best().start_s < 1 ? "starts" : "waits", type));
}

Result<void> check_deadline(const control::ElasticSpec& spec, const control::SpeedTable& table,
                            const std::string& type, int basic_gpus, std::time_t now,
                            const std::set<std::string>& gpu_types) {
  if (!spec.deadline || spec.steps == 0) return {};
  std::vector<std::string> types = spec.types;
  if (!type.empty()) types.push_back(type);
  if (types.empty()) {
    types.assign(gpu_types.begin(), gpu_types.end());
  } else if (!gpu_types.empty()) {
    std::erase_if(types, [&](const std::string& each) { return !gpu_types.contains(each); });
    if (types.empty()) return {};  // Slurm refuses the job
  }
  const int max = spec.max_total(basic_gpus, true);
  const control::SpeedTable::Row* row = table.fastest(types, max);
  if (row == nullptr) return {};  // nothing is known of what it may have
  const double takes_s =
      static_cast<double>(spec.steps) * table.samples_per_step / row->samples_per_s;
  const std::time_t at = spec.deadline->from(now).at;
  if (static_cast<double>(now) + takes_s <= static_cast<double>(at)) return {};
  const auto end =
      now + static_cast<std::time_t>(std::min(takes_s, 100.0 * GpuQueue::kForever_s)) + 1;
  return Error(fmt::format(
      "--elastic: deadline={} cannot be kept: {} {} take {}, so that it ends at {} at the earliest; give "
      "a later deadline, fewer steps= or more max= and types=",
      text_of(at), row->gpus, row->type, duration_words(takes_s), text_of(end)));
}

}  // namespace swell::controller
