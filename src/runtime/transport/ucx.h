// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/result.h"

namespace swell::runtime {

/// UCX, opened while the program runs, so that the build needs neither UCX nor its headers.
/// Thread-safe.
class Ucx {
 public:
  struct Options {
    /// Network devices, in the format of UCX_NET_DEVICES ("mlx5_0:1,eth0"). Empty: those of UCX's
    /// own environment, or all that UCX finds.
    std::string devices;
    std::string library = "libucp.so.0";
    /// Time without any progress after which the other end counts as lost.
    std::chrono::milliseconds patience{60'000};
    /// Time limit for both ends to connect to each other.
    std::chrono::milliseconds meet_limit{10'000};
  };
  /// The oldest supported release: 1.10.
  static constexpr unsigned kMajor = 1, kMinMinor = 10;

  /// Opens UCX. The error says what is missing: the library, a function, a version, a device.
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

/// Returns those of `ports` of this node ("mlx5_0:1,eth0:1") that are up, by UCX's names: RDMA
/// ports, or if none of these is up and `or_interfaces` is set, network interfaces ("eth0").
/// Returns an empty string if there are none.
std::string ucx_devices_of(const std::string& ports, bool or_interfaces,
                           const std::string& sysfs = "/sys");
/// Returns the UCX devices of the network interface that has `address` (numeric): the RDMA ports of
/// its card that are up ("mlx5_0:1"); if none is up and `or_itself` is set, the interface's own
/// name. Returns an empty string if there are none. `sysfs`: "/sys".
std::string ucx_devices_at(const std::string& address, bool or_itself,
                           const std::string& sysfs = "/sys");

}  // namespace swell::runtime
