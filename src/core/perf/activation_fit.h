// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/models/chain.h"
#include "core/perf/coefficients.h"
#include "core/perf/profile.h"
#include "core/plan/layout.h"
#include "core/result.h"

namespace swell::perf {

/// Sets k_activ-p and k_activ-np from the observed memory peaks (Suika, A.4.2 (8)): by least
/// squares if the plan has two TP degrees; with one, k_activ-np = C_np * k_activ. Returns an error
/// if a peak is below the group's parameters, state and gradients. `chain`: the units of the model.
/// REQUIRES: `coefficients` has the sizes of parameters and state already.
Result<void> fit_activations(const Profile& profile, const plan::Layout& layout,
                             const models::Chain& chain, Coefficients& coefficients);

}  // namespace swell::perf
