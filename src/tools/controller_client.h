// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "control/client.h"
#include "control/messages.h"
#include "core/result.h"

namespace swell::tools {

/// A client for many questions to the controller. Looks its address up once: later a controller
/// that is down is noticed at once, without the waits of slurmctld's own commands. For one thread
/// at a time.
class ControllerClient {
 public:
  Result<control::Answer> ask(const control::Ask& ask);

 private:
  Result<void> find();

  std::vector<control::Client::Options> known_;
};

/// Asks the controller in the slurmctld that slurm.conf names, as the user who runs this program;
/// waits some seconds at most. A refusal is an error.
Result<control::Answer> ask_controller(const control::Ask& ask);

}  // namespace swell::tools
