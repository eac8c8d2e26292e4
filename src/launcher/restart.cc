// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/restart.h"

#include <csignal>

namespace swell::launcher {

void Restart::left(const Exit& exit, Answer answer) noexcept {
  if (!answer.is_clean || answer.by_signal) must_leave();  // it cannot answer its peers any more
  if (!answer.is_clean || answer.by_signal || exit.signal == SIGKILL) force();
}

}  // namespace swell::launcher
