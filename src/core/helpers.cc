// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/helpers.h"

#include "base/mutex.h"

namespace swell {

Helpers::Helpers(int threads, const StartThread& start) {
  try {
    for (int i = 0; i < threads; ++i) threads_.push_back(start([this] { help(); }));
  } catch (...) {
    stop();
    throw;
  }
}

Helpers::~Helpers() { stop(); }

void Helpers::stop() noexcept {
  {
    const Lock lock(mutex_);
    stops_ = true;
    more_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Helpers::run(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (count == 0) return;
  Work work{0, count, &body, 0, nullptr};
  Lock lock(mutex_);
  waiting_.push_back(&work);
  if (count > 1) more_.notify_all();
  while (work.next < work.count) do_next(work);
  done_.wait(lock, [&] { return work.at_work == 0; });
  if (work.problem) std::rethrow_exception(work.problem);
}

void Helpers::help() {
  Lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this]() SWELL_REQUIRES(mutex_) { return stops_ || !waiting_.empty(); });
    if (stops_) return;
    do_next(*waiting_.front());
  }
}

/// Does one piece, with the mutex released meanwhile. REQUIRES: a piece is left.
void Helpers::do_next(Work& work) {
  const std::size_t piece = work.next++;
  if (work.next == work.count) waiting_.remove(&work);
  ++work.at_work;
  mutex_.unlock();
  std::exception_ptr problem;
  try {
    (*work.body)(piece);
  } catch (...) { problem = std::current_exception(); }
  mutex_.lock();
  if (problem && !work.problem) work.problem = problem;
  if (--work.at_work == 0) done_.notify_all();
}

}  // namespace swell
