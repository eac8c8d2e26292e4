// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/result.h"

namespace swell::control {

/// Makes and reads munge credentials on a thread of its own, because munged may be slow, stopped
/// or gone. Work is done in the order in which it came. Thread-safe.
///
/// The destructor waits 2 s at most for a call that hangs; then it leaves the thread behind, with
/// all that the thread still uses.
class MungeThread {
 public:
  /// Lifetime of a credential; must exceed the difference between two hosts' clocks.
  static constexpr int kLifetime_s = 1800;

  /// Result of one piece of work.
  struct Done {
    std::uint64_t ticket = 0;
    bool opened = false;  ///< whether it is of open(); if not, of seal()
    std::optional<Error> error;
    std::string data;                    ///< the payload, or the credential
    uid_t uid = static_cast<uid_t>(-1);  ///< of open(): user that made the credential
    double cpu_s = 0;                    ///< CPU time of the thread that it took
  };

  /// Starts the thread. `socket`: munged's; empty: munge's default.
  static Result<std::unique_ptr<MungeThread>> start(const std::string& socket);
  ~MungeThread();
  MungeThread(const MungeThread&) = delete;
  MungeThread& operator=(const MungeThread&) = delete;

  /// Makes a credential that only `reader` can open; without a reader, every user can.
  void seal(std::uint64_t ticket, std::string payload, std::optional<uid_t> reader);
  /// Opens a credential. Replayed and expired ones give an error.
  void open(std::uint64_t ticket, std::string credential);

  /// Sets for how long later work is tried again if munged cannot be reached; initially 0. Work
  /// behind it waits, too, since it needs the same munged.
  void set_patience(std::chrono::seconds patience);

  /// Returns a descriptor that is readable while take() has something.
  int fd() const noexcept;
  /// Returns the work done since the last call, in order.
  std::vector<Done> take();
  /// Waits for one piece of work. REQUIRES: no other work was given.
  Result<Done> wait(std::uint64_t ticket, std::chrono::milliseconds timeout);

 private:
  struct State;
  explicit MungeThread(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace swell::control
