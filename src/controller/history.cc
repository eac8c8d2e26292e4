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

#include "control/quiet_thread.h"

namespace swell::controller {

namespace {

/// As other background threads in slurmctld: it gives way to slurmctld's own.
constexpr int kNiceness = 10;
/// Records that wait for the disk.
constexpr std::size_t kMaxWaiting = 50'000;
constexpr std::size_t kMaxQuestions = 64;
/// Bytes of one answer: with the rest it fits one frame.
constexpr std::size_t kMaxAnswer = 24'000;
/// How often old jobs are looked for.
constexpr double kForgetEvery_s = 3600;
constexpr double kDay_s = 86'400;

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

History::History(Options options) : options_(std::move(options)) {
  thread_ = control::quiet_thread("swell-history", [this] { run(); });
}

History::~History() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void History::say(const std::string& line) const {
  if (options_.log) options_.log(line);
}

void History::add(history::Record record) {
  const std::lock_guard lock(mutex_);
  if (wanted_.records.size() >= kMaxWaiting) {
    if (!std::exchange(complained_, true))
      say("the history falls behind: what happens meanwhile is not kept");
    return;
  }
  wanted_.records.push_back(std::move(record));
  changed_.notify_all();
}

void History::running(std::vector<control::JobId> jobs) {
  const std::lock_guard lock(mutex_);
  wanted_.running = std::move(jobs);
  changed_.notify_all();
}

bool History::ask(Question question) {
  const std::lock_guard lock(mutex_);
  if (wanted_.questions.size() >= kMaxQuestions) return false;
  wanted_.questions.push_back(question);
  changed_.notify_all();
  return true;
}

std::vector<History::Reply> History::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(replies_, {});
}

void History::run() noexcept {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stops_ || !wanted_.empty(); });
    if (wanted_.empty()) return;
    const Work work = std::exchange(wanted_, {});
    lock.unlock();
    std::vector<Reply> replies;
    try {
      write(work);
      for (const Question& each : work.questions)
        replies.push_back(
            {each.connection, store_ ? store_->of_job(each.job, each.uid, each.after, kMaxAnswer)
                                     : Result<Json>(Error("there is no history: " + problem_))});
    } catch (const std::exception& problem) {  // out of memory: what was to be kept is lost
    }
    lock.lock();
    complained_ = false;
    if (replies.empty()) continue;
    std::move(replies.begin(), replies.end(), std::back_inserter(replies_));
    if (!options_.ready) continue;
    lock.unlock();
    options_.ready();
    lock.lock();
  }
}

void History::open() {
  std::string said;
  Result<HistoryStore> opened = HistoryStore::open_or_rebuild(options_.path, said);
  if (!said.empty()) say(said);
  if (opened) {
    store_ = std::move(*opened);
    problem_.clear();
  } else if (opened.error().message() != std::exchange(problem_, opened.error().message())) {
    say("no history is kept: " + problem_);
  }
}

void History::write(const Work& work) {
  const double now = wall_clock();
  for (const history::Record& record : work.records) {
    if (const auto* job = std::get_if<history::Job>(&record)) {
      std::erase_if(known_, [&](const auto& each) { return each.job == job->job; });
      known_.push_back(*job);
    }
    if (const auto* event = std::get_if<history::Event>(&record);
        event != nullptr && event->kind == "job-ended" && store_)
      std::erase_if(known_, [&](const auto& each) { return each.job == event->job; });
  }
  // Taken away: what is written would be lost with the last who has it open.
  if (store_ && ::access(options_.path.c_str(), F_OK) != 0) store_.reset();
  const bool is_new = !store_;
  if (!store_) open();
  for (int attempt = 0; store_ && attempt < 2; ++attempt) {
    std::vector<history::Record> records;
    if (is_new || attempt > 0) records.assign(known_.begin(), known_.end());
    records.insert(records.end(), work.records.begin(), work.records.end());
    Result<void> kept = store_->write(now, records);
    if (kept && work.running) kept = store_->only_these_run(now, *work.running);
    if (kept && now - forgotten_ >= kForgetEvery_s) {
      forgotten_ = now;
      kept = store_->forget_before(now - options_.keep_days * kDay_s);
    }
    if (kept) return;
    // The file was damaged, or taken away, while it was open: open() sets it aside.
    store_.reset();
    if (attempt == 0) open();
    else if (kept.error().message() != std::exchange(problem_, kept.error().message()))
      say("the history could not be written: " + problem_);
  }
}

}  // namespace swell::controller
