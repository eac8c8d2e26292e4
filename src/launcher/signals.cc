// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/signals.h"

#include <csignal>
#include <cstring>
#include <strings.h>

#include "core/number.h"

namespace swell::launcher {

std::optional<int> signal_from(std::string_view text) {
  if (const auto number = read_number<int>(text))
    return *number > 0 && *number < NSIG ? number : std::nullopt;
  std::string name(text);
  if (strncasecmp(name.c_str(), "SIG", 3) == 0) name.erase(0, 3);
  for (int each = 1; each < NSIG; ++each) {
    const char* known = sigabbrev_np(each);
    if (known != nullptr && strcasecmp(known, name.c_str()) == 0) return each;
  }
  return std::nullopt;
}

std::string signal_name(int number) {
  const char* known = sigabbrev_np(number);
  return known != nullptr ? known : std::to_string(number);
}

}  // namespace swell::launcher
