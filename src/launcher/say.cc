// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/say.h"

#include <unistd.h>

#include "control/printable.h"

namespace swell::launcher {

namespace {

/// Maximum characters of a line; the longest line lists the catalogue of models.
constexpr std::size_t kMaxLine = 8192;

}  // namespace

void say(const std::string& line) {
  const std::string text = "swellrun: " + control::printable(line, kMaxLine) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace swell::launcher
