// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/ucx.h"

namespace swell::runtime {

/// A request for a connection through UCX, answered by UcxLink::accept().
inline constexpr std::uint16_t kUcxOp = 26;

/// One end of a connection through UCX between the two ends of a channel. The channel, which has
/// proved that both ends hold the job's key, carries both addresses and a random tag; messages
/// without that tag are not accepted. If the other side closes its channel, the connection is given
/// up at once. The channel must outlive it.
class UcxLink final : public DataLink {
 public:
  /// Asks the other end for a connection, and tests it. Returns an error if there is none; the
  /// channel can still be used, unless it has failed itself.
  static Result<std::unique_ptr<UcxLink>> connect(std::shared_ptr<const Ucx> ucx, Channel& channel);
  /// Answers a request of connect(). Returns null if no connection is possible; the other end knows
  /// it then. An error means that the channel can no longer be used.
  static Result<std::unique_ptr<UcxLink>> accept(std::shared_ptr<const Ucx> ucx, Channel& channel,
                                                 std::string_view request);
  ~UcxLink() override;
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  /// Returns what UCX has chosen: "ucx tcp", "ucx sysv+cma", ...
  const std::string& name() const noexcept override { return name_; }
  Result<void> send(std::span<const std::byte> bytes) override;
  Result<void> receive(std::span<std::byte> bytes) override;
  Result<void> flush() override;

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  /// A message under way.
  struct Message {
    void* request = nullptr;
    std::size_t bytes = 0;
    bool is_incoming = false;
  };
  UcxLink(std::shared_ptr<const Ucx> ucx, Channel& channel)
      : ucx_(std::move(ucx)), channel_(channel) {}
  Result<std::string> open();
  Result<void> join(std::string_view address);
  Result<void> begin(void* request, std::size_t bytes, bool is_incoming);
  Result<void> finish_first();
  bool progress(unsigned& idle) const;
  Result<void> send_trial();
  Result<void> receive_trial();
  void begin_work();
  void give_up() noexcept;

  const std::shared_ptr<const Ucx> ucx_;
  Channel& channel_;
  void *worker_ = nullptr, *endpoint_ = nullptr;
  std::uint64_t tag_ = 0;
  std::chrono::milliseconds patience_{0};
  std::string name_;
  std::deque<Message> under_way_;
};

}  // namespace swell::runtime
