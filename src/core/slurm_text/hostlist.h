// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::slurm_text {

/// Expands a host list expression of Slurm, in its order: "node[01-04,7],r[1-2]n[1-2]". Returns an
/// error for brackets that do not match, a falling range, or more than `max` names. Does not use
/// libslurm, so that text of unknown origin can be read anywhere.
Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t max = 65536);

/// Calls `see` with each name, in the order of expand_hostlist(), without a list in memory; the
/// view is valid until `see` returns. Stops when `see` returns false. If there is an error, `see`
/// has got the names before it.
Result<void> visit_hostlist(std::string_view text,
                            const std::function<bool(std::string_view)>& see);

/// Returns the shortest host list expression for names that differ in the number at their end:
/// "node[1-3,7],login". Names with one prefix come where the first of them is.
std::string fold_hostlist(const std::vector<std::string>& names);

}  // namespace swell::slurm_text
