// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/calibration.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::cluster {

namespace {

constexpr double kGB = 1e9, kMaxRate = 1e9, kMicro = 1e-6;
constexpr int kMaxDistance = 64;

Result<double> optional_number(const Json& json, const char* key, double max) {
  if (!json.has(key)) return 0.0;
  return json.number_at(key, 0, max);
}

Result<MeasuredSize> read_size(const Json& json) {
  auto bytes = json.number_at("bytes", 0, 1e15);
  if (!bytes) return bytes.error();
  auto rate = json.number_at("gbytes_per_s", 0, kMaxRate);
  if (!rate) return rate.error();
  auto latency = optional_number(json, "latency_us", 1e12);
  if (!latency) return latency.error();
  return MeasuredSize{*bytes, *rate * kGB, *latency * kMicro};
}

Result<MeasuredClass> read_class(const Json& json) {
  MeasuredClass made;
  auto distance = json.integer_at("distance", 0, kMaxDistance);
  if (!distance) return distance.error();
  auto rate = json.number_at("gbytes_per_s", 1e-9, kMaxRate);
  if (!rate) return rate.error();
  auto latency = optional_number(json, "latency_us", 1e12);
  if (!latency) return latency.error();
  auto spread = optional_number(json, "spread", 1e6);
  if (!spread) return spread.error();
  auto pairs = optional_number(json, "pairs", 1e9);
  if (!pairs) return pairs.error();
  made = {static_cast<int>(*distance), *rate * kGB, *latency * kMicro, *spread,
          static_cast<int>(*pairs),    {}};
  for (const Json& item : json.at("sizes").items()) {
    auto size = read_size(item);
    if (!size) return size.error().while_doing("\"sizes\"");
    made.sizes.push_back(*size);
  }
  return made;
}

}  // namespace

const MeasuredClass* Calibration::find(int distance) const noexcept {
  for (const MeasuredClass& each : classes)
    if (each.distance == distance) return &each;
  return nullptr;
}

Json Calibration::to_json() const {
  Json list = Json::array();
  for (const MeasuredClass& each : classes) {
    Json sizes = Json::array();
    for (const MeasuredSize& size : each.sizes)
      sizes.append(Json::object({{"bytes", size.bytes},
                                 {"gbytes_per_s", size.bytes_per_s / kGB},
                                 {"latency_us", size.latency_s / kMicro}}));
    list.append(Json::object({{"distance", each.distance},
                              {"gbytes_per_s", each.bytes_per_s / kGB},
                              {"latency_us", each.latency_s / kMicro},
                              {"spread", each.spread},
                              {"pairs", each.pairs},
                              {"sizes", sizes}}));
  }
  Json measured = Json::array();
  for (const auto& [names, rate] : pairs)
    measured.append(Json::object(
        {{"between", Json::array({names.first, names.second})}, {"gbytes_per_s", rate / kGB}}));
  return Json::object(
      {{"version", 1}, {"date", date}, {"method", method}, {"classes", list}, {"pairs", measured}});
}

Result<Calibration> Calibration::from_json(const Json& json) {
  if (!is_object(json)) return Error("a calibration is a JSON object");
  if (auto version = json.integer_at("version", 1, 1); !version) return version.error();
  Calibration made;
  if (json.has("date")) {
    auto date = json.string_at("date");
    if (!date) return date.error();
    made.date = *date;
  }
  if (json.has("method")) {
    auto method = json.string_at("method");
    if (!method) return method.error();
    made.method = *method;
  }
  for (const Json& item : json.at("classes").items()) {
    auto one = read_class(item);
    if (!one) return one.error().while_doing("\"classes\"");
    if (made.find(one->distance) != nullptr)
      return Error(fmt::format("\"classes\": distance {} is given twice", one->distance));
    made.classes.push_back(*std::move(one));
  }
  std::sort(made.classes.begin(), made.classes.end(),
            [](const auto& a, const auto& b) { return a.distance < b.distance; });
  for (const Json& item : json.at("pairs").items()) {
    const Json a = item.at("between").at(std::size_t{0}), b = item.at("between").at(std::size_t{1});
    if (!is_string(a) || !is_string(b)) return Error("\"pairs\": \"between\" must name two nodes");
    auto rate = item.number_at("gbytes_per_s", 1e-9, kMaxRate);
    if (!rate) return rate.error().while_doing("\"pairs\"");
    made.pairs[std::minmax<std::string>(json_string_value(a.get()), json_string_value(b.get()))] =
        *rate * kGB;
  }
  return made;
}

}  // namespace swell::cluster
