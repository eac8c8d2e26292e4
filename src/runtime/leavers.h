// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "runtime/messages.h"

namespace swell::runtime {

/// How the ranks that leave with a switch are treated, while the state moves.
enum class Leavers {
  wait,    ///< they stay until the commit
  let_go,  ///< the others have all that only they had, and go on without them
  late,    ///< what only they have does not come in time
};

/// Decides it by what each staying shim has fetched in `elapsed_s`, where the leavers have `left_s`
/// more. Until a half of their time is over, a rate says little, and they wait.
Leavers judge_leavers(std::span<const Progress> shims, double elapsed_s, double left_s) noexcept;

}  // namespace swell::runtime
