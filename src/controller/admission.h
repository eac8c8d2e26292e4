// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "controller/config.h"
#include "controller/grant_book.h"
#include "core/result.h"

namespace swell::controller {

using control::ExpansionPlace;
using control::kGrantComment;

/// Why a companion is refused that came without its grant: for people.
inline constexpr const char* kGrantTaken =
    "the grant is not in its comment any more: a cli_filter of the site (which must leave jobs "
    "alone whose name begins with \"swell-\") or a plugin of job_submit took it out (put swell "
    "first in JobSubmitPlugins)";

/// Members of a submission that matter to Swell, in plain types. Counts are 0 where none was given.
struct SubmitRequest {
  uid_t uid = 0;
  std::string name, comment, admin_comment, partition, account, qos, required_nodes;
  std::string features, excluded_nodes;  ///< --constraint and --exclude
  std::string tres_per_node, tres_per_job, tres_per_task, tres_per_socket;
  std::string beyond_an_offer;  ///< members that no offer has and that are not left alone; of
                                ///< companions only
  int min_nodes = 0, max_nodes = 0, sockets_per_node = 0, tasks = 0, tasks_per_node = 0;
  int min_cpus = 0, cpus_per_task = 0, min_cpus_per_node = 0;
  std::int64_t memory_mib_per_node = 0, memory_mib_per_cpu = 0;
  std::int64_t time_limit_min = 0;
  std::time_t submitted = 0;  ///< 0: not known
  bool all_memory = false;    ///< --mem=0: all that the node has
  bool immediate = false, has_script = false, is_array = false, is_het_component = false;
  std::optional<bool> may_requeue;     ///< --requeue or --no-requeue; nothing: neither
  std::optional<std::string> elastic;  ///< the value of --elastic; nothing: not given
  std::optional<std::string> speeds;   ///< SpeedTable::text() of its table=; nothing: not sent
};

/// Amounts to ask for in place of those of the submission; nothing: as it was.
struct LoweredRequest {
  std::optional<std::string> tres_per_node, tres_per_job;
  std::optional<int> nodes, tasks, tasks_per_node, min_cpus, min_cpus_per_node;
  std::optional<std::int64_t> memory_mib_per_node;
};

/// Changes that job_submit makes to the submission.
struct Admission {
  std::optional<std::string> admin_comment;
  bool is_companion = false;
  std::string qos, partition;  ///< set for companions where not empty
  LoweredRequest lowered;      ///< of a job that consents to fewer GPUs
  std::string notice;          ///< for the user, though all is well: a line each; mostly empty
};

/// Members of a change (`scontrol update job`) that matter to Swell.
struct ChangeRequest {
  uid_t uid = 0;
  bool by_slurm_or_root = false;
  std::vector<JobId> jobs;  ///< all ids by which it names the job
  std::string qos, partition, comment;
  std::optional<std::string> admin_comment;  ///< nothing: it is left as it was
};

/// Validates a submission: `--elastic` jobs get their spec recorded; companions are admitted on a
/// live grant, exactly as offered; everything else passes unchanged. The error is for the user.
/// `place` is kept for companions, also where `book` has no grants as elasticity is off. `lowers`:
/// jobs that consent to fewer GPUs (min= of --elastic) are submitted for these. `gpu_types`: those
/// that the cluster has; none: not known.
Result<Admission> admit(const SubmitRequest& request, const ExpansionPlace& place, GrantBook& book,
                        double now, bool lowers = false,
                        const std::set<std::string>& gpu_types = {});

/// Refuses switch=requeue for a job that Slurm cannot requeue. `by_default`: JobRequeue of the
/// site.
Result<void> check_requeue(const SubmitRequest& request, bool by_default);

/// Validates a change by a user: companions are cancelled, not changed, as their owner could
/// otherwise make one permanent; no other job gets to their place, and nobody writes Swell's words.
Result<void> check_change(const ChangeRequest& request, const ExpansionPlace& place,
                          const GrantBook& book);

/// Returns the nonce of the grant that a comment carries, whatever a site's own plugin wrote before
/// and behind it. Inline: job_submit/swell calls it, too, which links only what host.h exports.
inline std::optional<std::string> grant_in(std::string_view comment) {
  const std::size_t at = comment.rfind(kGrantComment);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = comment.substr(at + std::string_view(kGrantComment).size());
  const auto is_of_nonce = [](unsigned char c) { return std::isalnum(c) != 0; };
  return std::string(rest.begin(), std::find_if_not(rest.begin(), rest.end(), is_of_nonce));
}

/// GPUs that a submission asks for in all; 0 where none; never more than an int holds.
int basic_gpus_of(const SubmitRequest& request);

}  // namespace swell::controller
