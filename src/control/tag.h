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

  /// The tag inside an AdminComment, or nothing.
  static std::optional<Tag> find(std::string_view admin_comment);
  /// The comment with its tag replaced (or appended where it has none).
  std::string put_into(std::string_view admin_comment) const;
  /// The comment without any tag.
  static std::string remove_from(std::string_view admin_comment);

  /// The value of a word; empty where there is none.
  std::string get(std::string_view key) const;
  /// The value as a whole number of at least 0, or nothing.
  std::optional<std::int64_t> number(std::string_view key) const;
  Tag& set(std::string_view key, std::string value);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> words_;
};

/// A sentence of anybody's as one word of a tag: letters, digits and a few signs stay, blanks and
/// all else become '_'; at most 200 characters.
std::string as_word(std::string_view sentence);

/// One companion in a parent's tag: `12:node2:0-7`.
struct CompanionWord {
  std::uint32_t id = 0;
  std::string node;
  std::string gpu_indices;
  int gpus = 0;
};
/// "12:node2:8:0-7;13:node3:4:0-3" as `companions=` holds it; "-" where there are none.
std::string companions_text(const std::vector<CompanionWord>& companions);
std::vector<CompanionWord> companions_from(std::string_view text);

}  // namespace swell::control
