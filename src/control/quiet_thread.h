// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <csignal>
#include <pthread.h>
#include <thread>
#include <utility>

#include "control/small_stack.h"

namespace swell::control {

/// Starts a thread that takes no signals: the process (slurmctld, swellrun) expects them on its own
/// threads. Its stack is a SmallStack.
/// `body` must not throw. Throws std::system_error if no thread can be started.
template <typename Body>
std::thread quiet_thread(const char* name, Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  const SmallStack small;
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace swell::control
