// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "control/client.h"
#include "control/wake_fd.h"

namespace swell::launcher {

/// Where the controller may be, and whom to trust as it.
struct ControllerAddress {
  /// The primary first; only the active slurmctld has a controller.
  std::vector<std::string> hosts;
  std::uint16_t port = 0;
  std::string munge_socket;
  uid_t slurm_user = 0;
};

/// Connects to one host: control::Client::connect(), or a test's replacement.
using Connect = std::function<Result<std::unique_ptr<control::Client>>(
    const control::Client::Options&, std::chrono::milliseconds)>;

/// The first answer to Hello, or why there is none.
struct Greeting {
  std::unique_ptr<control::Client> client;  ///< null: nobody answered, or Refused
  control::Welcome welcome;
  bool refused = false;
  std::string reason;
};
/// Tries the hosts one by one, each for 5 s, or for 20 s where there is one alone, until `stopped`
/// returns true. The reason is a sentence for people. `dropped`: as in Client::Options.
Greeting greet(const ControllerAddress& address, const control::Hello& hello,
               const std::function<void(const Error&)>& dropped, const Connect& connect,
               const std::function<bool()>& stopped);

/// Keeps the connection to the controller on a thread of its own, so that neither a controller nor
/// a munged that does not answer ever delays the training. Connects at once, and again in growing
/// intervals for as long as it lives, with a Hello that names the companions. Thread-safe.
class ControllerLink {
 public:
  /// `wake` is called from the link's thread when take() or take_news() has something.
  ControllerLink(ControllerAddress address, control::Hello hello, std::function<void()> wake,
                 Connect connect = control::Client::connect);
  /// Waits for the thread, which may be in the middle of connecting: see flush().
  ~ControllerLink();

  void send(control::Message message);
  std::vector<control::Message> take();
  /// Returns lines for the user since the last call: each reason why no controller is connected,
  /// once, and a line when one is connected after all.
  std::vector<std::string> take_news();
  /// Waits until all is sent or no controller is connected; returns false if `timeout` is over
  /// first. The thread then ends by itself.
  bool flush(std::chrono::milliseconds timeout);
  /// Sets the companions that the Hello of the next connection names.
  void set_companions(std::vector<control::JobId> companions);

 private:
  void run();
  bool exchange();
  void connect();
  void tell(std::string line);

  const ControllerAddress address_;
  const std::function<void()> wake_fn_;
  const Connect connect_;
  std::unique_ptr<control::Client> client_;  // used by thread_ alone

  Mutex mutex_;
  control::WakeFd wake_;
  control::Hello hello_ SWELL_GUARDED_BY(mutex_);
  std::deque<control::Message> out_ SWELL_GUARDED_BY(mutex_);
  std::vector<control::Message> in_ SWELL_GUARDED_BY(mutex_);
  control::Status last_status_ SWELL_GUARDED_BY(mutex_);
  std::optional<control::Profile> last_profile_ SWELL_GUARDED_BY(mutex_);
  std::vector<std::string> news_ SWELL_GUARDED_BY(mutex_);
  Condition ended_changed_;
  bool stop_ SWELL_GUARDED_BY(mutex_) = false;
  bool ended_ SWELL_GUARDED_BY(mutex_) = false;
  std::set<std::string> reasons_;  // used by thread_ alone: reasons that the user was told
  bool told_dropped_ = false;      // used by thread_ alone: a dropped message was reported
  double backoff_s_ = 0;           // used by thread_ alone; 0: not tried yet
  std::minstd_rand random_{std::random_device()()};
  std::chrono::steady_clock::time_point next_attempt_;
  std::thread thread_;
};

}  // namespace swell::launcher
