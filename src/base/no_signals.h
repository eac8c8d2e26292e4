// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csignal>
#include <pthread.h>

namespace swell {

/// Blocks all signals of this thread while an object exists. Threads that it starts meanwhile block
/// them for their whole life.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace swell
