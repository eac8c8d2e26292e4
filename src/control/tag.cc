// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/tag.h"

#include <fmt/format.h>
#include <sstream>

#include "core/number.h"

namespace swell::control {

namespace {

constexpr std::string_view kOpening = "swell[";

/// These stand for signs in a word: a real apostrophe would end a string of SQL or of a shell,
/// KEY=VALUE may pass for a word of the tag in a site's scripts, and '_' stands for a blank. Older
/// readers show them as they are.
constexpr char kApostrophe = '^';
constexpr char kEquals = '@';
constexpr char kUnderscore = '~';

/// Returns the position of the tag in a comment: [begin, end) with its brackets, or nothing.
std::optional<std::pair<std::size_t, std::size_t>> span_of(std::string_view comment) {
  const std::size_t begin = comment.find(kOpening);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = comment.find(']', begin);
  if (end == std::string_view::npos) return std::nullopt;
  return std::pair{begin, end + 1};
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

std::optional<Tag> Tag::find(std::string_view admin_comment) {
  const auto span = span_of(admin_comment);
  if (!span) return std::nullopt;
  Tag tag;
  const std::string_view inside = admin_comment.substr(
      span->first + kOpening.size(), span->second - span->first - kOpening.size() - 1);
  for (const std::string& word : split(inside, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos)
      tag.words_.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return tag;
}

std::string Tag::put_into(std::string_view admin_comment) const {
  if (const auto span = span_of(admin_comment))
    return fmt::format("{}{}{}", admin_comment.substr(0, span->first), text(),
                       admin_comment.substr(span->second));
  return admin_comment.empty() ? text() : fmt::format("{} {}", admin_comment, text());
}

std::string Tag::remove_from(std::string_view admin_comment) {
  std::string rest(admin_comment);
  while (const auto span = span_of(rest)) rest.erase(span->first, span->second - span->first);
  // Remove half a tag, which text appended later could make a whole one.
  for (std::size_t at; (at = rest.find(kOpening)) != std::string::npos;)
    rest.erase(at, kOpening.size());
  return rest;
}

std::string Tag::get(std::string_view key) const {
  for (const auto& [name, value] : words_)
    if (name == key) return value;
  return {};
}

std::optional<std::int64_t> Tag::number(std::string_view key) const {
  return read_whole<std::int64_t>(get(key));
}

Tag& Tag::set(std::string_view key, std::string value) {
  for (auto& [name, old] : words_)
    if (name == key) {
      old = std::move(value);
      return *this;
    }
  words_.emplace_back(std::string(key), std::move(value));
  return *this;
}

std::string Tag::text() const {
  std::string result(kOpening);
  for (const auto& [name, value] : words_) {
    if (result.size() > kOpening.size()) result += ' ';
    result += name + "=" + value;
  }
  return result + "]";
}

std::string as_word(std::string_view sentence) {
  constexpr std::size_t kMaxCharacters = 200;
  std::string word(sentence.substr(0, kMaxCharacters));
  for (char& each : word) {
    const bool stays = (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
                       (each >= '0' && each <= '9') ||
                       std::string_view("-.,:;/+%()").find(each) != std::string_view::npos;
    if (!stays)
      each = each == '\'' ? kApostrophe : each == '=' ? kEquals : each == '_' ? kUnderscore : '_';
  }
  return word;
}

std::string as_sentence(std::string_view word) {
  std::string sentence(word);
  for (char& each : sentence)
    each = each == '_'           ? ' '
           : each == kApostrophe ? '\''
           : each == kEquals     ? '='
           : each == kUnderscore ? '_'
                                 : each;
  return sentence;
}

std::string companions_text(const std::vector<CompanionWord>& companions) {
  std::string result;
  for (const CompanionWord& each : companions)
    result += fmt::format("{}{}:{}:{}:{}", result.empty() ? "" : ";", each.id, each.node, each.gpus,
                          each.gpu_indices.empty() ? "?" : each.gpu_indices);
  return result.empty() ? "-" : result;
}

std::vector<CompanionWord> companions_from(std::string_view text) {
  std::vector<CompanionWord> companions;
  for (const std::string& entry : split(text, ';')) {
    const std::vector<std::string> parts = split(entry, ':');
    if (parts.size() != 4) continue;
    const auto id = read_whole<std::uint32_t>(parts[0]);
    const auto gpus = read_whole<int>(parts[2]);
    if (id && gpus) companions.push_back({*id, parts[1], parts[3], *gpus});
  }
  return companions;
}

}  // namespace swell::control
