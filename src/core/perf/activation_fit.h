// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/models/chain.h"
#include "core/perf/coefficients.h"
#include "core/perf/profile.h"
#include "core/plan/layout.h"
#include "core/result.h"

namespace swell::perf {

/// Sets k_activ-p and k_activ-np from the observed memory peaks. REQUIRES: `coefficients` holds the
/// sizes of parameters and state already. Suika, A.4.2 (8). With two TP degrees both are found by
/// least squares; with one, k_activ-np = C_np * k_activ. A peak below what the group holds anyway
/// is an error. `chain`: the model's.
Result<void> fit_activations(const Profile& profile, const plan::Layout& layout,
                             const models::Chain& chain, Coefficients& coefficients);

}  // namespace swell::perf
