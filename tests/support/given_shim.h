// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/transport/channel.h"
#include "runtime/transport/transport.h"
#include "support/tcp_peer.h"

namespace support {

using namespace swell;

/// A shim without a program, which sends given answers.
class GivenShim {
 public:
  /// Returns the answer to a message; nothing: does not answer. Runs on the shim's only thread.
  using Answer = std::function<std::optional<std::string>(const runtime::Message&)>;
  GivenShim(const std::string& socket, Answer answer)
      : answer_(std::move(answer)),
        listening_(runtime::listen_unix(socket).value()),
        thread_([this] { serve(); }) {}
  ~GivenShim() {
    shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }
  GivenShim(const GivenShim&) = delete;
  GivenShim& operator=(const GivenShim&) = delete;

 private:
  void serve() {
    for (std::vector<runtime::Channel> channels;;) {
      std::vector<pollfd> polled{{listening_.get(), POLLIN, 0}};
      for (const runtime::Channel& each : channels) polled.push_back({each.fd(), POLLIN, 0});
      poll(polled.data(), polled.size(), -1);
      for (std::size_t i = 0; i + 1 < polled.size(); ++i)
        if (polled[i + 1].revents != 0 && !serve(channels[i])) channels[i] = runtime::Channel();
      std::erase_if(channels, [](const runtime::Channel& each) { return !each; });
      if (polled[0].revents == 0) continue;
      Descriptor taken = accept_one(listening_.get());
      if (!taken) return;
      channels.emplace_back(std::move(taken));
    }
  }
  bool serve(runtime::Channel& channel) const {
    const auto asked = channel.receive();
    if (!asked) return false;
    const auto answer = answer_(*asked);
    return !answer || channel.send(runtime::kDoneOp, *answer).ok();
  }

  Answer answer_;
  Descriptor listening_;
  std::thread thread_;
};

}  // namespace support
