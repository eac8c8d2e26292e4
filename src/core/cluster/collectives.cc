// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/collectives.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <tuple>
#include <utility>

#include "core/count_of.h"

namespace swell::cluster {

namespace {

constexpr const char* kNames[kCollectives] = {"all-reduce", "reduce-scatter", "all-gather",
                                              "all-to-all", "send"};
constexpr double kMostBytes = 1e15, kMostSeconds = 1e6;

auto key(const CollectiveSeries& series) {
  return std::tie(series.type, series.what, series.shape);
}

/// Returns the number of ring steps, each of 1 / ranks of the buffer. A send is one step of the
/// whole buffer.
double ring_steps(Collective what, int ranks) noexcept {
  switch (what) {
    case Collective::all_reduce: return 2.0 * (ranks - 1);
    case Collective::send: return 1;
    default: return ranks - 1;
  }
}

/// Returns the distance between two shapes, in doublings of ranks. A doubling of the groups on a
/// node counts half, since these share its network nearly evenly; of all groups, a tenth.
double distance(const CollectiveShape& a, const CollectiveShape& b) noexcept {
  const auto factor = [](int x, int y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return factor(a.ranks_a_node, b.ranks_a_node) + factor(a.nodes, b.nodes) +
         0.5 * factor(a.groups_a_node, b.groups_a_node) + 0.1 * factor(a.groups, b.groups);
}

std::string description(const CollectiveSeries& series) {
  return fmt::format("{} of {} a node on {} of type {}", to_string(series.what),
                     count_of(series.shape.ranks_a_node, "rank"),
                     count_of(series.shape.nodes, "node"), series.type);
}

}  // namespace

const char* to_string(Collective what) noexcept { return kNames[static_cast<std::size_t>(what)]; }

std::optional<Collective> find_collective(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kCollectives; ++i)
    if (name == kNames[i]) return static_cast<Collective>(i);
  return std::nullopt;
}

double CollectiveSeries::seconds(double bytes) const noexcept {
  const auto above =
      std::lower_bound(sizes.begin(), sizes.end(), bytes,
                       [](const Size& size, double wanted) { return size.bytes < wanted; });
  if (above == sizes.begin()) return above->seconds;
  const Size& below = *std::prev(above);
  if (above == sizes.end()) return below.seconds * (bytes / below.bytes);
  const double part = (bytes - below.bytes) / (above->bytes - below.bytes);
  return below.seconds + part * (above->seconds - below.seconds);
}

Result<void> check(const CollectiveSeries& series) {
  const CollectiveShape& shape = series.shape;
  for (const int count : {shape.ranks_a_node, shape.nodes, shape.groups_a_node, shape.groups})
    if (count < 1 || count > kMostRanks)
      return Error(fmt::format("{}: {} is not a number of ranks, nodes or groups; give 1 to {}",
                               description(series), count, kMostRanks));
  if (shape.ranks_a_node > kMostRanks / shape.nodes || shape.ranks() < 2)
    return Error(fmt::format("{}: give 2 to {} ranks in all", description(series), kMostRanks));
  if (series.sizes.empty())
    return Error(fmt::format("{} has no sizes; measure one at least", description(series)));
  double before = 0;
  for (const CollectiveSeries::Size& size : series.sizes) {
    if (!(size.bytes > 0) || size.bytes > kMostBytes)
      return Error(fmt::format("{}: a size of {:g} bytes; give 1 to {:g}", description(series),
                               size.bytes, kMostBytes));
    if (size.bytes <= before)
      return Error(fmt::format("{}: size {:.0f} follows size {:.0f}; sort each series by size",
                               description(series), size.bytes, before));
    if (!(size.seconds > 0) || size.seconds > kMostSeconds)
      return Error(fmt::format("{}: {:g} s for {:.0f} bytes; measure that size again",
                               description(series), size.seconds, size.bytes));
    before = size.bytes;
  }
  return {};
}

Result<CollectiveTable> CollectiveTable::make(std::vector<CollectiveSeries> series) {
  for (const CollectiveSeries& each : series)
    if (auto good = check(each); !good) return good.error();
  std::sort(series.begin(), series.end(),
            [](const auto& a, const auto& b) { return key(a) < key(b); });
  const auto twice = std::adjacent_find(
      series.begin(), series.end(), [](const auto& a, const auto& b) { return key(a) == key(b); });
  if (twice != series.end())
    return Error(fmt::format("{}, {} at a time, is there twice; leave one out", description(*twice),
                             count_of(twice->shape.groups, "group")));
  CollectiveTable table;
  table.series_ = std::move(series);
  for (std::size_t i = 0; i < table.series_.size();) {
    const std::string& type = table.series_[i].type;
    std::array<bool, kCollectives> has{};
    for (; i < table.series_.size() && table.series_[i].type == type; ++i)
      has[static_cast<std::size_t>(table.series_[i].what)] = true;
    constexpr auto kSend = static_cast<std::size_t>(Collective::send);
    if (std::none_of(has.begin() + 1, has.begin() + kSend, [](bool there) { return there; }))
      continue;  // the type has all-reduces and sends only
    for (std::size_t what = 0; what < kSend; ++what)
      if (!has[what])
        return Error(
            fmt::format("GPU type {} has no times of {}; measure it, or leave the type out", type,
                        kNames[what]));
  }
  return table;
}

const CollectiveSeries* CollectiveTable::nearest(std::string_view type, Collective what,
                                                 const CollectiveShape& shape) const noexcept {
  const CollectiveSeries* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const CollectiveSeries& each : series_) {
    if (each.type != type || each.what != what ||
        each.shape.is_between_nodes() != shape.is_between_nodes())
      continue;
    const double far = distance(each.shape, shape);
    if (far < least) {
      least = far;
      best = &each;
    }
  }
  return best;
}

std::optional<double> CollectiveTable::seconds(std::string_view type, Collective what,
                                               const CollectiveShape& shape,
                                               double bytes) const noexcept {
  if (shape.ranks() <= 1) return 0;
  const CollectiveSeries* from = nearest(type, what, shape);
  if (from == nullptr) {
    if (what != Collective::reduce_scatter && what != Collective::all_gather) return std::nullopt;
    const auto both = seconds(type, Collective::all_reduce, shape, bytes);
    return both ? std::optional(*both / 2) : std::nullopt;
  }
  if (from->shape == shape) return from->seconds(bytes);
  double as_many = bytes;
  if (what != Collective::send) as_many *= static_cast<double>(from->shape.ranks()) / shape.ranks();
  if (shape.is_between_nodes())
    as_many *= static_cast<double>(shape.groups_a_node) / from->shape.groups_a_node;
  return from->seconds(as_many) * ring_steps(what, shape.ranks()) /
         ring_steps(what, from->shape.ranks());
}

Json CollectiveTable::to_json() const {
  Json list = Json::array();
  for (const CollectiveSeries& each : series_) {
    Json sizes = Json::array();
    for (const CollectiveSeries::Size& size : each.sizes)
      sizes.append(Json::array({size.bytes, size.seconds}));
    list.append(Json::object({{"type", each.type},
                              {"primitive", to_string(each.what)},
                              {"ranks_a_node", each.shape.ranks_a_node},
                              {"nodes", each.shape.nodes},
                              {"groups_a_node", each.shape.groups_a_node},
                              {"groups", each.shape.groups},
                              {"sizes", sizes}}));
  }
  return Json::object({{"version", 1}, {"series", list}});
}

namespace {

Result<CollectiveSeries> read_series(const Json& json) {
  CollectiveSeries made;
  auto type = json.string_at("type");
  if (!type) return type.error();
  made.type = *std::move(type);
  auto primitive = json.string_at("primitive");
  if (!primitive) return primitive.error();
  const auto what = find_collective(*primitive);
  if (!what)
    return Error(fmt::format(
        "\"primitive\" is \"{}\"; use all-reduce, reduce-scatter, all-gather, all-to-all or send",
        primitive->substr(0, 40)));
  made.what = *what;
  const std::pair<const char*, int*> counts[] = {{"ranks_a_node", &made.shape.ranks_a_node},
                                                 {"nodes", &made.shape.nodes},
                                                 {"groups_a_node", &made.shape.groups_a_node},
                                                 {"groups", &made.shape.groups}};
  for (const auto& [name, count] : counts) {
    const auto value = json.integer_at(name, 1, kMostRanks);
    if (!value) return value.error();
    *count = static_cast<int>(*value);
  }
  for (const Json& item : json.at("sizes").items()) {
    const Json bytes = item.at(std::size_t{0}), seconds = item.at(std::size_t{1});
    if (item.size() != 2 || !is_number(bytes) || !is_number(seconds))
      return Error("\"sizes\" must be a list of [bytes, seconds]");
    made.sizes.push_back({json_number_value(bytes.get()), json_number_value(seconds.get())});
  }
  return made;
}

}  // namespace

Result<CollectiveTable> CollectiveTable::from_json(const Json& json) {
  if (!is_object(json)) return Error("a communication table is a JSON object");
  if (auto version = json.integer_at("version", 1, 1); !version) return version.error();
  if (!is_array(json.at("series"))) return Error("\"series\" must be a list");
  std::vector<CollectiveSeries> series;
  for (const Json& item : json.at("series").items()) {
    auto one = read_series(item);
    if (!one) return one.error().while_doing(fmt::format("series {}", series.size()));
    series.push_back(*std::move(one));
  }
  return make(std::move(series));
}

}  // namespace swell::cluster
