// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/tag_book.h"

#include <algorithm>

#include "base/mutex.h"
#include "control/tag.h"

namespace swell::controller {

void TagBook::look(const std::vector<slurm::JobRecord>& jobs) {
  std::vector<Entry> entries;
  for (const slurm::JobRecord& record : jobs)
    if (record.phase != slurm::JobPhase::ended &&
        record.admin_comment.find("swell[") != std::string::npos)
      entries.push_back({record.id, record.admin_comment});
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.job < b.job; });
  Lock lock(mutex_);
  entries_ = std::move(entries);
}

void TagBook::wrote(JobId job, const std::string& admin_comment) {
  Lock lock(mutex_);
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), job,
                       [](const Entry& entry, JobId wanted) { return entry.job < wanted; });
  if (at != entries_.end() && at->job == job) at->admin_comment = admin_comment;
  else entries_.insert(at, {job, admin_comment});
}

std::optional<std::string> TagBook::kept_in(const ChangeRequest& change) const {
  if (!change.admin_comment || control::Tag::find(*change.admin_comment)) return std::nullopt;
  Lock lock(mutex_);
  for (const JobId job : change.jobs) {
    const auto found =
        std::lower_bound(entries_.begin(), entries_.end(), job,
                         [](const Entry& entry, JobId wanted) { return entry.job < wanted; });
    if (found == entries_.end() || found->job != job) continue;
    if (const auto tag = control::Tag::find(found->admin_comment))
      return tag->put_into(*change.admin_comment);
  }
  return std::nullopt;
}

}  // namespace swell::controller
