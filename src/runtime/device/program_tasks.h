// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "core/result.h"
#include "runtime/device/device_task.h"
#include "runtime/transport/channel.h"

namespace swell::runtime {

/// A keeper's tasks for the program at the other end of a connection, which does them while it
/// waits for an answer of the shim. Any thread may call; one task runs at a time. A program that
/// continues its training gets no further task, and no task is under way then.
class ProgramTasks {
 public:
  /// REQUIRES: `channel` outlives lose().
  explicit ProgramTasks(Channel& channel) noexcept : channel_(channel) {}

  /// Accepts tasks: the program waits from now on. `own`: the calling thread is the one that reads
  /// the connection.
  void open(bool own = false);
  /// Accepts no more tasks, because the program is about to be answered. Waits for the task that is
  /// under way.
  void close();
  /// Accepts no more tasks, and answers the program. Does not wait: if a task is under way, its
  /// thread sends the answer when the task is over.
  void close(std::uint16_t op, std::string answer);
  /// Fails the current and all later tasks: the connection has ended.
  void lose();
  /// Takes the program's answer to its task. The thread that reads the connection calls it.
  void answer(Message message);

  /// Callbacks for a task of NCCL, in which another program takes part. The thread that waits for
  /// the task calls them.
  struct Watch {
    std::function<void()> has_begun = {};  ///< called once the program has received the task
    std::function<bool()> is_off = {};     ///< called repeatedly: whether to cancel the task
  };
  /// Answer of the program.
  struct Done {
    Descriptor fd;
    std::string said;
  };
  /// Has the program do a task, and waits for its answer. The error is the program's, or says why
  /// it cannot be asked.
  Result<Done> run(const DeviceTask& task, int fd = -1, const Watch* watch = nullptr);

  /// Returns which NCCL the program has, after the shim has asked it; the error says why it has
  /// none.
  Result<std::string> its_nccl();
  void set_nccl(Result<std::string> its);

 private:
  Result<Message> ask(const DeviceTask& task, int fd, const Watch* watch);
  Result<void> may_ask() const SWELL_REQUIRES(mutex_);
  Result<Message> wait_for_answer(const Watch* watch);

  Channel& channel_;
  Mutex turn_;  ///< held during a task; taken before mutex_
  Mutex mutex_;
  Condition changed_;
  bool listens_ SWELL_GUARDED_BY(mutex_) = false;
  bool is_own_ SWELL_GUARDED_BY(mutex_) = false;
  bool is_lost_ SWELL_GUARDED_BY(mutex_) = false;
  bool is_busy_ SWELL_GUARDED_BY(mutex_) = false;  ///< a task is under way
  Result<std::string> nccl_ SWELL_GUARDED_BY(mutex_) = Error("its program was not asked for NCCL");
  std::optional<Message> answer_ SWELL_GUARDED_BY(mutex_);
  std::optional<Message> after_
      SWELL_GUARDED_BY(mutex_);  ///< message that the program gets once its task is over
};

}  // namespace swell::runtime
