// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/history.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "base/mutex.h"
#include "control/quiet_thread.h"
#include "core/count_of.h"

namespace swell::controller {

namespace {

/// Niceness of the thread, as of other background threads in slurmctld, so that slurmctld's own
/// threads go first.
constexpr int kNiceness = 10;
/// Maximum number of records that wait for the disk, or for another process that uses the file, and
/// their maximum size.
constexpr std::size_t kMaxWaiting = 50'000;
constexpr std::size_t kMaxWaitingBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxQuestions = 64;
/// Maximum bytes of one answer, so that the whole message fits one frame.
constexpr std::size_t kMaxAnswer = 24'000;
/// Seconds between two searches for old jobs.
constexpr double kForgetEvery_s = 3600;
constexpr double kDay_s = 86'400;
// Reasons why records wait.
constexpr const char* kOthersHaveIt =
    "others have the history's file: what happens meanwhile waits";
constexpr const char* kCannotBeWritten =
    "the history's file takes nothing more: what happens meanwhile waits until it can be written";

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::size_t texts_of(const history::Job& job) { return job.spec.size(); }
std::size_t texts_of(const history::Event& event) {
  return event.kind.size() + event.node.size() + event.reason.size() + event.details.size() +
         event.once.size();
}
std::size_t texts_of(const history::Profile& profile) {
  return profile.profile.size() + profile.coefficients.size();
}
std::size_t texts_of(const history::Pause& pause) { return pause.bytes_by_path.size(); }
std::size_t texts_of(const history::Scale& scale) { return scale.table.size(); }

std::size_t size_of(const history::Record& record) {
  return sizeof record + std::visit([](const auto& one) { return texts_of(one); }, record);
}

}  // namespace

History::History(Options options) : options_(std::move(options)) {
  thread_ = control::quiet_thread("swell-history", [this] { run(); });
}

History::~History() {
  {
    const Lock lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void History::say(const std::string& line) const {
  if (options_.log) options_.log(line);
}

void History::add(history::Record record) {
  const std::size_t size = size_of(record);
  const Lock lock(mutex_);
  if (wanted_.list.size() + taken_ >= kMaxWaiting ||
      wanted_.bytes + taken_bytes_ + size > kMaxWaitingBytes) {
    if (!std::exchange(complained_, true))
      say("the history falls behind: what happens meanwhile is not kept");
    return;
  }
  wanted_.list.push_back({wall_clock(), std::move(record)});
  wanted_.bytes += size;
  changed_.notify_all();
}

void History::running(std::vector<control::JobId> jobs) {
  const Lock lock(mutex_);
  wanted_.running = std::move(jobs);
  wanted_.running_since = wall_clock();
  changed_.notify_all();
}

bool History::ask(Question question) {
  const Lock lock(mutex_);
  if (questions_.size() >= kMaxQuestions) return false;
  questions_.push_back(question);
  changed_.notify_all();
  return true;
}

std::vector<History::Reply> History::take() {
  const Lock lock(mutex_);
  return std::exchange(replies_, {});
}

std::vector<history::Scale> History::take_scales() {
  const Lock lock(mutex_);
  return std::exchange(scales_, {});
}

std::string History::trouble() {
  const Lock lock(mutex_);
  return trouble_;
}

void History::run() noexcept {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
  const auto has_work = [this]() SWELL_REQUIRES(mutex_) {
    return stops_ || !questions_.empty() || (!waits_ && !wanted_.empty());
  };
  Lock lock(mutex_);
  for (;;) {
    if (waits_) changed_.wait_until(lock, again_, has_work);
    else changed_.wait(lock, has_work);
    const bool ends = stops_;
    const std::vector<Question> questions = std::exchange(questions_, {});
    std::vector<Reply> replies;
    try {
      take_wanted();
    } catch (const std::exception& problem) {  // out of memory: what was to be kept is lost
      waiting_ = {};
    }
    lock.unlock();
    try {
      const bool is_due = ends || !waits_ || std::chrono::steady_clock::now() >= again_;
      if (is_due && (!waiting_.empty() || (!ends && (waits_ || !questions.empty())))) write();
      for (const Question& each : questions) replies.push_back({each.connection, answer(each)});
    } catch (const std::exception& problem) {  // out of memory: what was to be kept is lost
      waiting_ = {};
    }
    lock.lock();
    trouble_ = problem_;
    taken_ = waiting_.list.size();
    taken_bytes_ = waiting_.bytes;
    if (taken_ == 0) complained_ = false;
    if (ends) {
      if (taken_ > 0)
        say(fmt::format("the history has lost {}: {}", count_of(taken_, "record"), problem_));
      return;
    }
    if (replies.empty() && scales_.empty()) continue;
    std::move(replies.begin(), replies.end(), std::back_inserter(replies_));
    if (!options_.ready) continue;
    lock.unlock();
    options_.ready();
    lock.lock();
  }
}

/// Appends the records handed over to those that wait.
void History::take_wanted() {
  waiting_.list.insert(waiting_.list.end(), std::make_move_iterator(wanted_.list.begin()),
                       std::make_move_iterator(wanted_.list.end()));
  waiting_.bytes += wanted_.bytes;
  if (wanted_.running) {
    waiting_.running = std::move(wanted_.running);
    waiting_.running_since = wanted_.running_since;
  }
  wanted_ = {};
  taken_ = waiting_.list.size();
  taken_bytes_ = waiting_.bytes;
}

Result<Json> History::answer(const Question& question) const {
  if (!store_) return Error("there is no history: " + problem_);
  if (question.last > 0)
    return store_->last_changes(question.job, question.uid, question.last, kMaxAnswer);
  return store_->of_job(question.job, question.uid, question.after, kMaxAnswer,
                        question.with_profiles);
}

void History::open() {
  HistoryStore::Opening opened = HistoryStore::open_or_rebuild(options_.path, options_.busy_ms);
  if (!opened.said.empty()) say(opened.said);
  store_ = std::move(opened.store);
  are_known_written_ = false;
  if (store_) return;
  const bool is_new = opened.problem != std::exchange(problem_, opened.problem);
  if (opened.is_busy) wait(kOthersHaveIt);
  else if (opened.is_full) wait(kCannotBeWritten);
  else if (is_new) say("no history is kept: " + problem_);
}

/// Writes the waiting records. If others have the file, or the disk is full, they wait on; if
/// the file cannot be written for another reason they are dropped.
void History::write() {
  if (std::exchange(waits_, false) && store_ && store_->disk_failed()) store_.reset();
  // The file was removed: records written to it would be lost with its last open descriptor.
  if (store_ && ::access(options_.path.c_str(), F_OK) != 0) store_.reset();
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!store_) open();
    if (!store_) break;
    const Result<void> kept = write_to(*store_);
    if (kept) {
      problem_.clear();
      said_waiting_.clear();
      return;
    }
    const bool is_new = kept.error().message() != std::exchange(problem_, kept.error().message());
    if (store_->was_busy()) return wait(kOthersHaveIt);
    if (store_->was_full()) return wait(kCannotBeWritten);
    // The file was damaged, or taken away, while it was open: open() sets it aside.
    store_.reset();
    if (attempt > 0 && is_new) say("the history could not be written: " + problem_);
  }
  if (!waits_) done_with_records();
}

Result<void> History::write_to(HistoryStore& store) {
  const double now = wall_clock();
  std::vector<history::Stamped> before;
  if (!are_known_written_)
    for (const history::Job& job : known_) before.push_back({now, job});
  if (Result<void> kept = store.write(before); !kept) return kept;
  are_known_written_ = true;
  if (!waiting_.list.empty())
    if (Result<void> kept = store.write(waiting_.list); !kept) return kept;
  std::optional<std::vector<control::JobId>> running = std::exchange(waiting_.running, {});
  const double running_since = waiting_.running_since;
  written_ += waiting_.bytes;
  done_with_records();
  if (running) {
    // Some may have begun while this waited.
    for (const history::Job& job : known_) running->push_back(job.job);
    if (Result<void> kept = store.only_these_run(running_since, *running); !kept) {
      waiting_.running = std::move(running);
      waiting_.running_since = running_since;
      return kept;
    }
    std::vector<history::Scale> scales = store.scales_of(*running);
    const Lock lock(mutex_);
    scales_ = std::move(scales);
  }
  const auto many = static_cast<std::size_t>(options_.max_bytes_of_user / 8);
  if (now - forgotten_ < kForgetEvery_s && written_ < many) return {};
  if (Result<void> kept = store.keep_within(options_.max_bytes_of_user, options_.max_bytes); !kept)
    return kept;
  written_ = 0;
  if (Result<void> kept = store.forget_before(now - options_.keep_days * kDay_s); !kept)
    return kept;
  forgotten_ = now;
  return {};
}

void History::wait(const char* why) {
  waits_ = true;
  again_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.busy_ms);
  if (std::exchange(said_waiting_, why) != why) say(fmt::format("{} ({})", why, problem_));
}

/// Follows which jobs run, and forgets the records, which are written or dropped.
void History::done_with_records() {
  for (const history::Stamped& each : waiting_.list) {
    const auto* job = std::get_if<history::Job>(&each.record);
    const auto* event = std::get_if<history::Event>(&each.record);
    if (job == nullptr && (event == nullptr || event->kind != "job-ended")) continue;
    const control::JobId id = job != nullptr ? job->job : event->job;
    std::erase_if(known_, [&](const auto& known) { return known.job == id; });
    if (job != nullptr) known_.push_back(*job);
  }
  waiting_ = {};
}

}  // namespace swell::controller
