// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/redeploy/pauses.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace swell::redeploy {

namespace {

constexpr double kMost_s = 1e9;
constexpr double kLatest_s = 1e12;

const char* to_text(Measured way) { return way == Measured::live ? "live" : "restart"; }

/// Returns the median; for an even number of values, the lower of the middle two.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns the median of the delays and the median of the pauses.
std::optional<Cost> median(const std::vector<Cost>& costs) {
  if (costs.empty()) return std::nullopt;
  std::vector<double> delays, pauses;
  for (const Cost& cost : costs) {
    delays.push_back(cost.delay_s);
    pauses.push_back(cost.pause_s);
  }
  return Cost{median(std::move(delays)), median(std::move(pauses))};
}

Json to_json(const Dated& dated) {
  return Json::object(
      {{"delay_s", dated.cost.delay_s}, {"pause_s", dated.cost.pause_s}, {"at", dated.at}});
}

/// Reads what to_json() wrote. An entry without a time counts as expired.
Result<Dated> dated_from(const Json& json) {
  const auto delay = json.number_at("delay_s", 0, kMost_s),
             pause = json.number_at("pause_s", 0, kMost_s);
  if (!delay) return delay.error();
  if (!pause) return pause.error();
  const auto at = json.has("at") ? json.number_at("at", 0, kLatest_s) : Result<double>(0.0);
  if (!at) return at.error();
  return Dated{{*delay, *pause}, *at};
}

Result<Measured> way_from(const Json& json, const char* key) {
  const Result<std::string> text = json.string_at(key);
  if (!text) return text.error();
  for (const Measured way : {Measured::live, Measured::restart})
    if (*text == to_text(way)) return way;
  return Error(fmt::format("\"{}\" is \"{}\"; it must be \"live\" or \"restart\"", key, *text));
}

}  // namespace

void Pauses::changed(Measured way, Cost cost, double now) {
  of(way).push_back({cost, now});
  if (of(way).size() > kKept) of(way).pop_front();
  last_way_ = way;
}

std::optional<Dated> Pauses::lost(double seconds) noexcept {
  if (!last_way_ || of(*last_way_).empty()) return std::nullopt;
  Dated& last = of(*last_way_).back();
  last.cost.pause_s = std::max(last.cost.pause_s, seconds);
  return last;
}

bool Pauses::started(double seconds) noexcept {
  if (std::abs(seconds - start_s_) < start_s_ / 10) return false;
  return std::exchange(start_s_, seconds) != seconds;
}

bool Pauses::is_by_start(Measured way, double now) const noexcept {
  return start_s_ > 0 && std::none_of(of(way).begin(), of(way).end(),
                                      [&](const Dated& each) { return each.counts(now); });
}

std::optional<Cost> Pauses::expected(Measured way, double now) const {
  std::vector<Cost> costs;
  for (const Dated& each : of(way))
    if (each.counts(now)) costs.push_back(each.cost);
  if (!costs.empty()) return median(costs);
  if (way == Measured::restart && start_s_ > 0) return Cost{0, start_s_};
  return std::nullopt;
}

Json Pauses::to_json() const {
  Json json = Json::object({{"start_s", start_s_}});
  if (last_way_) json.set("last_way", to_text(*last_way_));
  for (const Measured way : {Measured::live, Measured::restart}) {
    Json list = Json::array();
    for (const Dated& each : of(way)) list.append(redeploy::to_json(each));
    json.set(to_text(way), list);
  }
  return json;
}

Result<Pauses> Pauses::from_json(const Json& json) {
  if (!is_object(json)) return Error("it must be an object");
  Pauses pauses;
  const auto start = json.number_at("start_s", 0, kMost_s);
  if (!start) return start.error();
  for (const Measured way : {Measured::live, Measured::restart})
    for (const Json& item : json.at(to_text(way)).items()) {
      const auto dated = dated_from(item);
      if (!dated) return dated.error().while_doing(to_text(way));
      pauses.changed(way, dated->cost, dated->at);
    }
  pauses.start_s_ = *start;
  pauses.last_way_.reset();
  if (!json.has("last_way")) return pauses;
  const auto way = way_from(json, "last_way");
  if (!way) return way.error();
  pauses.last_way_ = *way;
  return pauses;
}

void ClusterPauses::changed(std::int64_t owner, Measured way, Cost cost, double now) {
  std::erase_if(seen_, [&](const Seen& each) { return each.owner == owner && each.way == way; });
  seen_.push_back({owner, way, {cost, now}});
  const auto of_way =
      std::count_if(seen_.begin(), seen_.end(), [&](const Seen& each) { return each.way == way; });
  if (of_way > static_cast<std::ptrdiff_t>(kOwners))
    seen_.erase(std::find_if(seen_.begin(), seen_.end(),
                             [&](const Seen& each) { return each.way == way; }));
}

std::optional<Cost> ClusterPauses::expected(Measured way, std::int64_t asking, double now) const {
  std::vector<Cost> costs;
  for (const Seen& each : seen_)
    if (each.way == way && each.owner != asking && each.dated.counts(now))
      costs.push_back(each.dated.cost);
  return costs.size() < kMinOwners ? std::nullopt : median(costs);
}

Json ClusterPauses::to_json() const {
  Json list = Json::array();
  for (const Seen& each : seen_)
    list.append(
        redeploy::to_json(each.dated).set("owner", each.owner).set("way", to_text(each.way)));
  return list;
}

Result<ClusterPauses> ClusterPauses::from_json(const Json& json) {
  if (!is_array(json)) return Error("it must be a list");
  ClusterPauses pauses;
  for (const Json& item : json.items()) {
    const auto owner = item.integer_at("owner", std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max());
    const auto way = way_from(item, "way");
    const auto dated = dated_from(item);
    if (!owner) return owner.error();
    if (!way) return way.error();
    if (!dated) return dated.error();
    pauses.changed(*owner, *way, dated->cost, dated->at);
  }
  return pauses;
}

std::optional<Cost> expected_cost(const Pauses& own, const ClusterPauses& cluster, Measured way,
                                  std::int64_t owner, double now) {
  if (const auto cost = own.expected(way, now)) return cost;
  return cluster.expected(way, owner, now);
}

}  // namespace swell::redeploy
