// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "runtime/channel.h"
#include "runtime/transport.h"

namespace swell::runtime {

/// UCX, opened while the program runs: what is built needs neither it nor its headers. Thread-safe.
class Ucx {
 public:
  struct Options {
    /// Network devices, as UCX_NET_DEVICES has them ("mlx5_0:1,eth0"). Empty: what UCX's own
    /// environment says, and without that all that UCX finds.
    std::string devices;
    std::string library = "libucp.so.0";
    /// Nothing has moved for so long: the other end is given up.
    std::chrono::milliseconds patience{60'000};
    /// Both ends have so long to find a way to each other.
    std::chrono::milliseconds meet_limit{10'000};
  };
  /// The oldest release whose functions are used: 1.10.
  static constexpr unsigned kMajor = 1, kMinMinor = 10;

  /// The error says what is missing: the library, a function, a version, a device.
  static Result<std::shared_ptr<const Ucx>> open(Options options);
  ~Ucx();
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;

  /// "1.13.1"
  const std::string& version() const noexcept { return version_; }
  const Options& options() const noexcept { return options_; }

  struct Functions;

 private:
  friend class UcxLink;
  Ucx(Options options, const Functions& functions)
      : options_(std::move(options)), functions_(functions) {}
  Result<void> begin();
  const Options options_;
  const Functions& functions_;
  std::string version_;
  void* context_ = nullptr;
};

/// One end of a way through UCX between the two ends of a channel. The channel, which has proved
/// that both hold the job's key, carries both addresses and a random tag, without which nothing is
/// taken; and an end whose channel is closed by the other is given up at once. The channel outlives
/// it.
class UcxLink final : public DataLink {
 public:
  /// Asks the other end for a way, and tries it out. An error: there is none; the channel is as
  /// good as before, unless it has failed itself.
  static Result<std::unique_ptr<UcxLink>> connect(std::shared_ptr<const Ucx> ucx, Channel& channel);
  /// The other side of connect(): answers its request. Null: there is no way, and the other end
  /// knows. An error is the channel's, which is of no use any more.
  static Result<std::unique_ptr<UcxLink>> accept(std::shared_ptr<const Ucx> ucx, Channel& channel,
                                                 std::string_view request);
  ~UcxLink() override;
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  /// "ucx tcp", "ucx sysv+cma", ...: what UCX has chosen.
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

/// Of the network interface that has `address` (numeric), what UCX calls its devices: the RDMA
/// ports of its card that are up ("mlx5_0:1"), else, where `or_itself`, the interface's own name.
/// Empty: there are none. `sysfs`: "/sys".
std::string ucx_devices_at(const std::string& address, bool or_itself,
                           const std::string& sysfs = "/sys");

/// A request for such a way, to be answered by UcxLink::accept().
inline constexpr std::uint16_t kUcxOp = 26;

}  // namespace swell::runtime
