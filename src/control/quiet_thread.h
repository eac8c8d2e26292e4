// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <pthread.h>
#include <thread>
#include <utility>

#include "base/no_signals.h"
#include "control/small_stack.h"

namespace swell::control {

/// Starts a thread that takes no signals: the process (slurmctld, swellrun) expects them on its own
/// threads. Its stack is a SmallStack.
/// `body` must not throw. Throws std::system_error if no thread can be started.
template <typename Body>
std::thread quiet_thread(const char* name, Body body) {
  const NoSignals none;
  const SmallStack small;
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace swell::control
