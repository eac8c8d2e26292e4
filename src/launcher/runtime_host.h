// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/result.h"
#include "runtime/keeper/keeper.h"

namespace swell::launcher {

/// The keeper of one worker's training state, in its shim: a folder of mode 0700 with the socket
/// that programs find by SWELL_RUNTIME, and an address where other shims and the agent reach it.
class RuntimeHost {
 public:
  struct Options {
    std::string folder;            ///< where its own folder is made; empty: TMPDIR, or /tmp
    std::string address;           ///< numeric, to listen on
    std::string node;              ///< Slurm's name of this node
    std::string key;               ///< the job's
    std::string network = "auto";  ///< as swellrun's --switch-network has it
    std::string ports;             ///< near this worker's GPUs: ports_near()
    /// Receives the profiles of programs, from threads of the keeper, with the runtime's
    /// generation.
    std::function<void(std::uint64_t generation, std::string profile)> on_profile;
    /// Called likewise when a program takes a generation over.
    std::function<void(std::uint64_t generation, pid_t program)> on_adopted;
  };
  /// Also removes the folders that killed shims of this user have left there.
  static Result<std::unique_ptr<RuntimeHost>> start(const Options& options);
  ~RuntimeHost();

  /// Has the program that trains leave at its next step: swell_step() returns SWELL_STOP. Returns
  /// false if no program trains here.
  bool ask_to_stop() const;
  /// The step of the training whose program runs here; 0: there is none.
  std::uint64_t step() const { return keeper_->step(); }
  /// Seconds since that step was made; 0: not known.
  double step_age_s() const { return keeper_->step_age_s(); }
  /// See Keeper::offer_next(); `generation` is the runtime's.
  bool offer_next(std::uint64_t generation, runtime::Variables variables, bool none_is_new) const {
    return keeper_->offer_next(generation, std::move(variables), none_is_new);
  }
  void withdraw_next() const { keeper_->withdraw_next(); }
  const std::string& unix_socket() const noexcept { return keeper_->unix_socket(); }
  const std::string& tcp_address() const noexcept { return keeper_->tcp_address(); }

 private:
  RuntimeHost(std::string folder, std::unique_ptr<runtime::Keeper> keeper)
      : folder_(std::move(folder)), keeper_(std::move(keeper)) {}
  std::string folder_;
  std::unique_ptr<runtime::Keeper> keeper_;
};

}  // namespace swell::launcher
