// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::slurm_text {

/// Expands a host list expression as Slurm writes it, in its order: "node[01-04,7],r[1-2]n[1-2]".
/// Errors: brackets that do not match, a range that falls, more than `max` names. Needs no Slurm,
/// so that text of unknown origin can be read anywhere.
Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t max = 65536);

/// Calls `see` with each name, in the order of expand_hostlist(), without a list in memory; the
/// view is good until `see` returns. Ends early where `see` returns false. Names before an error
/// have been seen.
Result<void> visit_hostlist(std::string_view text,
                            const std::function<bool(std::string_view)>& see);

/// Shortest host list expression for names that differ in the number at their end:
/// "node[1-3,7],login". Kinds of names come in the order of their first name.
std::string fold_hostlist(const std::vector<std::string>& names);

}  // namespace swell::slurm_text
