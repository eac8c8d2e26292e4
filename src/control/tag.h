// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace swell::control {

/// Swell's words in a job's AdminComment, for people and for itself after a restart:
/// `swell[key=value key=value ...]`. Text of others around the brackets is kept.
class Tag {
 public:
  Tag() = default;
  Tag(std::initializer_list<std::pair<std::string, std::string>> words) : words_(words) {}

  /// Returns the tag inside an AdminComment, or nothing.
  static std::optional<Tag> find(std::string_view admin_comment);
  /// Returns the comment with its tag replaced, or appended if it has none.
  std::string put_into(std::string_view admin_comment) const;
  /// Returns the comment without any tag.
  static std::string remove_from(std::string_view admin_comment);

  /// Returns the value of a word; empty if there is none.
  std::string get(std::string_view key) const;
  /// Returns the value as a whole number of at least 0, or nothing.
  std::optional<std::int64_t> number(std::string_view key) const;
  Tag& set(std::string_view key, std::string value);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> words_;
};

/// Returns any sentence as one word of a tag, at most 200 characters: keeps letters, digits and a
/// few signs, writes "'" as '^', '=' as '@' and '_' as '~', and replaces all else by '_'.
std::string as_word(std::string_view sentence);
/// Returns the sentence that as_word() encoded, with a blank for each character that it replaced.
std::string as_sentence(std::string_view word);

/// One companion in a parent's tag: `12:node2:8:0-7`.
struct CompanionWord {
  std::uint32_t id = 0;
  std::string node;
  std::string gpu_indices;
  int gpus = 0;
};
/// Returns the value of `companions=`: "12:node2:8:0-7;13:node3:4:0-3"; "-" if there are none.
std::string companions_text(const std::vector<CompanionWord>& companions);
std::vector<CompanionWord> companions_from(std::string_view text);

}  // namespace swell::control
