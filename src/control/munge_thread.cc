// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/munge_thread.h"

#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <fmt/format.h>
#include <munge.h>
#include <poll.h>

#include "base/mutex.h"
#include "control/quiet_thread.h"
#include "control/thread_time.h"
#include "control/wake_fd.h"

namespace swell::control {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRetryPause = std::chrono::milliseconds(500);

struct Work {
  std::uint64_t ticket = 0;
  bool open = false;
  std::string data;
  std::optional<uid_t> reader;
  Clock::time_point try_until{};  ///< until then, try again if munged cannot be reached
};

struct Outcome {
  MungeThread::Done done;
  bool is_unreachable = false;  ///< there is no munged now; nothing was tried
};

using Context = std::unique_ptr<munge_ctx, decltype(&munge_ctx_destroy)>;

Context new_context(const std::string& socket) {
  Context context(munge_ctx_create(), &munge_ctx_destroy);
  if (context && !socket.empty()) munge_ctx_set(context.get(), MUNGE_OPT_SOCKET, socket.c_str());
  return context;
}

Error problem(const char* what, munge_err_t code, munge_ctx_t context) {
  const char* detail = context != nullptr ? munge_ctx_strerror(context) : nullptr;
  return Error(fmt::format("{}: {}{}", what, detail != nullptr ? detail : munge_strerror(code),
                           code == EMUNGE_SOCKET
                               ? "; Swell needs munge, also beside AuthType=auth/slurm: "
                                 "start munged, with one key for all hosts"
                               : ""));
}

// Each call gets a fresh context: decoding overwrites it.
Outcome outcome_of(const Work& work, const std::string& socket) {
  Outcome outcome;
  MungeThread::Done& result = outcome.done;
  result.ticket = work.ticket;
  result.opened = work.open;
  const Context context = new_context(socket);
  if (!context) {
    result.error = Error("munge: out of memory");
  } else if (work.open) {
    void* payload = nullptr;
    int length = 0;
    gid_t gid = static_cast<gid_t>(-1);
    const munge_err_t code =
        munge_decode(work.data.c_str(), context.get(), &payload, &length, &result.uid, &gid);
    outcome.is_unreachable = code == EMUNGE_SOCKET;
    if (code != EMUNGE_SUCCESS)
      result.error = problem("munge refused the credential", code, context.get());
    else if (payload != nullptr)
      result.data.assign(static_cast<const char*>(payload), static_cast<std::size_t>(length));
    std::free(payload);
  } else {
    munge_ctx_set(context.get(), MUNGE_OPT_TTL, MungeThread::kLifetime_s);
    if (work.reader) munge_ctx_set(context.get(), MUNGE_OPT_UID_RESTRICTION, *work.reader);
    char* credential = nullptr;
    const munge_err_t code = munge_encode(&credential, context.get(), work.data.data(),
                                          static_cast<int>(work.data.size()));
    outcome.is_unreachable = code == EMUNGE_SOCKET;
    if (code != EMUNGE_SUCCESS)
      result.error = problem("munge made no credential", code, context.get());
    else result.data = credential;
    std::free(credential);
  }
  return outcome;
}

// A thread that is left behind still needs its code after its plugin is unloaded.
void keep_this_library_loaded() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&keep_this_library_loaded), &info) != 0 &&
      info.dli_fname != nullptr)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

struct MungeThread::State {
  explicit State(std::string munge_socket) : socket(std::move(munge_socket)) {}
  const std::string socket;
  WakeFd wake;
  Mutex mutex;
  Condition changed;
  std::deque<Work> work SWELL_GUARDED_BY(mutex);
  std::vector<Done> done SWELL_GUARDED_BY(mutex);
  std::chrono::seconds patience SWELL_GUARDED_BY(mutex){0};
  bool stop SWELL_GUARDED_BY(mutex) = false;
  bool ended SWELL_GUARDED_BY(mutex) = false;
  std::thread thread;

  void run() {
    Lock lock(mutex);
    while (!stop) {
      if (work.empty()) {
        changed.wait(lock);
        continue;
      }
      Work next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      Outcome outcome;
      ThreadLaps laps;
      try {
        outcome = outcome_of(next, socket);
      } catch (const std::exception& e) {
        outcome.done.ticket = next.ticket;
        outcome.done.opened = next.open;
        outcome.done.error = Error(std::string("munge: ") + e.what());
      }
      outcome.done.cpu_s = laps.lap_s();
      lock.lock();
      if (outcome.is_unreachable && Clock::now() < next.try_until) {
        work.push_front(std::move(next));
        changed.wait_for(lock, kRetryPause, [this]() SWELL_REQUIRES(mutex) { return stop; });
        continue;
      }
      done.push_back(std::move(outcome.done));
      wake.signal();
    }
    ended = true;
    changed.notify_all();
  }

  void add(Work next) {
    const Lock lock(mutex);
    next.try_until = Clock::now() + patience;
    work.push_back(std::move(next));
    changed.notify_all();
  }
};

Result<std::unique_ptr<MungeThread>> MungeThread::start(const std::string& socket) {
  try {
    auto state = std::make_shared<State>(socket);
    if (state->wake.fd() < 0) return Error("munge: no eventfd: too many open files");
    state->thread = quiet_thread("swell-munge", [state] { state->run(); });
    return std::unique_ptr<MungeThread>(new MungeThread(std::move(state)));
  } catch (const std::exception& e) {
    return Error(std::string("starting the munge thread: ") + e.what());
  }
}

MungeThread::~MungeThread() {
  Lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  const bool ended =
      state_->changed.wait_for(lock, std::chrono::seconds(2),
                               [this]() SWELL_REQUIRES(state_->mutex) { return state_->ended; });
  lock.unlock();
  if (ended) {
    state_->thread.join();
    return;
  }
  keep_this_library_loaded();
  state_->thread.detach();
}

void MungeThread::seal(std::uint64_t ticket, std::string payload, std::optional<uid_t> reader) {
  state_->add({ticket, false, std::move(payload), reader, {}});
}

void MungeThread::open(std::uint64_t ticket, std::string credential) {
  state_->add({ticket, true, std::move(credential), std::nullopt, {}});
}

void MungeThread::set_patience(std::chrono::seconds patience) {
  const Lock lock(state_->mutex);
  state_->patience = patience;
}

int MungeThread::fd() const noexcept { return state_->wake.fd(); }

std::vector<MungeThread::Done> MungeThread::take() {
  const Lock lock(state_->mutex);
  state_->wake.clear();
  return std::exchange(state_->done, {});
}

Result<MungeThread::Done> MungeThread::wait(std::uint64_t ticket,
                                            std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    for (Done& one : take())
      if (one.ticket == ticket) return std::move(one);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Error("munged does not answer");
    pollfd ready{fd(), POLLIN, 0};
    poll(&ready, 1, static_cast<int>(left.count()));
  }
}

}  // namespace swell::control
