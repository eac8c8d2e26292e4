// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

/// The ring over which ranks sum their gradients, as NCCL and Gloo do: TCP on loopback. Data
/// to another node may be limited to a rate, as by an interface that is slow. Throws where
/// a rank has gone.
class GradientRing {
 public:
  struct Place {
    std::string folder;  ///< where ranks of one ring find each other
    int rank = 0, ranks = 1;
    std::string node;
    std::uint32_t bytes_per_s = 0;  ///< to another node; 0: as fast as it goes
  };
  /// Listens, and says where. Others are connected to when first needed: they may not be there yet.
  explicit GradientRing(Place place) : place_(std::move(place)) {
    if (place_.ranks < 2) return;
    listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof at;
    if (bind(listening_, reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        listen(listening_, 1) != 0 ||
        getsockname(listening_, reinterpret_cast<sockaddr*>(&at), &size) != 0)
      fail("listening");
    const std::string file = file_of(place_.rank), fresh = file + ".new";
    std::ofstream(fresh) << ntohs(at.sin_port) << ' ' << place_.node << '\n';
    if (rename(fresh.c_str(), file.c_str()) != 0) fail(file.c_str());
  }
  ~GradientRing() {
    for (const int fd : {listening_, next_, previous_})
      if (fd >= 0) close(fd);
  }
  GradientRing(const GradientRing&) = delete;
  GradientRing& operator=(const GradientRing&) = delete;

  /// Adds up what all ranks have, and gives each the sum: every part goes round the ring twice.
  void sum(double* values, std::size_t count) {
    if (place_.ranks < 2) return;
    if (next_ < 0) meet();
    const auto ranks = static_cast<std::size_t>(place_.ranks);
    const std::size_t part = (count + ranks - 1) / ranks;
    std::vector<double> arrived(part);
    for (std::size_t turn = 0; turn < 2 * (ranks - 1); ++turn) {
      const std::size_t own = static_cast<std::size_t>(place_.rank) + 2 * ranks - turn;
      const auto [sent, sent_size] = slice(own % ranks, part, count);
      const auto [at, size] = slice((own - 1) % ranks, part, count);
      exchange(values + sent, sent_size * sizeof(double), arrived.data(), size * sizeof(double));
      const bool is_summing = turn < ranks - 1;
      for (std::size_t i = 0; i < size; ++i)
        values[at + i] = arrived[i] + (is_summing ? values[at + i] : 0);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{60};

  [[noreturn]] static void fail(const char* what) {
    throw std::runtime_error(std::string("gradients: ") + what + ": " + std::strerror(errno));
  }
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }
  std::string file_of(int rank) const { return place_.folder + "." + std::to_string(rank); }
  static std::pair<std::size_t, std::size_t> slice(std::size_t index, std::size_t part,
                                                   std::size_t count) {
    const std::size_t begin = std::min(index * part, count);
    return {begin, std::min(part, count - begin)};
  }

  void meet() {
    const int next = (place_.rank + 1) % place_.ranks;
    for (const auto end = Clock::now() + kPatience;;
         std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      std::uint16_t port = 0;
      std::string node;
      if (std::ifstream(file_of(next)) >> port >> node) {
        const sockaddr_in at = loopback(port);
        next_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        // Before it connects: the first bytes are paced, too.
        if (node != place_.node && place_.bytes_per_s > 0 &&
            setsockopt(next_, SOL_SOCKET, SO_MAX_PACING_RATE, &place_.bytes_per_s,
                       sizeof place_.bytes_per_s) != 0)
          fail("SO_MAX_PACING_RATE");
        if (connect(next_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) break;
        close(next_);
        next_ = -1;
      }
      if (Clock::now() > end) fail("the next rank is not there");
    }
    pollfd waits{listening_, POLLIN, 0};
    if (poll(&waits, 1, std::chrono::milliseconds(kPatience).count()) != 1)
      fail("the rank before is not there");
    previous_ = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    const int on = 1;
    if (previous_ < 0 || setsockopt(next_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
      fail("meeting");
  }

  /// Sends to the next rank while what the one before sends arrives.
  void exchange(const double* from, std::size_t sending, double* to, std::size_t coming) {
    const auto* out = reinterpret_cast<const char*>(from);
    auto* in = reinterpret_cast<char*>(to);
    while (sending > 0 || coming > 0) {
      pollfd waits[] = {{sending > 0 ? next_ : -1, POLLOUT, 0},
                        {coming > 0 ? previous_ : -1, POLLIN, 0}};
      if (poll(waits, 2, std::chrono::milliseconds(kPatience).count()) < 1)
        fail("a rank is silent");
      if (waits[0].revents != 0) {
        const ssize_t sent = send(next_, out, sending, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) fail("sending");
        if (sent > 0) out += sent, sending -= static_cast<std::size_t>(sent);
      }
      if (waits[1].revents != 0) {
        const ssize_t got = recv(previous_, in, coming, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) fail("the rank before has gone");
        if (got > 0) in += got, coming -= static_cast<std::size_t>(got);
      }
    }
  }

  Place place_;
  int listening_ = -1, next_ = -1, previous_ = -1;
};
