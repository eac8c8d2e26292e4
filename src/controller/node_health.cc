// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/node_health.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "core/number.h"

namespace swell::controller {

namespace {

constexpr std::size_t kMaxFailuresOfUser = 2;  // on one node
constexpr std::size_t kMaxFailures = 32;       // on one node
constexpr std::size_t kMaxUsers = 1000;  // maximum number of users from whom one node is withheld
constexpr std::size_t kMaxShown = 100;   // nodes, to people
constexpr std::size_t kMaxNodes = 100'000;  // in a state file
constexpr std::size_t kShare = 4;           // one node in this number

constexpr std::int64_t kMaxTime = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::int64_t kMaxUid = std::numeric_limits<uid_t>::max();

}  // namespace

/// Returns whether the node may be lent again.
bool NodeHealth::forget(Node& node, std::time_t now, std::time_t kept_s) {
  // A time that is far ahead was written by a clock that was wrong.
  const auto is_over = [=](std::time_t until) { return until <= now || until > now + kept_s; };
  std::erase_if(node.failures,
                [=](const Failure& each) { return each.at + kept_s <= now || each.at > now; });
  const bool ends = node.until != 0 && is_over(node.until);
  if (ends) node.until = 0, node.by_one.reset();
  return std::erase_if(node.until_for, [&](const auto& each) { return is_over(each.second); }) >
             0 ||
         ends;
}

bool NodeHealth::pass(std::time_t now, double withhold_s) {
  const auto kept_s = static_cast<std::time_t>(withhold_s);
  bool is_back = false;
  for (auto each = nodes_.begin(); each != nodes_.end();) {
    is_back = forget(each->second, now, kept_s) || is_back;
    const Node& node = each->second;
    each = node.failures.empty() && node.until == 0 && node.until_for.empty() ? nodes_.erase(each)
                                                                              : std::next(each);
  }
  return is_back;
}

std::string NodeHealth::failed(const std::string& name, control::JobId job, uid_t uid,
                               std::time_t at, std::size_t nodes_in_all, double withhold_s,
                               Stage stage) {
  const auto kept_s = static_cast<std::time_t>(withhold_s);
  if (kept_s <= 0) return {};
  Node& node = nodes_[name];
  forget(node, at, kept_s);
  std::vector<Failure>& failures = node.failures;
  std::erase_if(failures, [&](const Failure& each) { return each.job == job; });
  control::JobId other = 0, own = 0;
  bool blames_node = false;  // two of his jobs had workers there
  for (const Failure& each : failures) {
    (each.uid == uid ? own : other) = each.job;
    blames_node =
        blames_node || (each.uid == uid && each.stage == Stage::run && stage == Stage::run);
  }
  failures.push_back({job, uid, at, stage});
  // A user's newest ones: he cannot drive those of others out.
  if (const auto count = std::count_if(failures.begin(), failures.end(),
                                       [uid](const Failure& each) { return each.uid == uid; });
      static_cast<std::size_t>(count) > kMaxFailuresOfUser)
    failures.erase(std::find_if(failures.begin(), failures.end(),
                                [uid](const Failure& each) { return each.uid == uid; }));
  if (failures.size() > kMaxFailures) failures.erase(failures.begin());
  if (other == 0 && own == 0) return {};
  const std::size_t most = std::max<std::size_t>(nodes_in_all / kShare, 1);
  std::size_t withheld = 0;
  Node* gives_way = nullptr;
  bool keeps_another = false;
  for (auto& [each_name, each] : nodes_) {
    if (each.until <= at || &each == &node) continue;
    ++withheld;
    if (each.by_one) gives_way = &each;
    keeps_another = keeps_another || each.by_one == uid;
  }
  const auto says = [&](std::string_view whom, control::JobId first) {
    return fmt::format("node {} is not lent{} for {} s: companions of jobs {} and {} failed there",
                       name, whom, kept_s, first, job);
  };
  const bool is_new = node.until == 0;
  if (other != 0 && (!is_new || withheld < most || gives_way != nullptr)) {
    if (is_new && withheld >= most) gives_way->until = 0, gives_way->by_one.reset();
    node.until = at + kept_s;
    node.by_one.reset();
    return is_new ? says("", other) : std::string();
  }
  if (own == 0) return {};
  const bool is_new_to_him = !node.until_for.contains(uid);
  if (is_new_to_him && node.until_for.size() >= kMaxUsers) return {};
  node.until_for[uid] = at + kept_s;
  if (node.by_one == uid || (is_new && blames_node && !keeps_another && withheld < most)) {
    node.until = at + kept_s;
    node.by_one = uid;
    return is_new ? says("", own) : std::string();
  }
  return is_new_to_him ? says(fmt::format(" to jobs of uid {}", uid), own) : std::string();
}

std::time_t NodeHealth::withheld_until(const std::string& name, uid_t uid, std::time_t now) const {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return 0;
  std::time_t until = found->second.until;
  if (const auto its = found->second.until_for.find(uid); its != found->second.until_for.end())
    until = std::max(until, its->second);
  return until > now ? until : 0;
}

Json NodeHealth::shown(std::time_t now) const {
  Json found = Json::array();
  const auto show = [&](const std::string& node, std::time_t until, std::optional<uid_t> uid) {
    if (until <= now || found.size() >= kMaxShown) return;
    Json one = Json::object({{"node", node}, {"for_s", static_cast<std::int64_t>(until - now)}});
    if (uid) one.set("uid", static_cast<std::int64_t>(*uid));
    found.append(std::move(one));
  };
  for (const auto& [name, node] : nodes_) show(name, node.until, std::nullopt);
  for (const auto& [name, node] : nodes_)
    if (node.until <= now)
      for (const auto& [uid, until] : node.until_for) show(name, until, uid);
  return found;
}

void NodeHealth::apply(policy::ClusterView& view, std::time_t now) const {
  if (nodes_.empty()) return;
  for (std::size_t i = 0; i < view.nodes.size(); ++i) {
    const auto found = nodes_.find(view.nodes[i].name);
    if (found == nodes_.end()) continue;
    if (found->second.until > now) view.nodes[i].settling = true;
    for (policy::ElasticJobView& job : view.jobs)
      if (withheld_until(found->first, job.owner, now) != 0)
        job.excluded_nodes.insert(static_cast<policy::NodeIndex>(i));
  }
}

Json NodeHealth::to_json() const {
  Json json = Json::object();
  for (const auto& [name, node] : nodes_) {
    Json failures = Json::array(), users = Json::object();
    for (const Failure& each : node.failures) {
      Json one = Json::object({{"job", each.job},
                               {"uid", static_cast<std::int64_t>(each.uid)},
                               {"at", static_cast<std::int64_t>(each.at)}});
      if (each.stage == Stage::launch) one.set("launch", true);
      failures.append(std::move(one));
    }
    for (const auto& [uid, until] : node.until_for)
      users.set(std::to_string(uid).c_str(), static_cast<std::int64_t>(until));
    Json its = Json::object({{"until", static_cast<std::int64_t>(node.until)},
                             {"until_for", users},
                             {"failures", failures}});
    if (node.by_one) its.set("by_one", static_cast<std::int64_t>(*node.by_one));
    json.set(name.c_str(), std::move(its));
  }
  return json;
}

Result<NodeHealth> NodeHealth::from_json(const Json& json) {
  if (!is_object(json) || json.size() > kMaxNodes) return Error("it must be an object of nodes");
  NodeHealth health;
  for (const auto& [name, member] : members(json)) {
    Node& node = health.nodes_[name];
    const auto until = member.integer_at("until", 0, kMaxTime);
    if (!until) return until.error().while_doing(name);
    node.until = *until;
    if (member.has("by_one")) {
      const auto uid = member.integer_at("by_one", 0, kMaxUid);
      if (!uid) return uid.error().while_doing(name);
      node.by_one = static_cast<uid_t>(*uid);
    }
    const Json users = member.at("until_for"), failures = member.at("failures");
    if (!is_object(users) || users.size() > kMaxUsers || !is_array(failures) ||
        failures.size() > kMaxFailures)
      return Error(fmt::format("{}: \"until_for\" must be an object, \"failures\" a list", name));
    for (const auto& [text, value] : members(users)) {
      const auto uid = read_number<uid_t>(text);
      const auto time = users.integer_at(text.c_str(), 0, kMaxTime);
      if (!uid || !time)
        return Error(fmt::format("{}: \"{}\" is not a uid with a time", name, text));
      node.until_for[*uid] = *time;
    }
    for (const Json& each : failures.items()) {
      const auto job = each.integer_at("job", 1, std::numeric_limits<control::JobId>::max());
      const auto uid = each.integer_at("uid", 0, kMaxUid), at = each.integer_at("at", 0, kMaxTime);
      if (!job || !uid || !at)
        return Error(fmt::format("{}: {} is not a failure", name, each.dump()));
      node.failures.push_back({static_cast<control::JobId>(*job), static_cast<uid_t>(*uid), *at,
                               each.has("launch") ? Stage::launch : Stage::run});
    }
  }
  return health;
}

}  // namespace swell::controller
