// SPDX-License-Identifier: GPL-2.0-or-later
// Any submission, as lines MEMBER=VALUE that change what swellrun submits on a grant (or, behind a
// line "other", an empty submission): nobody gets more than the grant, or to the companions' place
// without one, who consents to fewer GPUs asks for these, and no number overflows.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "control/tag.h"
#include "controller/admission.h"
#include "core/number.h"
#include "core/slurm_text/gres.h"

namespace {

using namespace swell::controller;

void check(bool holds) {
  if (!holds) std::abort();
}

const ExpansionPlace place{"expansion", ""};

LiveGrant grant() {
  LiveGrant made;
  made.parent = 10;
  made.uid = 1000;
  made.expires = 100;
  made.offer.nonce = "n1";
  made.offer.name = "swell-10";
  made.offer.node = "node2";
  made.offer.partition = "train";
  made.offer.account = "lab";
  made.offer.gpu_type = "h100";
  made.offer.gpus = made.offer.workers = 4;
  made.offer.cpus = 32;
  made.offer.memory_mib = 4000;
  made.offer.time_limit_min = 60;
  return made;
}

SubmitRequest companion() {
  SubmitRequest request;
  request.uid = 1000;
  request.name = "swell-10";
  request.comment = "swell-grant=n1";
  request.partition = "train";
  request.account = "lab";
  request.required_nodes = "node2";
  request.tres_per_node = "gres:gpu:h100:4";
  request.min_nodes = request.max_nodes = 1;
  request.tasks = 4;
  request.cpus_per_task = 8;
  request.memory_mib_per_node = 4000;
  request.time_limit_min = 60;
  request.immediate = true;
  return request;
}

/// Checks that none of Slurm's unsigned numbers becomes negative.
template <typename Number>
void set(Number& member, std::string_view value) {
  if (const auto read = swell::read_whole<Number>(value)) member = *read;
}

/// Members that nothing but a companion's admission looks at.
template <typename Request>
void change_more(Request& request, std::string_view name, std::string_view value) {
  if constexpr (requires { request.beyond_an_offer; })
    if (name == "beyond_an_offer") request.beyond_an_offer = value;
  if constexpr (requires { request.min_cpus_per_node; })
    if (name == "min_cpus_per_node") set(request.min_cpus_per_node, value);
  if constexpr (requires { request.all_memory; })
    if (name == "all_memory") request.all_memory = value == "1";
}
template <typename Request>
bool asks_for_more(const Request& request, const swell::control::Offer& offer) {
  bool more = false;
  if constexpr (requires { request.beyond_an_offer; })
    more = more || !request.beyond_an_offer.empty();
  if constexpr (requires { request.min_cpus_per_node; })
    more = more || request.min_cpus_per_node > offer.cpus;
  if constexpr (requires { request.all_memory; }) more = more || request.all_memory;
  return more;
}

void change(SubmitRequest& request, std::string_view name, std::string_view value) {
  if (name == "other") request = {};
  for (auto [key, member] : {std::pair{"name", &request.name},
                             {"comment", &request.comment},
                             {"admin_comment", &request.admin_comment},
                             {"partition", &request.partition},
                             {"account", &request.account},
                             {"qos", &request.qos},
                             {"required_nodes", &request.required_nodes},
                             {"tres_per_node", &request.tres_per_node},
                             {"tres_per_job", &request.tres_per_job},
                             {"tres_per_task", &request.tres_per_task},
                             {"tres_per_socket", &request.tres_per_socket}})
    if (name == key) *member = value;
  for (auto [key, member] : {std::pair{"min_nodes", &request.min_nodes},
                             {"max_nodes", &request.max_nodes},
                             {"tasks", &request.tasks},
                             {"tasks_per_node", &request.tasks_per_node},
                             {"sockets_per_node", &request.sockets_per_node},
                             {"min_cpus", &request.min_cpus},
                             {"cpus_per_task", &request.cpus_per_task}})
    if (name == key) set(*member, value);
  for (auto [key, member] : {std::pair{"memory_mib_per_node", &request.memory_mib_per_node},
                             {"memory_mib_per_cpu", &request.memory_mib_per_cpu},
                             {"time_limit_min", &request.time_limit_min}})
    if (name == key) set(*member, value);
  for (auto [key, member] : {std::pair{"immediate", &request.immediate},
                             {"has_script", &request.has_script},
                             {"is_array", &request.is_array},
                             {"is_het_component", &request.is_het_component}})
    if (name == key) *member = value == "1";
  change_more(request, name, value);
  if (name == "uid") set(request.uid, value);
  if (name == "elastic") request.elastic = value;
}

SubmitRequest request_of(std::string_view text) {
  SubmitRequest request = companion();
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string_view name = line.substr(0, line.find('='));
    change(request, name, line.substr(std::min(line.size(), name.size() + 1)));
  }
  return request;
}

/// GPUs that it could get in all, however it asks for them.
std::int64_t gpus_of(const SubmitRequest& request) {
  std::int64_t sum = 0;
  for (const std::string* list : {&request.tres_per_node, &request.tres_per_job,
                                  &request.tres_per_task, &request.tres_per_socket})
    for (const auto& each : swell::slurm_text::parse_gpus(*list)) sum += each.count;
  return sum * std::max<std::int64_t>({request.min_nodes, request.max_nodes, 1});
}

void within_the_grant(const SubmitRequest& request) {
  const swell::control::Offer offer = grant().offer;
  // A site's plugin may write around it.
  check(request.comment.find("swell-grant=n1") != std::string::npos);
  check(request.uid == grant().uid && request.name == offer.name);
  check(gpus_of(request) == offer.gpus &&
        swell::slurm_text::sum_gpus(request.tres_per_node).type == offer.gpu_type);
  check(request.required_nodes == offer.node && request.partition == offer.partition &&
        request.account == offer.account);
  check(std::int64_t{std::max(request.tasks, 1)} * std::max(request.cpus_per_task, 1) <=
        offer.cpus);
  check(request.min_cpus <= offer.cpus && !asks_for_more(request, offer));
  check(request.memory_mib_per_cpu == 0 && request.memory_mib_per_node <= offer.memory_mib);
  check(request.time_limit_min > 0 && request.time_limit_min <= offer.time_limit_min);
  check(request.immediate && !request.has_script && !request.is_array && !request.is_het_component);
}

void lower_to(std::string& list, const std::optional<std::string>& to) {
  using swell::slurm_text::sum_gpus;
  check(!to || (sum_gpus(*to).count > 0 && sum_gpus(*to).count <= sum_gpus(list).count));
  if (to) list = *to;
}

template <typename Number>
void lower_to(Number& member, const std::optional<Number>& to) {
  check(!to || (*to > 0 && *to <= member));
  if (to) member = *to;
}

/// Where requests are lowered, one that is asks for its min in all, and for no more of anything.
void is_lowered_well(const SubmitRequest& request, const Admission& admission) {
  const LoweredRequest& to = admission.lowered;
  const auto tag =
      swell::control::Tag::find(admission.admin_comment.value_or(request.admin_comment));
  const auto wanted = tag ? tag->number("wanted") : std::nullopt;
  if (!wanted) return check(!to.tres_per_node && !to.tres_per_job && !to.nodes && !to.tasks);
  SubmitRequest after = request;
  lower_to(after.tres_per_node, to.tres_per_node);
  lower_to(after.tres_per_job, to.tres_per_job);
  after.min_nodes = std::max(after.min_nodes, 1);
  lower_to(after.min_nodes, to.nodes);
  if (after.max_nodes > 0 && to.nodes) after.max_nodes = *to.nodes;
  lower_to(after.tasks, to.tasks);
  lower_to(after.tasks_per_node, to.tasks_per_node);
  lower_to(after.min_cpus, to.min_cpus);
  lower_to(after.min_cpus_per_node, to.min_cpus_per_node);
  lower_to(after.memory_mib_per_node, to.memory_mib_per_node);
  check(*wanted == basic_gpus_of(request) && *wanted > basic_gpus_of(after));
  check(tag->number("basic") == basic_gpus_of(after));
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const SubmitRequest request = request_of({reinterpret_cast<const char*>(data), size});
  check(basic_gpus_of(request) >= 0);
  GrantBook book;
  book.add(grant());
  const auto admission = admit(request, place, book, 50);
  if (!admission) {
    check(!admission.error().message().empty());
    return 0;
  }
  if (admission->is_companion) {
    within_the_grant(request);
    check(admission->qos == place.qos);
    const auto tag = swell::control::Tag::find(admission->admin_comment.value());
    check(tag && tag->number("parent") == 10 && tag->get("grant") == "n1");
    check(!admit(request, place, book, 50).ok());  // used once
    return 0;
  }
  check(admission->qos.empty() && admission->partition.empty());
  check(!request.comment.starts_with("swell-grant=") &&
        ("," + lower(request.qos) + ",").find("," + place.qos + ",") == std::string::npos);
  const auto tag =
      swell::control::Tag::find(admission->admin_comment.value_or(request.admin_comment));
  check(!tag || (request.elastic && tag->get("parent").empty() &&
                 tag->number("basic") == basic_gpus_of(request)));
  check(!request.elastic || (tag && basic_gpus_of(request) >= 1));
  const auto with_consent = admit(request, place, book, 50, true);
  if (with_consent) is_lowered_well(request, *with_consent);
  else check(!with_consent.error().message().empty());
  return 0;
}
