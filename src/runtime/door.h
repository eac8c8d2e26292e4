// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/places.h"
#include "core/result.h"
#include "runtime/channel.h"

namespace swell::runtime {

/// Takes the connections of a keeper's listening sockets and lets in the peers that have shown who
/// they are: on the Unix socket processes of this user, over TCP peers that hold the job's key. One
/// thread does all of it and never waits for one peer. Peers without proof are few, and fewer for
/// one address; the oldest gives way to a newcomer. Where there are no descriptors or threads left,
/// it tries again.
class Door {
 public:
  struct Options {
    std::size_t places = 256, places_of_one_address = 128;
    std::chrono::milliseconds proof_time{5000};  ///< for a peer to show the key
    /// A peer that has shown who it is and cannot be let in waits so long for a thread.
    std::chrono::milliseconds thread_time{10000};
    /// Takes a peer over, by the door's thread. Returns false, and leaves the channel, where that
    /// cannot be done now.
    std::function<bool(Channel& channel, bool is_unix)> let_in;
    std::function<void()> at_each_turn;  ///< after each turn of the door's thread
  };
  /// `tcp_listening` may be empty.
  Door(Options options, Descriptor unix_listening, Descriptor tcp_listening, std::string key);
  ~Door() { close(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// Begins to let peers in. The error says what there is too little of.
  Result<void> open();
  /// Has the door's thread make a turn.
  void wake() noexcept;
  /// Lets nobody in any more; no function of the options is called afterwards.
  void close() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    std::optional<PeerProof> proof;  ///< none: the peer has shown who it is
    Channel channel;                 ///< of such a peer
    bool is_unix = false;
    Clock::time_point until;
  };

  void run() noexcept;
  void turn();
  void accept_some(int listening, bool is_unix);
  void receive(Descriptor fd, bool is_unix);
  void read(Places::Id id);
  void admit(Places::Id id, Guest& guest);
  void drop(Places::Id id);
  int wait_ms() const;

  const Options options_;
  const Descriptor unix_, tcp_, wake_;
  const std::string key_;
  std::thread thread_;
  std::atomic<bool> stops_ = false;
  // Used by the thread alone.
  std::map<Places::Id, Guest> guests_;
  Places places_;
  Places::Id last_id_ = 0;
  std::optional<Clock::time_point> accept_again_, admit_again_;
};

}  // namespace swell::runtime
