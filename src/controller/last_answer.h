// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace swell::controller {

/// Keeps the last answer to a costly question, for a caller that asks the same many times.
template <typename Answer, typename... Question>
class LastAnswer {
 public:
  /// Returns whether `question` was the last one that was asked; get() then is its answer.
  /// Otherwise it is the last one from now on, and has no answer until one is set.
  bool is_to(const Question&... question) {
    if (asked_ && *asked_ == std::tuple<const Question&...>(question...)) return true;
    asked_.emplace(question...);
    answer_ = nullptr;
    return false;
  }
  const std::shared_ptr<const Answer>& get() const noexcept { return answer_; }
  const std::shared_ptr<const Answer>& set(std::shared_ptr<const Answer> answer) {
    answer_ = std::move(answer);
    return answer_;
  }

 private:
  std::optional<std::tuple<Question...>> asked_;
  std::shared_ptr<const Answer> answer_;
};

}  // namespace swell::controller
