// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/admission.h"

#include <algorithm>
#include <fmt/format.h>

#include "control/elastic_spec.h"
#include "control/speed_table.h"
#include "control/tag.h"
#include "controller/lowering.h"
#include "controller/type_choice.h"
#include "core/count_of.h"
#include "core/saturating.h"
#include "core/slurm_text/gres.h"

namespace swell::controller {

namespace {

Error refused(const std::string& why) { return Error("a Swell companion was refused: " + why); }

/// Does the submission want to be taken for a companion? Its QOS or partition is reserved for them.
bool claims_to_be_companion(const SubmitRequest& request, const ExpansionPlace& place) {
  return grant_in(request.comment) || place.named_in(request.qos, request.partition);
}

/// Returns whether the submission looks like the companion that `grant` is for, whatever its
/// comment says: salloc's as swellrun calls it, under the companion's name, or for the very GPUs at
/// once.
bool looks_like(const SubmitRequest& request, const LiveGrant& grant) {
  if (request.uid != grant.uid || request.has_script || request.is_array ||
      request.is_het_component)
    return false;
  const control::Offer& offer = grant.offer;
  if (request.name == offer.name) return true;
  const std::vector<slurm_text::GpuRequest> gpus = slurm_text::parse_gpus(request.tres_per_node);
  return request.immediate && request.required_nodes == offer.node && request.min_nodes == 1 &&
         gpus.size() == 1 && gpus[0].count == offer.gpus && gpus[0].type == offer.gpu_type;
}

/// Refuses a companion whose grant another plugin took from its comment: as an ordinary job nobody
/// would take its GPUs back.
Result<void> check_has_grant(const SubmitRequest& request, const GrantBook& book) {
  for (const LiveGrant& grant : book.outstanding())
    if (!grant.used && looks_like(request, grant)) return refused(kGrantTaken);
  return {};
}

std::string described(const ExpansionPlace& place) {
  return place.qos.empty() ? fmt::format("partition \"{}\"", place.partition)
                           : fmt::format("QOS \"{}\"", place.qos);
}

/// Compares a companion with what was offered; the error names the first difference. The other
/// members must be as Slurm's own clients leave them: `beyond_an_offer` names one that is not.
Result<void> as_offered(const SubmitRequest& request, const control::Offer& offer,
                        const ExpansionPlace& place) {
  auto differs = [](const char* what, const auto& asked, const auto& offered) {
    return refused(fmt::format("{}: it asks for {}, the grant is for {}", what, asked, offered));
  };
  auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  if (request.has_script || request.is_array || request.is_het_component || !request.immediate)
    return refused("it must be an immediate allocation without a script, as swellrun makes it");
  if (!request.beyond_an_offer.empty())
    return refused(
        fmt::format("it asks for what no grant has ({}); it must be as swellrun makes it",
                    request.beyond_an_offer));
  if (request.required_nodes != offer.node)
    return differs("node", request.required_nodes, offer.node);
  if (request.min_nodes != 1 || request.max_nodes != 1)
    return differs("nodes", fmt::format("{}-{}", request.min_nodes, request.max_nodes), 1);
  const std::vector<slurm_text::GpuRequest> lists = slurm_text::parse_gpus(request.tres_per_node);
  if (lists.size() != 1 || request.tres_per_node.find(',') != std::string::npos)
    return differs("GRES", quoted(request.tres_per_node),
                   fmt::format("{} of one kind", count_of(offer.gpus, "GPU")));
  if (lists[0].count != offer.gpus) return differs("GPUs", lists[0].count, offer.gpus);
  if (lists[0].type != offer.gpu_type) return differs("GPU type", lists[0].type, offer.gpu_type);
  if (!request.tres_per_job.empty() || !request.tres_per_task.empty() ||
      !request.tres_per_socket.empty())
    return refused("it must ask for GPUs with --gres only");
  const std::int64_t in_tasks =
      saturating_product(std::max(request.tasks, 1), std::max(request.cpus_per_task, 1));
  const std::int64_t cpus =
      std::max({in_tasks, std::int64_t{request.min_cpus}, std::int64_t{request.min_cpus_per_node}});
  if (cpus > offer.cpus) return differs("CPUs", cpus, offer.cpus);
  if (request.all_memory)
    return differs("memory", "all of the node's", fmt::format("{} MiB", offer.memory_mib));
  if (request.memory_mib_per_cpu != 0) return refused("it must ask for memory with --mem only");
  if (request.memory_mib_per_node != offer.memory_mib)
    return differs("MiB of memory", request.memory_mib_per_node, offer.memory_mib);
  if (offer.time_limit_min > 0 &&
      (request.time_limit_min == 0 || request.time_limit_min > offer.time_limit_min))
    return differs("minutes", request.time_limit_min, offer.time_limit_min);
  if (request.partition != offer.partition)
    return differs("partition", quoted(request.partition), quoted(offer.partition));
  if (request.account != offer.account)
    return differs("account", quoted(request.account), quoted(offer.account));
  // The QOS of the place replaces any other, as one from a site's plugin or the environment.
  if (!request.qos.empty() && place.qos.empty())
    return differs("QOS", quoted(request.qos), quoted(place.qos));
  if (request.name != offer.name) return differs("name", request.name, offer.name);
  return {};
}

Result<Admission> admit_companion(const SubmitRequest& request, const ExpansionPlace& place,
                                  GrantBook& book, double now) {
  const std::optional<std::string> nonce = grant_in(request.comment);
  if (!nonce) {
    if (const Result<void> has_grant = check_has_grant(request, book); !has_grant)
      return has_grant.error();
    return refused(fmt::format("the {} is for companions, which swellrun creates on a grant",
                               described(place)));
  }
  const Result<LiveGrant> grant = book.use(*nonce, request.uid, now);
  if (!grant) return refused(grant.error().message());
  if (const Result<void> same = as_offered(request, grant->offer, place); !same) {
    book.refuse(*nonce);
    return Error(same.error().message() +
                 " (where a plugin of job_submit changed it: put swell first in JobSubmitPlugins)");
  }
  Admission admission;
  admission.is_companion = true;
  admission.qos = place.qos;
  admission.partition = place.partition;
  admission.admin_comment =
      control::Tag{{"parent", std::to_string(grant->parent)}, {"grant", *nonce}}.text();
  return admission;
}

/// Checks what table= sent along, and the deadline against it.
Result<void> check_table(const control::ElasticSpec& spec, const SubmitRequest& request,
                         int basic_gpus, const std::set<std::string>& gpu_types) {
  if (spec.table.empty()) return {};
  if (!request.speeds)
    return Error(fmt::format(
        "--elastic: table={} was not read; submit with sbatch, salloc or srun where Swell's plugin is in plugstack.conf",
        spec.table));
  const auto table = control::SpeedTable::parse(*request.speeds);
  if (!table) return table.error().while_doing("--elastic");
  std::string type;
  for (const std::string* list : {&request.tres_per_job, &request.tres_per_node,
                                  &request.tres_per_task, &request.tres_per_socket})
    if (type.empty()) type = slurm_text::sum_gpus(*list).type;
  return check_deadline(spec, *table, type, basic_gpus, request.submitted, gpu_types);
}

}  // namespace

int basic_gpus_of(const SubmitRequest& request) {
  if (const int in_all = slurm_text::sum_gpus(request.tres_per_job).count; in_all > 0)
    return in_all;
  const int nodes = std::max(request.min_nodes, 1);
  if (const int per_task = slurm_text::sum_gpus(request.tres_per_task).count; per_task > 0)
    return saturated_int(saturating_product(per_task, std::max(request.tasks, 1)));
  if (const int per_socket = slurm_text::sum_gpus(request.tres_per_socket).count; per_socket > 0)
    return saturated_int(saturating_product(
        saturating_product(per_socket, std::max(request.sockets_per_node, 1)), nodes));
  return saturated_int(
      saturating_product(slurm_text::sum_gpus(request.tres_per_node).count, nodes));
}

Result<void> check_requeue(const SubmitRequest& request, bool by_default) {
  if (!request.elastic) return {};
  const auto spec = control::ElasticSpec::parse(*request.elastic);
  if (!spec || !spec->switches_type) return {};
  if (!request.has_script)
    return Error("--elastic: switch=requeue is for jobs of sbatch, since Slurm requeues no others");
  if (!request.may_requeue.value_or(by_default))
    return Error(fmt::format(
        "--elastic: switch=requeue needs a job that Slurm may requeue; {}",
        request.may_requeue
            ? "leave --no-requeue out"
            : "add --requeue, since this site requeues none by default (JobRequeue=0)"));
  return {};
}

Result<void> check_change(const ChangeRequest& request, const ExpansionPlace& place,
                          const GrantBook& book) {
  if (request.by_slurm_or_root) return {};
  for (const JobId job : request.jobs)
    if (book.companions().contains(job))
      return Error(fmt::format("job {} is lent by Swell: it can be cancelled, not changed", job));
  // Its id is not known before Slurm's records have shown it, which takes a moment.
  if (book.has_unseen_companion_of(request.uid))
    return Error("Swell is just lending GPUs to a job of yours: try again in a second");
  if (place.named_in(request.qos, request.partition))
    return Error(fmt::format("the {} is for companions of elastic jobs, which swellrun creates",
                             described(place)));
  if (grant_in(request.comment))
    return Error(fmt::format("a comment that contains \"{}\" is for companions of elastic jobs",
                             kGrantComment));
  if (request.admin_comment &&
      control::Tag::remove_from(*request.admin_comment) != *request.admin_comment)
    return Error("what stands between swell[ and ] in AdminComment is written by Swell alone");
  return {};
}

Result<Admission> admit(const SubmitRequest& request, const ExpansionPlace& place, GrantBook& book,
                        double now, bool lowers, const std::set<std::string>& gpu_types) {
  if (claims_to_be_companion(request, place)) return admit_companion(request, place, book, now);
  if (const Result<void> has_grant = check_has_grant(request, book); !has_grant)
    return has_grant.error();

  Admission admission;
  // Nobody but Swell writes a tag.
  const std::string comment = control::Tag::remove_from(request.admin_comment);
  if (comment != request.admin_comment) admission.admin_comment = comment;
  if (!request.elastic) return admission;

  Result<control::ElasticSpec> spec = control::ElasticSpec::parse(*request.elastic);
  if (!spec) return spec.error();
  if (spec->deadline && request.submitted != 0) {
    // Stores a time, not a duration: a requeue changes the time of submission, not the deadline.
    spec->deadline = spec->deadline->from(request.submitted);
    if (spec->deadline->at <= request.submitted)
      return Error(fmt::format("--elastic: deadline={} has passed; give a later time",
                               spec->deadline->text()));
  }
  if (request.is_het_component)
    return Error(
        "--elastic: a heterogeneous job cannot be elastic; submit its parts as jobs of their own");
  const int basic = basic_gpus_of(request);
  if (const Result<void> fits = spec->check_basic(basic); !fits) return fits.error();
  if (const Result<void> good = check_table(*spec, request, basic, gpu_types); !good)
    return good.error();
  const bool is_lowered = lowers && spec->min_gpus && *spec->min_gpus < basic;
  if (is_lowered) {
    auto lowered = lower(request, basic, *spec->min_gpus);
    if (!lowered) return lowered.error();
    admission.lowered = std::move(*lowered);
    admission.notice = fmt::format(
        "--elastic: submitted for {} of its {}; the others are lent to it before any job is lent more than it asked for",
        *spec->min_gpus, count_of(basic, "GPU"));
  } else if (spec->min_gpus && *spec->min_gpus < basic) {
    admission.notice = fmt::format(
        "--elastic: min={} is not used, the job waits for all of its {}: Swell lends nothing now (it starts, or is drained), or this site lowers no requests (LowerRequests of swell.conf)",
        *spec->min_gpus, count_of(basic, "GPU"));
  }
  control::Tag tag{{"elastic", spec->text()},
                   {"basic", std::to_string(is_lowered ? *spec->min_gpus : basic)}};
  if (is_lowered) tag.set("wanted", std::to_string(basic));
  tag.set("lent", "0");
  tag.set("state", to_text(control::JobState::allocated));
  if (!spec->table.empty()) tag.set("speeds", *request.speeds);
  admission.admin_comment = tag.put_into(comment);
  return admission;
}

}  // namespace swell::controller
