// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/program_tasks.h"

#include <chrono>
#include <utility>

#include "runtime/transport/transport.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

namespace {

constexpr auto kTaskTime = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(5);
constexpr const char* kGone = "the program that has the GPU is gone, or has not answered before";

}  // namespace

void ProgramTasks::open(bool own) {
  Lock lock(mutex_);
  listens_ = true;
  is_own_ = own;
}

void ProgramTasks::close() {
  Lock turn(turn_);
  Lock lock(mutex_);
  listens_ = false;
}

void ProgramTasks::close(std::uint16_t op, std::string answer) {
  {
    Lock lock(mutex_);
    listens_ = false;
    if (is_busy_) {
      after_ = Message{op, std::move(answer), {}};
      return;
    }
  }
  // A failure does not matter, because the program has died then.
  static_cast<void>(channel_.send(op, answer));
}

void ProgramTasks::lose() {
  {
    Lock lock(mutex_);
    is_lost_ = true;
    changed_.notify_all();
  }
  // Wait for the call that has its turn; after it no thread uses the connection.
  Lock turn(turn_);
}

void ProgramTasks::answer(Message message) {
  Lock lock(mutex_);
  answer_ = std::move(message);
  changed_.notify_all();
}

Result<Message> ProgramTasks::wait_for_answer(const Watch* watch) {
  Lock lock(mutex_);
  if (is_own_) {
    lock.unlock();
    auto message = channel_.receive(within(kTaskTime));
    if (message && message->op != static_cast<std::uint16_t>(Op::task_done))
      return Error("the program did not do what it was asked with its GPU");
    return message;
  }
  const auto until = within(kTaskTime);
  const auto is_over = [&]() SWELL_REQUIRES(mutex_) { return is_lost_ || answer_; };
  bool watches = watch != nullptr && watch->is_off;
  while (watches && within({}) < until && !changed_.wait_for(lock, kLook, is_over)) {
    lock.unlock();
    // The program answers in any case, unless it has died.
    if (watch->is_off()) {
      static_cast<void>(channel_.send(kTaskOp, runtime::write({DeviceTask::Kind::cancel})));
      watches = false;
    }
    lock.lock();
  }
  const bool over = changed_.wait_until(lock, until, is_over);
  if (answer_) return std::move(*answer_);
  // A late answer must not be taken for the answer to another task.
  is_lost_ = true;
  return Error(over ? kGone : "the program that has the GPU did not answer within 60 s");
}

Result<void> ProgramTasks::may_ask() const {
  if (!is_lost_ && listens_) return {};
  if (is_lost_) return Error(kGone);
  return Error("no program waits here that could reach the memory of its GPU");
}

Result<Message> ProgramTasks::ask(const DeviceTask& task, int fd, const Watch* watch) {
  {
    // A call that is too late must not wait for another call's task.
    Lock lock(mutex_);
    if (auto may = may_ask(); !may) return may.error();
  }
  Lock turn(turn_);
  {
    Lock lock(mutex_);
    if (auto may = may_ask(); !may) return may.error();
    answer_.reset();
    is_busy_ = true;
  }
  auto sent = channel_.send(kTaskOp, runtime::write(task), fd);
  if (sent.ok() && watch != nullptr && watch->has_begun) watch->has_begun();
  auto message = sent ? wait_for_answer(watch) : Result<Message>(Error(kGone));
  std::optional<Message> after;
  {
    Lock lock(mutex_);
    is_busy_ = false;
    after = std::exchange(after_, std::nullopt);
  }
  if (after) static_cast<void>(channel_.send(after->op, after->body));
  return message;
}

Result<ProgramTasks::Done> ProgramTasks::run(const DeviceTask& task, int fd, const Watch* watch) {
  auto message = ask(task, fd, watch);
  if (!message) return message.error();
  ByteReader reader(message->body);
  const bool done = reader.get<std::uint8_t>() != 0;
  std::string said = reader.text(4096);
  const auto shortage = get_shortage(reader);
  if (!reader.done()) return Error("what a program says of its GPU cannot be read");
  if (!done) return Error(said, shortage);
  return Done{std::move(message->fd), std::move(said)};
}

Result<std::string> ProgramTasks::its_nccl() {
  const Lock lock(mutex_);
  return nccl_;
}

void ProgramTasks::set_nccl(Result<std::string> its) {
  const Lock lock(mutex_);
  nccl_ = std::move(its);
}

}  // namespace swell::runtime
