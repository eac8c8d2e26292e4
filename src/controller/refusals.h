// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>

namespace swell::controller {

/// The reasons for which an offer did not become a companion: one word each, which AdminComment
/// (`why=`) and `swell jobs` show.
namespace refused {
inline constexpr const char* kExpired = "expired";      ///< nobody took it up in time
inline constexpr const char* kExcess = "excess";        ///< it held more than was granted
inline constexpr const char* kBusy = "busy";            ///< the GPUs were taken meanwhile
inline constexpr const char* kQos = "qos";              ///< the user may not use the expansion QOS
inline constexpr const char* kAccount = "account";      ///< the account or its association
inline constexpr const char* kPartition = "partition";  ///< the partition is closed to this job
inline constexpr const char* kLimit = "limit";          ///< a limit of the QOS or the association
/// It was not what was offered: job_submit refused it, or swellrun gave it back.
inline constexpr const char* kUnlike = "unlike";
inline constexpr const char* kProlog = "prolog";  ///< its nodes' Prolog took too long
inline constexpr const char* kOther = "other";
}  // namespace refused

/// The kind of a refusal by Slurm's words for it, which an agent passes on.
std::string refusal_kind(std::string_view words);

}  // namespace swell::controller
