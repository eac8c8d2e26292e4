// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/admission.h"

#include <algorithm>
#include <fmt/format.h>

#include "control/elastic_spec.h"
#include "control/tag.h"
#include "core/slurm_text/gres.h"

namespace swell::controller {

namespace {

Error refused(const std::string& why) { return Error("a Swell companion was refused: " + why); }

/// Does the submission want to be taken for a companion? Its QOS or partition is reserved for them.
bool claims_to_be_companion(const SubmitRequest& request, const ExpansionPlace& place) {
  return request.comment.starts_with(grant_comment) || (!place.qos.empty() && request.qos == place.qos) ||
         (!place.partition.empty() && request.partition == place.partition);
}

std::int64_t memory_of(const SubmitRequest& request, int cpus) {
  return std::max(request.memory_mib_per_node, request.memory_mib_per_cpu * cpus);
}

/// Compares a companion with what was offered; the error names the first difference.
Result<void> as_offered(const SubmitRequest& request, const control::Offer& offer) {
  auto differs = [](const char* what, const auto& asked, const auto& offered) {
    return refused(fmt::format("{}: it asks for {}, the grant is for {}", what, asked, offered));
  };
  const slurm_text::GpuRequest gpus = slurm_text::sum_gpus(request.tres_per_node);
  if (request.has_script || request.is_array || request.is_het_component || !request.immediate)
    return refused("it must be an immediate allocation without a script, as swellrun makes it");
  if (request.required_nodes != offer.node) return differs("node", request.required_nodes, offer.node);
  if (request.min_nodes != 1 || request.max_nodes > 1) return differs("nodes", request.min_nodes, 1);
  if (gpus.count != offer.gpus) return differs("GPUs", gpus.count, offer.gpus);
  if (gpus.type != offer.gpu_type) return differs("GPU type", gpus.type, offer.gpu_type);
  if (!request.tres_per_job.empty() || !request.tres_per_task.empty() || !request.tres_per_socket.empty())
    return refused("it must ask for GPUs with --gres only");
  const int cpus = std::max(request.min_cpus, std::max(request.tasks, 1) * std::max(request.cpus_per_task, 1));
  if (cpus > offer.cpus) return differs("CPUs", cpus, offer.cpus);
  const std::int64_t memory = memory_of(request, cpus);
  if (offer.memory_mib > 0 && memory > offer.memory_mib) return differs("MiB of memory", memory, offer.memory_mib);
  if (offer.time_limit_min > 0 && (request.time_limit_min == 0 || request.time_limit_min > offer.time_limit_min))
    return differs("minutes", request.time_limit_min, offer.time_limit_min);
  if (request.name != offer.name) return differs("name", request.name, offer.name);
  return {};
}

Result<Admission> admit_companion(const SubmitRequest& request, const ExpansionPlace& place, GrantBook& book,
                                  double now) {
  if (!request.comment.starts_with(grant_comment))
    return refused(fmt::format("the {} \"{}\" is for companions, which swellrun creates on a grant",
                               place.qos.empty() ? "partition" : "QOS", place.qos.empty() ? place.partition : place.qos));
  const std::string nonce = request.comment.substr(std::string_view(grant_comment).size());
  const Result<LiveGrant> grant = book.use(nonce, request.uid, now);
  if (!grant) return refused(grant.error().message());
  if (const Result<void> same = as_offered(request, grant->offer); !same) {
    book.withdraw(nonce);
    return same.error();
  }
  Admission admission;
  admission.is_companion = true;
  admission.qos = place.qos;
  admission.partition = place.partition;
  admission.admin_comment = control::Tag{{"parent", std::to_string(grant->parent)}, {"grant", nonce}}.text();
  return admission;
}

}  // namespace

int basic_gpus_of(const SubmitRequest& request) {
  if (const int in_all = slurm_text::sum_gpus(request.tres_per_job).count; in_all > 0) return in_all;
  const int nodes = std::max(request.min_nodes, 1);
  if (const int per_task = slurm_text::sum_gpus(request.tres_per_task).count; per_task > 0)
    return per_task * std::max(request.tasks, 1);
  if (const int per_socket = slurm_text::sum_gpus(request.tres_per_socket).count; per_socket > 0)
    return per_socket * std::max(request.sockets_per_node, 1) * nodes;
  return slurm_text::sum_gpus(request.tres_per_node).count * nodes;
}

Result<Admission> admit(const SubmitRequest& request, const ExpansionPlace& place, GrantBook& book, double now) {
  if (claims_to_be_companion(request, place)) return admit_companion(request, place, book, now);

  Admission admission;
  // Nobody but Swell writes a tag.
  const std::string comment = control::Tag::remove_from(request.admin_comment);
  if (comment != request.admin_comment) admission.admin_comment = comment;
  if (!request.elastic) return admission;

  const Result<control::ElasticSpec> spec = control::ElasticSpec::parse(*request.elastic);
  if (!spec) return spec.error();
  if (request.is_het_component)
    return Error("--elastic: a heterogeneous job cannot be elastic; submit its parts as jobs of their own");
  const int basic = basic_gpus_of(request);
  if (const Result<void> fits = spec->check_basic(basic); !fits) return fits.error();
  const control::Tag tag{{"elastic", spec->text()},
                         {"basic", std::to_string(basic)},
                         {"lent", "0"},
                         {"state", to_text(control::JobState::allocated)}};
  admission.admin_comment = tag.put_into(comment);
  return admission;
}

}  // namespace swell::controller
