// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "controller/admission.h"

namespace swell::controller {

/// Returns the changes by which the submission asks for `min` of its `basic` GPUs, and for the same
/// share of its nodes, tasks, CPUs and memory. REQUIRES: 0 < min < basic, the GPUs that it asks
/// for. The error is for the user: a request that cannot be divided so, with what to write instead.
Result<LoweredRequest> lower(const SubmitRequest& request, int basic, int min);

}  // namespace swell::controller
