// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "runtime/wire/messages.h"

namespace swell::runtime {

/// How the ranks that leave with a switch are treated while the state moves.
enum class Leavers {
  wait,    ///< keep them until the commit
  let_go,  ///< release them: the others have all state that only the leaving ranks had
  late,    ///< the unique state of the leaving ranks will not arrive in time
};

/// Decides from what each staying shim has fetched in `elapsed_s`, if the leaving ranks have
/// `left_s` more. They wait during the first half of their time, because a rate measured so early
/// says little.
Leavers judge_leavers(std::span<const Progress> shims, double elapsed_s, double left_s) noexcept;

}  // namespace swell::runtime
