// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "control/socket.h"
#include "core/cpu_share.h"
#include "core/places.h"
#include "core/result.h"

namespace swell::tools {

/// Answers one request of each HTTP client, and closes the connection. No client waits for another:
/// the number of clients is limited, and the oldest one gives way to a newcomer.
class HttpServer {
 public:
  struct Options {
    std::size_t clients = 512, clients_of_one_address = 256;
    /// For a client to send its request and read the answer, without the time to make answers.
    std::chrono::milliseconds patience{5000};
    /// Share of a core that all clients together may use; beyond it they wait in the kernel.
    double share = 0.2, saved_up_s = 1;
    /// Returns the whole response to a request, whose text goes up to its empty line.
    std::function<std::string(const std::string& request)> answer;
  };
  HttpServer(Descriptor listening, Options options);

  /// Waits for events, and handles them.
  void turn();

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    Descriptor fd;
    std::string in, out;
    bool is_answered = false;
    Clock::time_point until;
  };
  int wait_ms() const;
  void accept_some();
  void serve(Places::Id id);
  void drop(Places::Id id);

  const Descriptor listening_;
  const Options options_;
  std::map<Places::Id, Client> clients_;
  Places places_;
  Places::Id last_id_ = 0;
  CpuShare share_;
  std::optional<Clock::time_point> accept_again_;
};

/// The address to listen at.
struct ListenAddress {
  std::string host;  ///< empty: all addresses of this host
  std::uint16_t port = 0;
};
/// Reads "ADDRESS:PORT", "[ADDRESS]:PORT", ":PORT" for all addresses, and "PORT" for `host`. The
/// error names the text and these forms.
Result<ListenAddress> read_listen_address(const std::string& text, const std::string& host);
/// Returns a listening socket at the address.
Result<Descriptor> listen_at(const ListenAddress& address);

}  // namespace swell::tools
