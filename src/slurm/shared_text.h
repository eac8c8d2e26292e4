// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

namespace swell::slurm {

/// A text that its copies share, such as a long list that a user wrote into many jobs.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text)
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text != nullptr ? text : "")) {}

  const std::string& get() const noexcept { return text_ != nullptr ? *text_ : kNone; }
  bool empty() const noexcept { return text_ == nullptr; }
  /// Returns whether both are the same text in memory.
  bool shares_with(const SharedText& other) const noexcept { return text_ == other.text_; }

 private:
  friend class TextPool;
  static inline const std::string kNone;
  std::shared_ptr<const std::string> text_;  ///< null: empty
};

/// Makes equal texts share their memory.
class TextPool {
 public:
  void share(SharedText& text) {
    if (!text.empty()) text.text_ = *texts_.insert(text.text_).first;
  }

 private:
  using Text = std::shared_ptr<const std::string>;
  struct Hash {
    std::size_t operator()(const Text& text) const noexcept {
      return std::hash<std::string>()(*text);
    }
  };
  struct Equal {
    bool operator()(const Text& a, const Text& b) const noexcept { return *a == *b; }
  };
  std::unordered_set<Text, Hash, Equal> texts_;
};

}  // namespace swell::slurm
