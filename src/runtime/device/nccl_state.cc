// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/nccl_state.h"

#include <atomic>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "runtime/quiet_thread.h"

namespace swell::runtime {

using Clock = std::chrono::steady_clock;

/// State shared by the thread that calls NCCL and the one that waits; it lives as long as either.
struct NcclState::Shared {
  Shared(std::shared_ptr<const Device> its, const Nccl& library)
      : device(std::move(its)), nccl(library) {}
  const std::shared_ptr<const Device> device;
  const Nccl& nccl;
  std::atomic<bool> is_off = false;       ///< whether to cancel the job
  std::atomic<std::uint64_t> chunks = 0;  ///< number of finished chunks
  Mutex mutex;
  Condition changed;
  Job job SWELL_GUARDED_BY(mutex);  ///< empty: there is nothing to do
  std::optional<Result<std::string>> result SWELL_GUARDED_BY(mutex);
  bool ends SWELL_GUARDED_BY(mutex) = false;
  bool is_over SWELL_GUARDED_BY(mutex) = false;
  std::thread thread;  ///< used only by the thread that waits

  void serve();
};

void NcclState::Shared::serve() {
  {
    auto pairs = NcclPairs::create(device, nccl, is_off);
    Lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&]() SWELL_REQUIRES(mutex) { return ends || job; });
      if (!job) break;
      const Job next = std::exchange(job, {});
      lock.unlock();
      Result<std::string> done = Error("NCCL was not called");
      try {
        done = pairs ? next(**pairs) : pairs.error();
      } catch (const std::exception& problem) { done = Error(problem.what()); }
      lock.lock();
      result = std::move(done);
      changed.notify_all();
    }
    lock.unlock();  // the job calls NCCL
  }
  Lock lock(mutex);
  is_over = true;
  changed.notify_all();
}

NcclState::NcclState(std::shared_ptr<const Device> device, Milliseconds grace, std::string library)
    : device_(std::move(device)), grace_(grace), library_(std::move(library)) {}

NcclState::~NcclState() { leave(); }

void NcclState::leave() {
  failed_.clear();
  if (shared_ == nullptr) return;
  Lock lock(shared_->mutex);
  shared_->ends = true;
  shared_->changed.notify_all();
  const bool is_over = shared_->changed.wait_for(
      lock, grace_, [&]() SWELL_REQUIRES(shared_->mutex) { return shared_->is_over; });
  lock.unlock();
  if (is_over) {
    shared_->thread.join();
    shared_.reset();
  } else {
    abandon();
  }
}

/// Abandons the thread: it has called NCCL, and the call does not return.
void NcclState::abandon() {
  is_stuck_ = true;
  Nccl::give_up();
  shared_->thread.detach();
  shared_.reset();
}

Result<std::string> NcclState::run(Job job, Milliseconds limit, const IsOff& is_off) {
  const auto nccl = Nccl::open(library_);
  if (!nccl) return nccl.error();
  if (shared_ == nullptr) {
    auto shared = std::make_shared<Shared>(device_, **nccl);
    auto thread = quiet_thread([shared] { shared->serve(); });
    if (!thread) return thread.error();
    shared->thread = std::move(*thread);
    shared_ = std::move(shared);
  }
  Shared& shared = *shared_;
  Lock lock(shared.mutex);
  shared.is_off = false;
  shared.result.reset();
  shared.job = std::move(job);
  shared.changed.notify_all();
  std::uint64_t chunks = shared.chunks;
  auto until = Clock::now() + limit;
  constexpr Milliseconds kLook{5};
  while (!shared.changed.wait_for(
      lock, kLook, [&]() SWELL_REQUIRES(shared.mutex) { return shared.result.has_value(); })) {
    if (const std::uint64_t over = shared.chunks; over != chunks) {
      chunks = over;
      if (!shared.is_off) until = Clock::now() + limit;
    }
    if (!shared.is_off && (Clock::now() >= until || (is_off && is_off()))) {
      shared.is_off = true;
      until = Clock::now() + grace_;
    }
    if (Clock::now() < until) continue;
    shared.ends = true;
    lock.unlock();
    abandon();
    return Error(fmt::format("NCCL {} has not returned from a call, and is not used any more",
                             (*nccl)->version()));
  }
  return std::move(*shared.result);
}

Result<std::string> NcclState::open() {
  const auto nccl = Nccl::open(library_);
  if (!nccl) return nccl.error();
  std::string text = "NCCL " + (*nccl)->version();
  for (const char* name : {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_NET"})
    if (const char* set = std::getenv(name)) text += fmt::format(", {}={}", name, set);
  return text;
}

Result<std::string> NcclState::make_id() {
  return run([](NcclPairs& pairs) { return pairs.make_id(); }, grace_, {});
}

Result<void> NcclState::join(std::uint64_t pair, const std::string& id, int rank,
                             Milliseconds limit, const IsOff& is_off) {
  if (!failed_.empty())
    return Error(fmt::format("a communicator of this program has failed: {}", failed_));
  const auto done = run(
      [pair, id, rank](NcclPairs& pairs) -> Result<std::string> {
        if (auto good = pairs.join(pair, id, rank); !good) return good.error();
        return std::string();
      },
      limit, is_off);
  if (done) return {};
  failed_ = done.error().message();
  return done.error();
}

Result<void> NcclState::transfer(std::uint64_t pair, bool sends, std::span<const Run> runs,
                                 Milliseconds limit, const IsOff& is_off) {
  if (shared_ == nullptr) return Error(fmt::format("there is no communicator {} here", pair));
  // Pass a copy: the NCCL call may outlive this function.
  const auto done = run(
      [pair, sends, its = std::vector<Run>(runs.begin(), runs.end()),
       chunks = &shared_->chunks](NcclPairs& pairs) -> Result<std::string> {
        if (auto good = pairs.transfer(pair, sends, its, *chunks); !good) return good.error();
        return std::string();
      },
      limit, is_off);
  return done ? Result<void>() : done.error();
}

}  // namespace swell::runtime
