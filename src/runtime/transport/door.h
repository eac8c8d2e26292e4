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

#include "core/cpu_share.h"
#include "core/places.h"
#include "core/result.h"
#include "runtime/transport/channel.h"

namespace swell::runtime {

/// Accepts the connections of a keeper's listening sockets, and admits peers that have proved who
/// they are: processes of this user on the Unix socket, peers that hold the job's key over TCP. One
/// thread does all of this and never waits for a single peer. The number of peers without proof is
/// limited, in all and for each address; if a limit is reached, the oldest makes room for a new
/// one. If descriptors or threads run out, it tries again.
class Door {
 public:
  struct Options {
    std::size_t places = 256, places_of_one_address = 128;
    std::chrono::milliseconds proof_time{5000};  ///< time for a peer to prove that it holds the key
    /// Time for which a proved peer waits if no thread can be started for it.
    std::chrono::milliseconds thread_time{10000};
    /// Maximum share of a core for new TCP connections; beyond it they wait in the kernel's queue.
    double share = 0.25, saved_up_s = 0.5;
    /// Takes over a peer; called by the door's thread. Returns false, and leaves the channel
    /// unchanged, if that is not possible now.
    std::function<bool(Channel& channel, bool is_unix)> let_in;
    std::function<void()> at_each_turn;  ///< after each turn of the door's thread
  };
  /// `tcp_listening` may be empty.
  Door(Options options, Descriptor unix_listening, Descriptor tcp_listening, std::string key);
  ~Door() { close(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// Begins to admit peers. The error names the resource that is exhausted.
  Result<void> open();
  /// Wakes the door's thread for one turn.
  void wake() noexcept;
  /// Stops admitting peers; no function of the options is called afterwards.
  void close() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    std::optional<PeerProof> proof;  ///< none: the peer is proved
    Channel channel;                 ///< channel of a proved peer
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
  // Used by the door's thread only.
  std::map<Places::Id, Guest> guests_;
  Places places_;
  Places::Id last_id_ = 0;
  CpuShare share_;
  std::optional<Clock::time_point> accept_again_, admit_again_;
  std::optional<Clock::time_point> tcp_again_;  ///< accept TCP again then: the CPU share is used up
};

}  // namespace swell::runtime
