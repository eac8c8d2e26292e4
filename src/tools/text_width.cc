// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/text_width.h"

#include <clocale>
#include <cwchar>

#include "core/utf8.h"

namespace swell::tools {

namespace {

/// While it lives, this thread reads characters as UTF-8, whatever the user's locale is.
class Utf8Locale {
 public:
  Utf8Locale() : before_(ours() != nullptr ? uselocale(ours()) : nullptr) {}
  ~Utf8Locale() {
    if (before_ != nullptr) uselocale(before_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

  std::size_t columns(char32_t point) const {
    if (point < 0x80 || before_ == nullptr) return 1;
    const int columns = wcwidth(static_cast<wchar_t>(point));
    return columns < 0 ? 1 : static_cast<std::size_t>(columns);
  }

 private:
  static locale_t ours() {
    static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return locale;
  }
  locale_t before_;
};

}  // namespace

std::size_t columns_of(std::string_view text) {
  const Utf8Locale locale;
  std::size_t sum = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text, at);
    sum += locale.columns(unit.point);
    at += unit.bytes;
  }
  return sum;
}

std::string cut_to(std::string_view text, std::size_t columns) {
  const Utf8Locale locale;
  std::size_t at = 0;
  for (std::size_t sum = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text, at);
    sum += locale.columns(unit.point);
    if (sum > columns) break;
    at += unit.bytes;
  }
  return std::string(text.substr(0, at));
}

}  // namespace swell::tools
