// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/recorder.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <utility>

#include "base/mutex.h"

namespace swell::profiler {

namespace {

constexpr int kIndexBits = 16;
constexpr int kGenerations = 1 << 14;
static_assert(Recorder::kMaxSpans <= std::size_t{1} << kIndexBits);

std::uint32_t number_of_this_thread() noexcept {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

bool is_pass(const Span& span) {
  return span.opening.kind == Kind::forward || span.opening.kind == Kind::backward ||
         span.opening.kind == Kind::weights;
}

}  // namespace

std::int64_t Recorder::host_clock() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Recorder::Recorder(Clock clock, OpenDevice open_device) : clock_(clock), open_device_(open_device) {
  current_.spans.reserve(256);
  open_.reserve(kMaxOpen);
  current_.began_ns = clock_();
}

Recorder::~Recorder() {
  if (device_ == nullptr) return;
  give_back_events(current_);
  for (Pending& pending : pending_) give_back_events(pending.step);
}

/// Records an event after the work that is on `stream`. Returns nullptr if that fails; the step is
/// incomplete then.
void* Recorder::mark(void* stream) {
  if (device_->is_captured(stream)) {
    current_.is_whole = false;
    return nullptr;
  }
  void* event = device_->record(stream);
  if (event == nullptr) {
    current_.is_whole = false;
    if (device_problem_.empty()) device_problem_ = "the driver refused an event on a stream";
  }
  return event;
}

int Recorder::begin(const Opening& opening) {
  Lock lock(mutex_);
  if (rests_) return kNotTaken;
  if (open_.size() == kMaxOpen || current_.spans.size() == kMaxSpans) {
    current_.is_whole = false;
    return kFull;
  }
  if (opening.stream != nullptr && device_ == nullptr) {
    if (device_problem_.empty()) {
      auto opened = open_device_();
      if (opened) device_ = std::move(*opened);
      else device_problem_ = opened.error().message();
    }
    if (device_ == nullptr) {
      current_.is_whole = false;
      return kNoDevice;
    }
  }
  Span span;
  span.opening = opening;
  span.thread = number_of_this_thread();
  const Span *own = nullptr,
             *any = nullptr;  // the innermost passes on this thread and on any thread
  for (auto at = open_.rbegin(); at != open_.rend(); ++at) {
    const Span& other = current_.spans[static_cast<std::size_t>(*at)];
    if (other.thread == span.thread && span.parent < 0) span.parent = *at;
    if (!is_pass(other)) continue;
    if (any == nullptr) any = &other;
    if (own == nullptr && other.thread == span.thread) own = &other;
  }
  if (const Span* pass = own != nullptr ? own : any; pass != nullptr) {
    span.in_forward = pass->opening.kind == Kind::forward;
    span.in_backward = !span.in_forward;
  }
  peak_bytes_ = std::max(peak_bytes_, opening.allocated_bytes);
  const auto index = static_cast<std::int32_t>(current_.spans.size());
  current_.spans.push_back(span);
  open_.push_back(index);
  Span& kept = current_.spans.back();
  if (opening.stream != nullptr) kept.began_event = mark(opening.stream);
  kept.began_ns = clock_();  // read last, so that the time spent here belongs to no region
  return generation_ << kIndexBits | index;
}

bool Recorder::end(int region, std::uint64_t allocated_bytes) {
  if (region == kNotTaken) return true;
  const std::int64_t now = clock_();
  Lock lock(mutex_);
  if (region < 0 || region >> kIndexBits != generation_) return false;
  const auto index = static_cast<std::int32_t>(region & ((1 << kIndexBits) - 1));
  const auto at = std::find(open_.rbegin(), open_.rend(), index);
  if (at == open_.rend()) return false;
  open_.erase(std::next(at).base());
  Span& span = current_.spans[static_cast<std::size_t>(index)];
  if (span.opening.stream != nullptr) span.ended_event = mark(span.opening.stream);
  span.ended_ns = now;
  span.allocated_bytes = allocated_bytes;
  peak_bytes_ = std::max(peak_bytes_, allocated_bytes);
  return true;
}

void Recorder::observe_memory(std::uint64_t peak_bytes) {
  Lock lock(mutex_);
  peak_bytes_ = std::max(peak_bytes_, peak_bytes);
}

std::uint64_t Recorder::peak_bytes() const {
  Lock lock(mutex_);
  return peak_bytes_;
}

std::string Recorder::device_problem() const {
  Lock lock(mutex_);
  return device_problem_;
}

void Recorder::step(std::uint64_t number, bool rests) {
  Lock lock(mutex_);
  rests_ = rests;
  const std::int64_t now = clock_();
  if (pending_.size() == kMaxPending) {
    // The device is too far behind: drop the oldest step instead of waiting for it.
    give_back_events(pending_.front().step);
    spare_.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  Pending done;
  if (!spare_.empty()) {
    done = std::move(spare_.back());
    spare_.pop_back();
  }
  std::swap(done.step, current_);
  current_.spans.clear();
  current_.is_whole = true;
  current_.began_ns = now;
  done.step.number = number;
  done.step.ended_ns = now;
  done.last_events.clear();
  open_.clear();
  generation_ = (generation_ + 1) % kGenerations;
  // The event that was recorded last on each stream is also the last to pass.
  std::vector<Span>& spans = done.step.spans;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->began_event == nullptr) continue;
    const bool seen = std::any_of(spans.rbegin(), span, [&](const Span& later) {
      return later.began_event != nullptr && later.opening.stream == span->opening.stream;
    });
    if (seen) continue;
    // Take the span on this stream that closed last.
    const Span* last = &*span;
    for (const Span& other : spans)
      if (other.opening.stream == span->opening.stream && other.ended_event != nullptr &&
          (last->ended_event == nullptr || other.ended_ns > last->ended_ns))
        last = &other;
    done.last_events.push_back(last->ended_event != nullptr ? last->ended_event
                                                            : last->began_event);
  }
  pending_.push_back(std::move(done));
}

void Recorder::give_back_events(Step& step) {
  for (Span& span : step.spans)
    for (void** event : {&span.began_event, &span.ended_event})
      if (void* taken = std::exchange(*event, nullptr); taken != nullptr) device_->give_back(taken);
}

/// Sets the times of a step's regions on the device. Returns false if the device has not finished
/// the step.
bool Recorder::resolve(Pending& pending) {
  for (void* event : pending.last_events) {
    const auto state = device_->state(event);
    if (state == DeviceClock::State::pending) return false;
    if (state != DeviceClock::State::failed) continue;
    pending.step.is_whole = false;
    if (device_problem_.empty()) device_problem_ = "the driver has an error for an event";
  }
  if (pending.last_events.empty()) return true;
  void* base = nullptr;
  for (Span& span : pending.step.spans) {
    if (span.began_event == nullptr) continue;
    if (base == nullptr) base = span.began_event;
    if (span.ended_event == nullptr || !pending.step.is_whole) continue;
    const auto began = device_->ns_between(base, span.began_event),
               ended = device_->ns_between(base, span.ended_event);
    if (began && ended) {
      span.device_began_ns = *began;
      span.device_ended_ns = std::max(*began, *ended);
      span.on_device = true;
    } else {
      pending.step.is_whole = false;
    }
  }
  give_back_events(pending.step);
  return true;
}

const Step* Recorder::next() {
  Lock lock(mutex_);
  if (pending_.empty() || !resolve(pending_.front())) return nullptr;
  if (spare_.size() < kMaxPending) spare_.push_back(std::move(given_));
  given_ = std::move(pending_.front());
  pending_.pop_front();
  return &given_.step;
}

}  // namespace swell::profiler
