// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "core/cpu_share.h"
#include "core/result.h"

namespace swell::topo {

/// A connection between two processes, for measuring. No call blocks for ever: after kPatience_s
/// without progress it returns an error.
class Link {
 public:
  static constexpr int kPatience_s = 30;
  virtual ~Link() = default;
  /// Sends the same bytes `count` times; returns when `data` may be changed.
  virtual Result<void> send(const char* data, std::size_t bytes, int count) = 0;
  /// Receives `count` messages of `bytes` bytes, all into `data`.
  virtual Result<void> receive(char* data, std::size_t bytes, int count) = 0;
};

/// A socket that waits for one connection, from the peer that sends the token. Only a few other
/// connections are kept, and the oldest of them makes room for a new one. All of them together take
/// at most a share of a core; beyond it they wait in the kernel.
class Listener {
 public:
  static constexpr std::size_t kMaxSilent = 64;
  static constexpr double kShare = 0.25, kSavedUp_s = 0.5;
  /// Opens a socket at a numeric or named address of this host, on a free port.
  static Result<Listener> open(const std::string& address);
  Listener(Listener&& other) noexcept : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}
  Listener(const Listener&) = delete;
  ~Listener();
  int port() const noexcept { return port_; }
  Result<std::unique_ptr<Link>> accept(const std::string& token,
                                       CpuShare share = CpuShare(kShare, kSavedUp_s));

 private:
  Listener(int fd, int port) noexcept : fd_(fd), port_(port) {}
  int fd_, port_;
};

/// Connects, and sends the token. Tries again, for kPatience_s at most, if the other side closes
/// the connection first.
Result<std::unique_ptr<Link>> connect_tcp(const std::string& address, int port,
                                          const std::string& token);

/// Makes a link of UCX's tag messages, over the transport that UCX prefers; `control` carries the
/// addresses first and must outlive the link. Returns an error if Swell was built without UCX.
Result<std::unique_ptr<Link>> make_ucx(Link& control);
bool has_ucx() noexcept;

/// Makes a link of NCCL between GPU `gpu` here and the other side's GPU. It does not send the given
/// bytes, but as many from a buffer on the GPU. One side is rank 0, the other rank 1; over
/// `control` they agree on each step, so that either both have a link or both get an error, and can
/// continue with something else. Loads CUDA's and NCCL's libraries if they are installed; the error
/// says what is missing.
Result<std::unique_ptr<Link>> make_nccl(Link& control, int rank, int gpu);
/// Checks whether make_nccl() can work here; the error says what is missing.
Result<void> can_use_nccl(int gpu);

}  // namespace swell::topo
