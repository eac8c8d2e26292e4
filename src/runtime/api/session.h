// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/result.h"
#include "runtime/api/session_profile.h"
#include "runtime/device/device_state.h"
#include "runtime/state/arena.h"
#include "runtime/state/control_page.h"
#include "runtime/state/registry.h"
#include "runtime/transport/channel.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// A program's side of a generation; implements swell.h. One thread at a time.
class Session {
 public:
  enum class Action { go_on = 0, switched = 1, stop = 2, checkpoint = 3, prepare = 4 };
  /// Progress of the program: it registers tensors, in a session of open() or in one of next(),
  /// waits for the answer to its offer(), or trains.
  enum class Stage { registers, prepares, offered, adopted };

  /// Connects to the shim at `socket`; makes a local session if `socket` is empty.
  /// `snapshot_every`: steps from snapshot to snapshot; 0: none. `stays`: whether this process can
  /// train with another plan.
  static Result<std::unique_ptr<Session>> open(const std::string& socket,
                                               std::uint64_t snapshot_every = 0,
                                               Stays stays = Stays::no);
  /// Makes a session of this process for the generation that is being prepared. Returns an error if
  /// none is being prepared any longer.
  Result<std::unique_ptr<Session>> next() const;
  /// Says that this process cannot train in the generation for which it must prepare.
  Result<void> decline(const Error& why);
  /// Says that all tensors are registered; adopt() then waits for the answer. Used in sessions of
  /// next().
  Result<void> offer();
  Stage stage() const noexcept {
    return adopted_       ? Stage::adopted
           : has_offered_ ? Stage::offered
           : is_next_     ? Stage::prepares
                          : Stage::registers;
  }
  /// Returns a variable of this generation's program; nullptr if it is not set.
  const char* variable(const std::string& name) const;

  ~Session();
  /// Opens the GPU on which tensors will stand; one per session. The error is one sentence: no
  /// driver, no such GPU, another GPU than before, or (with `shares`) a GPU that cannot share its
  /// memory.
  Result<void> use_device(int ordinal, bool shares);
  /// Registers an entry. With `entry.address` 0 it is in the arena, or on the GPU `entry.device`,
  /// which use_device() has opened; otherwise it is in the program's own memory, on the host or on
  /// that GPU. REQUIRES: adopt() has not succeeded.
  Result<void> add(Entry entry);
  /// Blocks until the generation begins. Returns an error if it does not begin.
  Result<Adopted> adopt();
  /// Returns the part's memory; nullptr if there is no part of that name and index.
  void* address(std::string_view name, int index, std::size_t* bytes) const;
  /// Marks a step boundary. REQUIRES: adopt() has succeeded, and `step` is above the last one.
  Result<Action> step(std::uint64_t step);
  SessionProfile& profile() noexcept { return profile_; }
  /// Returns whether a program of another generation starts here beside this one, or takes over at
  /// the coming step; true once for each such event.
  bool take_beside() noexcept;
  std::uint64_t last_step() const noexcept { return last_step_; }
  /// Returns whether the connection to the shim has ended, rather than the shim having refused a
  /// request.
  bool is_lost() const noexcept { return is_lost_; }

 private:
  friend class SessionProfile;
  Session() = default;
  Result<void> adopt_alone();
  Result<void> tell_device();
  Result<void> tell_own();
  Result<void> await_in_thread();
  Result<Message> receive_answer(Deadline deadline);
  Result<void> check_places(const Adopted& adopted) const;
  Result<Message> take_answer(Deadline deadline);
  Result<Message> ask_shim(Op op, std::string_view body, Deadline deadline = Deadline::max(),
                           int fd = -1);
  ControlPage& page() const noexcept { return *reinterpret_cast<ControlPage*>(arena_->data()); }

  Channel channel_;  ///< closed in a local session
  std::optional<Arena> arena_;
  Registry registry_;
  std::vector<Entry> entries_;           ///< as declared; address 0: in the arena, or on the GPU
  std::unique_ptr<DeviceState> device_;  ///< nullptr: no tensor is on a GPU
  /// In a session of next() with tensors on a GPU: does the shim's tasks while the other session
  /// trains, until the shim's answer says that the generation begins.
  std::thread waiting_;
  std::optional<Result<Message>> answer_;
  std::optional<Adopted> adopted_;
  SessionProfile profile_{*this};
  std::uint64_t next_address_ = std::uint64_t{1} << 62;
  std::uint64_t last_step_ = 0, snapshot_every_ = 0;
  std::string socket_;
  bool stays_ = false, is_next_ = false, has_offered_ = false;
  std::uint64_t seen_beside_ = 0, seen_stop_ = 0;
  std::uint64_t seen_next_ = 0;  ///< the last generation for which step() returned SWELL_PREPARE
  std::map<std::string, std::string> variables_;
  bool is_lost_ = false;
};

}  // namespace swell::runtime
