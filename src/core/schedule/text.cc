// SPDX-License-Identifier: BSD-3-Clause
#include "core/schedule/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/count_of.h"
#include "core/schedule/named.h"

namespace swell::schedule {

namespace {

/// Longest group that to_text() searches for, in passes and groups.
constexpr std::size_t kMaxPeriod = 128;
constexpr int kMaxDepth = 16;  ///< maximum nesting of brackets

/// Shortens the text of one stage: replaces repeats by groups, then repeats of groups.
class Shortener {
 public:
  std::string shorten(const Order& order) {
    std::vector<int> items;
    for (const Operation& one : order)
      items.push_back(number_of(one.chunk == 0
                                    ? std::string(1, letter_of(one.kind))
                                    : fmt::format("{}{}", letter_of(one.kind), one.chunk)));
    for (int round = 0; round < kMaxDepth - 1 && fold_all(items); ++round) {}
    std::string text;
    for (const int item : items) text += texts_[static_cast<std::size_t>(item)];
    return text;
  }

 private:
  /// Returns the number of a text; equal texts have equal numbers.
  int number_of(std::string text) {
    const auto [found, is_new] = numbers_.try_emplace(text, static_cast<int>(texts_.size()));
    if (is_new) texts_.push_back(std::move(text));
    return found->second;
  }

  bool fold_all(std::vector<int>& items) {
    bool folded = false;
    for (std::size_t period = 1; period <= kMaxPeriod && 2 * period <= items.size(); ++period)
      folded = fold(items, period) || folded;
    return folded;
  }

  /// Replaces each run of equal pieces of `period` items by one item if that is shorter.
  bool fold(std::vector<int>& items, std::size_t period) {
    std::vector<int> kept;
    for (std::size_t i = 0; i < items.size();) {
      const auto at = [&](std::size_t k) { return items.begin() + static_cast<std::ptrdiff_t>(k); };
      std::size_t repeats = 1;
      while (i + (repeats + 1) * period <= items.size() &&
             std::equal(at(i), at(i + period), at(i + repeats * period)))
        ++repeats;
      std::string piece;
      if (repeats > 1)
        for (std::size_t k = i; k < i + period; ++k)
          piece += texts_[static_cast<std::size_t>(items[k])];
      const bool bare = period == 1 && piece.find_first_of("*(") == std::string::npos;
      const std::string group =
          bare ? fmt::format("{}*{}", piece, repeats) : fmt::format("({})*{}", piece, repeats);
      if (repeats > 1 && group.size() < piece.size() * repeats) {
        kept.push_back(number_of(group));
        i += repeats * period;
      } else {
        kept.push_back(items[i++]);
      }
    }
    const bool folded = kept.size() != items.size();
    items = std::move(kept);
    return folded;
  }

  std::map<std::string, int> numbers_;
  std::vector<std::string> texts_;
};

/// Reads one line.
class Reader {
 public:
  Reader(std::string_view line, std::size_t limit) : line_(line), limit_(limit) {}

  /// Reads the passes, without their micro-batches.
  Result<Order> read() {
    if (auto problem = sequence(0); !problem) return problem.error();
    if (at_ < line_.size()) return problem("a ) without its (");
    return std::move(order_);
  }

 private:
  Error problem(std::string_view what) const {
    return Error(fmt::format("column {}: {}; a stage reads like F*3(FB)*5B1*3", at_ + 1, what));
  }

  void skip_blanks() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r'))
      ++at_;
  }

  /// Reads up to the end or a closing bracket.
  Result<void> sequence(int depth) {
    while (true) {
      skip_blanks();
      if (at_ == line_.size() || line_[at_] == ')') return {};
      const std::size_t begin = order_.size();
      if (line_[at_] == '(') {
        if (depth == kMaxDepth) return problem("more brackets within brackets than 16");
        ++at_;
        if (auto inner = sequence(depth + 1); !inner) return inner;
        if (at_ == line_.size()) return problem("a ( without its )");
        ++at_;
      } else {
        const auto kind = std::string_view("FBW").find(line_[at_]);
        if (kind == std::string_view::npos)
          return problem(line_[at_] > ' ' && line_[at_] < 127
                             ? fmt::format("'{}' is not F, B, W, ( or )", line_[at_])
                             : "a character is not F, B, W, ( or )");
        ++at_;
        int chunk = 0;
        if (at_ < line_.size() && is_digit(line_[at_]) && !number(chunk, kMaxChunks - 1))
          return problem(fmt::format("a chunk is not 0 to {}", kMaxChunks - 1));
        if (order_.size() >= limit_) return too_long();
        order_.push_back({static_cast<Kind>(kind), static_cast<std::int16_t>(chunk), 0});
      }
      skip_blanks();
      if (at_ == line_.size() || line_[at_] != '*') continue;
      ++at_;
      skip_blanks();
      int times = 0;
      if (!number(times, kMaxMicroBatches) || times == 0)
        return problem(fmt::format("behind * a number from 1 to {} is needed", kMaxMicroBatches));
      const std::size_t size = order_.size() - begin;
      if (size * static_cast<std::size_t>(times) > limit_ - begin) return too_long();
      for (int i = 1; i < times; ++i)
        for (std::size_t k = 0; k < size; ++k) order_.push_back(Operation(order_[begin + k]));
    }
  }

  Error too_long() const {
    return Error(
        fmt::format("the schedule has more than {}", count_of(kMaxOperations, "operation")));
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  bool number(int& value, int max) {
    if (at_ == line_.size() || !is_digit(line_[at_])) return false;
    while (at_ < line_.size() && is_digit(line_[at_]) && value <= max)
      value = value * 10 + (line_[at_++] - '0');
    return value <= max;
  }

  std::string_view line_;
  std::size_t limit_;
  std::size_t at_ = 0;
  Order order_;
};

/// Numbers the micro-batches of each kind and chunk, and counts them into `shape`.
void number_micro_batches(Order& order, Shape& shape) {
  std::vector<int> next;
  for (Operation& one : order) {
    shape.chunks = std::max(shape.chunks, one.chunk + 1);
    const std::size_t place =
        static_cast<std::size_t>(one.chunk) * kKinds + static_cast<std::size_t>(one.kind);
    if (next.size() <= place) next.resize(place + 1, 0);
    one.micro_batch = next[place]++;
    shape.micro_batches = std::max(shape.micro_batches, next[place]);
  }
}

}  // namespace

std::string to_text(const Schedule& schedule) {
  Shortener shortener;
  std::string text;
  for (const Order& order : schedule.orders) text += shortener.shorten(order) + '\n';
  return text;
}

Result<Schedule> parse(std::string_view text) {
  Schedule schedule;
  schedule.shape = {0, 1, 1};
  std::size_t left = static_cast<std::size_t>(kMaxOperations);
  int line_number = 1;
  for (std::size_t at = 0; at < text.size(); ++line_number) {
    const std::string_view whole = text.substr(at, text.find('\n', at) - at);
    at += whole.size() + 1;
    const std::string_view line = whole.substr(0, whole.find('#'));
    for (std::size_t from = 0; from <= line.size();) {
      const std::string_view stage = line.substr(from, line.find(';', from) - from);
      from += stage.size() + 1;
      if (stage.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      auto order = Reader(stage, left).read();
      if (!order)
        return order.error().while_doing(fmt::format("line {} of the schedule", line_number));
      if (schedule.shape.stages == kMaxStages)
        return Error(fmt::format("the schedule has more than {}", count_of(kMaxStages, "stage")));
      left -= order->size();
      number_micro_batches(*order, schedule.shape);
      ++schedule.shape.stages;
      schedule.orders.push_back(std::move(*order));
    }
  }
  if (schedule.orders.empty())
    return Error("the schedule is empty; give each stage a line like F*3(FB)*5B*3");
  if (const auto valid = check(schedule); !valid) return valid.error();
  return schedule;
}

Result<Schedule> schedule_for(std::string_view said, const Shape& shape) {
  if (const auto valid = check_shape(shape); !valid) return valid.error();
  if (said.empty()) return interleaved(shape);
  const auto& known = names();
  if (std::find(known.begin(), known.end(), said) != known.end() ||
      (said.front() >= 'a' && said.front() <= 'z'))
    return named(said, shape);
  auto read = parse(said);
  if (!read) return read.error();
  if (read->shape != shape)
    return Error(fmt::format(
        "the schedule is for {}, {} and {}, the plan has {}, {} and {}; give one of the plan's",
        count_of(read->shape.stages, "stage"), count_of(read->shape.chunks, "chunk"),
        count_of(read->shape.micro_batches, "micro-batch"), shape.stages, shape.chunks,
        shape.micro_batches));
  return read;
}

}  // namespace swell::schedule
