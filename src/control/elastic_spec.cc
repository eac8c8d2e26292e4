// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/elastic_spec.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "control/split.h"
#include "core/count_of.h"
#include "core/number.h"
#include "core/policy/lending/sizes.h"
#include "core/saturating.h"

namespace swell::control {

namespace {

constexpr int kMaxGpusAllowed = ElasticSpec::kNoLimit;
constexpr std::size_t kMaxCharacters = 1024;
constexpr int kMaxGrace_s = 24 * 3600;
constexpr int kMaxStay_s = 7 * 24 * 3600;
constexpr int kMaxGrow_s = 24 * 3600;
constexpr std::int64_t kMaxSteps = 1'000'000'000'000;

Error bad(std::string_view key, std::string_view value, std::string_view allowed) {
  return Error(
      fmt::format("--elastic: {}={} is not valid; {} must be {}", key, value, key, allowed));
}

Result<void> read_max(ElasticSpec& spec, std::string_view value) {
  constexpr std::string_view allowed =
      "a number of GPUs (max=16) or a factor of the basic demand (max=4x)";
  if (value.ends_with('x')) {
    const auto factor = read_number<double>(value.substr(0, value.size() - 1));
    if (!factor || !std::isfinite(*factor) || *factor < 1 || *factor > 10000)
      return bad("max", value, allowed);
    spec.max_factor = *factor;
    spec.max_gpus.reset();
    return {};
  }
  const auto gpus = read_number<int>(value);
  if (!gpus || *gpus < 1 || *gpus > kMaxGpusAllowed) return bad("max", value, allowed);
  spec.max_gpus = *gpus;
  spec.max_factor.reset();
  return {};
}

Result<void> read_min(ElasticSpec& spec, std::string_view value) {
  const auto gpus = read_number<int>(value);
  if (!gpus || *gpus < 1 || *gpus > kMaxGpusAllowed)
    return bad("min", value, "a number of GPUs (min=4)");
  spec.min_gpus = *gpus;
  return {};
}

Result<void> read_sizes(ElasticSpec& spec, std::string_view value) {
  constexpr std::string_view allowed = "rising numbers of GPUs separated by '/' (sizes=8/16/32)";
  std::vector<int> sizes;
  for (std::string_view part : split(value, '/')) {
    const auto size = read_number<int>(part);
    if (!size || *size < 1 || *size > kMaxGpusAllowed) return bad("sizes", value, allowed);
    if (!sizes.empty() && *size <= sizes.back()) return bad("sizes", value, allowed);
    sizes.push_back(*size);
  }
  spec.sizes = std::move(sizes);
  return {};
}

Result<void> read_step(ElasticSpec& spec, std::string_view value) {
  const auto gpus = read_number<int>(value);
  if (!gpus || *gpus < 1 || *gpus > kMaxGpusAllowed)
    return bad("step", value, "a number of GPUs (step=4)");
  spec.step = *gpus;
  return {};
}

Result<void> read_types(ElasticSpec& spec, std::string_view value) {
  constexpr std::string_view allowed =
      "GPU types as Slurm names them, separated by '/' (types=h100/a100)";
  std::vector<std::string> types;
  for (std::string_view part : split(value, '/')) {
    const bool plain = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-' || c == '.';
    });
    if (!plain) return bad("types", value, allowed);
    types.emplace_back(part);
  }
  spec.types = std::move(types);
  return {};
}

Result<void> read_consistency(ElasticSpec& spec, std::string_view value) {
  if (value == "exact") spec.consistency = Consistency::exact;
  else if (value == "relaxed") spec.consistency = Consistency::relaxed;
  else return bad("consistency", value, "exact or relaxed");
  return {};
}

Result<void> read_mode(ElasticSpec& spec, std::string_view value) {
  if (value == "restart") spec.mode = Mode::restart;
  else if (value == "live") spec.mode = Mode::live;
  else return bad("mode", value, "restart or live");
  return {};
}

Result<void> read_seconds(std::string_view key, std::string_view value, int min, int max,
                          int& seconds) {
  const auto read = read_number<int>(value);
  if (!read || *read < min || *read > max)
    return bad(key, value, fmt::format("a whole number of seconds from {} to {}", min, max));
  seconds = *read;
  return {};
}

Result<void> read_grace(ElasticSpec& spec, std::string_view value) {
  return read_seconds("grace", value, 1, kMaxGrace_s, spec.grace_s);
}

Result<void> read_stay(ElasticSpec& spec, std::string_view value) {
  return read_seconds("stay", value, 0, kMaxStay_s, spec.stay_s);
}

Result<void> read_grow(ElasticSpec& spec, std::string_view value) {
  return read_seconds("grow", value, 1, kMaxGrow_s, spec.grow_s);
}

Result<void> read_deadline(ElasticSpec& spec, std::string_view value) {
  const Result<Deadline> read = Deadline::parse(value);
  if (!read) return read.error().while_doing("--elastic");
  spec.deadline = *read;
  return {};
}

Result<void> read_steps(ElasticSpec& spec, std::string_view value) {
  const auto steps = read_number<std::int64_t>(value);
  if (!steps || *steps < 1 || *steps > kMaxSteps)
    return bad("steps", value, fmt::format("a whole number of steps from 1 to {}", kMaxSteps));
  spec.steps = *steps;
  return {};
}

Result<void> read_table(ElasticSpec& spec, std::string_view value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return c > ' ' && c < 0x7f && c != '[' && c != ']' && c != '"' && c != '\'';
  });
  if (!plain)
    return bad("table", value, "a file whose name has no blanks, quotes, brackets or commas");
  spec.table = value;
  return {};
}

Result<void> read_switch(ElasticSpec& spec, std::string_view value) {
  if (value != "requeue")
    return bad("switch", value, "requeue (a checkpoint, and a requeue on another GPU type)");
  spec.switches_type = true;
  return {};
}

struct Key {
  std::string_view name;
  Result<void> (*read)(ElasticSpec&, std::string_view);
};
constexpr Key kKeys[] = {
    {"max", read_max},     {"min", read_min},           {"sizes", read_sizes},
    {"step", read_step},   {"types", read_types},       {"consistency", read_consistency},
    {"mode", read_mode},   {"grace", read_grace},       {"stay", read_stay},
    {"grow", read_grow},   {"deadline", read_deadline}, {"steps", read_steps},
    {"table", read_table}, {"switch", read_switch}};

bool is_key(std::string_view entry) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](const Key& k) { return k.name == entry.substr(0, entry.find('=')); });
}

/// Returns the list that starts at entries[at], as in "sizes=2,4,8", with '/' between its values;
/// empty if there is no such list.
std::string list_with_commas(const std::vector<std::string_view>& entries, std::size_t at) {
  if (!entries[at].starts_with("sizes=") && !entries[at].starts_with("types=")) return {};
  std::string meant(entries[at]);
  std::size_t parts = 1;
  for (std::size_t i = at + 1;
       i < entries.size() && !entries[i].empty() &&
       entries[i].find('=') == std::string_view::npos && !is_key(entries[i]);
       ++i, ++parts)
    meant += fmt::format("/{}", entries[i]);
  return parts > 1 ? meant : std::string();
}

/// Returns the text with commas in place of other separators between keys, as in "max=4;grace=3";
/// empty if it has no others.
std::string keys_with_commas(std::string_view text) {
  std::string meant;
  bool is_other = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool parts = std::string_view("; \t\r\n|&:+/").find(text[at]) != std::string_view::npos;
    const std::string_view rest = text.substr(at + 1);
    if (!parts || std::none_of(std::begin(kKeys), std::end(kKeys), [&](const Key& key) {
          return rest.starts_with(key.name) && rest.substr(key.name.size()).starts_with('=');
        })) {
      if (!parts || text[at] == ':' || text[at] == '+' || text[at] == '/') meant += text[at];
      continue;
    }
    is_other = true;
    if (!meant.ends_with(',')) meant += ',';
  }
  return is_other ? meant : std::string();
}

Result<void> read_entry(ElasticSpec& spec, std::string_view entry,
                        std::set<std::string_view>& seen) {
  const std::size_t equals = entry.find('=');
  const std::string_view name = entry.substr(0, equals);
  const Key* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                [&](const Key& k) { return k.name == name; });
  if (key == std::end(kKeys))
    return Error(fmt::format(
        "--elastic: unknown key \"{}\"; the keys are max, min, sizes, step, types, consistency, mode, "
        "grace, stay, grow, deadline, steps, table, switch",
        name));
  if (equals == std::string_view::npos || equals + 1 == entry.size())
    return Error(fmt::format("--elastic: {} has no value; write {}=VALUE", name, name));
  if (!seen.insert(name).second)
    return Error(fmt::format("--elastic: {} is given twice; give it once", name));
  return key->read(spec, entry.substr(equals + 1));
}

}  // namespace

Result<ElasticSpec> ElasticSpec::parse(std::string_view text) {
  ElasticSpec spec;
  if (text.empty()) return spec;
  if (text.size() > kMaxCharacters)
    return Error(
        fmt::format("--elastic: {} characters; at most {} are read", text.size(), kMaxCharacters));
  if (const std::string meant = keys_with_commas(text); !meant.empty())
    return Error(fmt::format("--elastic: use commas between keys, without blanks: {}", meant));
  std::set<std::string_view> seen;
  const std::vector<std::string_view> entries = split(text, ',');
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (const std::string meant = list_with_commas(entries, i); !meant.empty())
      return Error(
          fmt::format("--elastic: a comma begins the next key; within a list use '/': {}", meant));
    if (Result<void> read = read_entry(spec, entries[i], seen); !read) return read.error();
  }
  if (spec.step > 0 && !spec.sizes.empty())
    return Error(fmt::format("--elastic: step={} and sizes={} are both given; give one of them",
                             spec.step, fmt::join(spec.sizes, "/")));
  if (spec.switches_type && (spec.types.empty() || spec.table.empty()))
    return Error(fmt::format(
        "--elastic: switch=requeue needs {}; add {}",
        spec.types.empty() ? "the GPU types that the job may move to" : "a table of its speeds",
        spec.types.empty() ? "types=A/B" : "table=FILE"));
  // text() is longer than what the user wrote, and is what AdminComment records.
  if (const std::size_t in_full = spec.text().size(); in_full > kMaxCharacters)
    return Error(fmt::format(
        "--elastic: {} characters with every key written out; at most {} are read: shorten types or sizes",
        in_full, kMaxCharacters));
  return spec;
}

std::string ElasticSpec::text() const {
  std::string result;
  if (max_gpus) result += fmt::format("max={},", *max_gpus);
  if (max_factor) result += fmt::format("max={}x,", *max_factor);
  if (min_gpus) result += fmt::format("min={},", *min_gpus);
  if (!sizes.empty()) result += fmt::format("sizes={},", fmt::join(sizes, "/"));
  if (step > 0) result += fmt::format("step={},", step);
  if (!types.empty()) result += fmt::format("types={},", fmt::join(types, "/"));
  result += consistency == Consistency::exact ? "consistency=exact" : "consistency=relaxed";
  result += mode == Mode::live ? ",mode=live" : ",mode=restart";
  result += fmt::format(",grace={}", grace_s);
  if (stay_s > 0) result += fmt::format(",stay={}", stay_s);
  if (grow_s > 0) result += fmt::format(",grow={}", grow_s);
  if (deadline) result += fmt::format(",deadline={}", deadline->text());
  if (steps > 0) result += fmt::format(",steps={}", steps);
  if (!table.empty()) result += fmt::format(",table={}", table);
  if (switches_type) result += ",switch=requeue";
  return result;
}

int ElasticSpec::max_total(int basic_gpus, bool planned) const {
  if (max_gpus) return std::max(*max_gpus, basic_gpus);
  if (!max_factor && planned) return std::max(kNoLimit, basic_gpus);
  const double by_factor =
      std::floor(basic_gpus * max_factor.value_or(policy::kUnplannedFactor) + 1e-9);
  return std::max(static_cast<int>(std::min<double>(by_factor, kNoLimit)), basic_gpus);
}

std::vector<int> ElasticSpec::totals(int basic_gpus, int limit) const {
  if (step <= 1) return sizes;
  std::vector<int> rising = {basic_gpus};
  for (std::int64_t next = std::int64_t{basic_gpus} + step; next <= limit; next += step)
    rising.push_back(static_cast<int>(next));
  return rising;
}

int ElasticSpec::owed_at_most(int wanted, int basic_gpus) noexcept {
  return std::min(wanted, saturated_int(saturating_product(basic_gpus, kMaxLowering)));
}

Result<void> ElasticSpec::check_basic(int basic_gpus) const {
  if (basic_gpus < 1)
    return Error(
        "--elastic: the job asks for no GPUs; add e.g. --gres=gpu:4, or leave --elastic out");
  if (max_gpus && *max_gpus < basic_gpus)
    return Error(fmt::format(
        "--elastic: max={} is below the {} that the job asks for; max must be at least {}",
        *max_gpus, count_of(basic_gpus, "GPU"), basic_gpus));
  if (min_gpus && *min_gpus > basic_gpus)
    return Error(fmt::format(
        "--elastic: min={} is above the {} that the job asks for; min must be at most {}",
        *min_gpus, count_of(basic_gpus, "GPU"), basic_gpus));
  if (min_gpus && owed_at_most(basic_gpus, *min_gpus) < basic_gpus)
    return Error(fmt::format(
        "--elastic: min={} is below an eighth of the {} that the job asks for; min must be at least {}",
        *min_gpus, count_of(basic_gpus, "GPU"),
        basic_gpus / kMaxLowering + (basic_gpus % kMaxLowering != 0)));
  if (step > 0 && min_gpus && (basic_gpus - *min_gpus) % step != 0)
    return Error(fmt::format(
        "--elastic: min={} cannot reach the {} that the job asks for by steps of step={}; write min={}",
        *min_gpus, count_of(basic_gpus, "GPU"), step,
        basic_gpus - (basic_gpus - *min_gpus) / step * step));
  if (!sizes.empty() && min_gpus && !std::binary_search(sizes.begin(), sizes.end(), *min_gpus))
    return Error(fmt::format("--elastic: sizes={} does not contain min={}; add {}",
                             fmt::join(sizes, "/"), *min_gpus, *min_gpus));
  if (!sizes.empty() && std::find(sizes.begin(), sizes.end(), basic_gpus) == sizes.end())
    return Error(
        fmt::format("--elastic: sizes={} does not contain the {} that the job asks for; add {}",
                    fmt::join(sizes, "/"), count_of(basic_gpus, "GPU"), basic_gpus));
  return {};
}

std::vector<int> common_sizes(const std::vector<int>& asked, const std::vector<int>& program,
                              int basic_gpus) {
  if (program.empty()) return asked;
  std::vector<int> both = {basic_gpus};
  for (const int size : program)
    if (size > basic_gpus &&
        (asked.empty() || std::binary_search(asked.begin(), asked.end(), size)))
      both.push_back(size);
  return both;
}

}  // namespace swell::control
