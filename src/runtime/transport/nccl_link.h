// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "runtime/device/device_proxy.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/transport.h"

namespace swell::runtime {

/// How a shim lets programs use NCCL.
struct NcclOptions {
  /// Time limit for making a communicator, while the training stands still.
  std::chrono::milliseconds join_limit{5'000};
  /// Time limit for moving a chunk.
  std::chrono::milliseconds patience{20'000};
};

/// A request about NCCL, answered by serve_nccl().
inline constexpr std::uint16_t kNcclOp = 32;

/// A communicator between a new program and the old program of another rank; each is asked by its
/// own shim, over a channel between the shims. If the communicator cannot be made, nothing has been
/// moved, and another path can be used. One thread at a time.
class NcclLink {
 public:
  /// Asks the other shim whether its program has NCCL, and has this shim's program (`proxy`) make
  /// an id, while the old program trains. `pair`: a number that this program uses for nothing else.
  static Result<std::shared_ptr<NcclLink>> connect(Channel channel,
                                                   std::shared_ptr<DeviceProxy> proxy,
                                                   std::uint64_t pair, const NcclOptions& options);
  bool is_joined() const noexcept { return joined_ && joined_->ok(); }
  /// Makes the communicator, once; the old program must stand still by then.
  Result<void> join();
  /// Fetches runs, all or none. Returns the source's checksum.
  Result<std::uint64_t> fetch(Memory memory, std::span<const Run> runs, Checksum by);
  /// Describes the NCCL of both programs, as they report it.
  const std::string& about() const noexcept { return about_; }

 private:
  NcclLink(Channel channel, std::shared_ptr<DeviceProxy> proxy, std::uint64_t pair,
           const NcclOptions& options)
      : channel_(std::move(channel)), proxy_(std::move(proxy)), pair_(pair), options_(options) {}
  Result<Message> together(std::string request, const DeviceTask& task);

  Channel channel_;
  const std::shared_ptr<DeviceProxy> proxy_;
  const std::uint64_t pair_;
  const NcclOptions options_;
  std::string id_, about_;
  std::optional<Result<void>> joined_;
};

/// Copies from a GPU over `link`, or by `otherwise` if no communicator can be made.
std::unique_ptr<Transport> from_nccl(std::shared_ptr<NcclLink> link,
                                     std::unique_ptr<Transport> otherwise, Memory memory,
                                     bool is_near);

/// The program that is asked for its state.
struct NcclSource {
  std::shared_ptr<DeviceProxy> proxy;  ///< DeviceProxy of the program; nullptr: there is no program
  std::uint64_t pair = 0;              ///< number of the pair, as in connect()
  std::function<bool(const Run&, Memory)> allowed;
};
/// Answers one request of the NcclLink at the other end. An error is the channel's.
Result<void> serve_nccl(Channel& channel, std::string_view request, const NcclSource& source);

}  // namespace swell::runtime
