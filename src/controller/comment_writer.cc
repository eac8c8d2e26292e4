// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/comment_writer.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace swell::controller {

namespace {

/// slurmctld holds an update of a job back, for a second at a time, until slurmdbd knows the job:
/// that would hold up everything else here.
constexpr double kNewJobLeftAlone_s = 2;

constexpr double kCommentPause_s = 300;

/// As where slurmdbd is away, or a backup has just taken over: each try holds this thread for 5 s.
constexpr double kCommentsWait_s = 5, kMaxCommentsWait_s = 20;

}  // namespace

/// slurmctld has held the controller for a while, and could not write this job's AdminComment.
void CommentWriter::comment_waits(ElasticJob& job, double now) {
  CommentsWait& all = comments_wait_;
  if (all.pause_s == 0)
    loop_.events.say(fmt::format("slurmctld cannot write AdminComment of job {} yet", job.id));
  all.pause_s = std::clamp(2 * all.pause_s, kCommentsWait_s, kMaxCommentsWait_s);
  all.again_until = now + all.pause_s;
  // Only news hold up jobs that have not waited themselves.
  if (job.comment.waited == 0) all.until = all.again_until;
  job.comment.again_at =
      now + std::min(std::ldexp(kCommentsWait_s, job.comment.waited), kCommentPause_s);
  job.comment.waited = std::min(job.comment.waited + 1, 10);
}

void CommentWriter::write(double now) {
  bool waits = false;
  std::vector<std::pair<ElasticJob*, std::string>> due;
  for (auto& [id, job] : loop_.jobs) {
    waits = waits || job.comment.waited > 0;
    if (now - job.first_seen < kNewJobLeftAlone_s) continue;
    std::string comment = job.tag().put_into(job.comment.written);
    if (comment != job.comment.written && now >= job.comment.again_at)
      due.emplace_back(&job, std::move(comment));
  }
  if (!waits) comments_wait_.pause_s = 0;
  // The most likely to be written come first, so that jobs with refused comments delay no others.
  std::stable_sort(due.begin(), due.end(), [](const auto& one, const auto& other) {
    const auto rank = [](const ElasticJob::AdminComment& its) {
      return std::tuple(its.waited, !its.taken, its.again_at);
    };
    return rank(one.first->comment) < rank(other.first->comment);
  });
  for (const auto& [next, comment] : due) {
    ElasticJob& job = *next;
    const bool has_waited = job.comment.waited > 0;
    if (now < (has_waited ? comments_wait_.again_until : comments_wait_.until)) break;
    const Result<bool> done = loop_.slurm.set_admin_comment(job.id, comment);
    if (done && !*done) return comment_waits(job, now);
    if (!done) {
      // For example a site's own job_modify may refuse every change.
      double& pause_s = job.comment.pause_s;
      pause_s = std::clamp(2 * pause_s, 1.0, kCommentPause_s);
      job.comment.again_at = now + pause_s;
      job.comment.waited = 0;  // what it waited for is back
      loop_.events.say(
          fmt::format("{}; it is tried again in {:g} s", done.error().message(), pause_s));
      // Anybody is told this: it names no job.
      const std::string& why = done.error().message();
      const std::size_t last = why.rfind(": ");
      if (pause_s > 1 && !loop_.events.troubles().contains("AdminComment"))
        loop_.events.trouble("AdminComment", "Slurm refuses what Swell writes about jobs: " +
                                                 (last != why.npos ? why.substr(last + 2) : why));
      continue;
    }
    job.comment.pause_s = 0;
    job.comment.waited = 0;
    job.comment.taken = true;
    job.comment.written = comment;
    // A change before the next look keeps this tag, not the one before.
    if (loop_.tags != nullptr) loop_.tags->wrote(job.id, comment);
    // slurmdbd, for which the others may have waited too, is likely to be back.
    if (has_waited)
      for (auto& [id, other] : loop_.jobs)
        if (other.comment.waited > 0) other.comment.again_at = 0;
  }
  const bool refused = std::any_of(loop_.jobs.begin(), loop_.jobs.end(),
                                   [](const auto& job) { return job.second.comment.pause_s > 1; });
  if (!refused) loop_.events.fixed("AdminComment");
}

}  // namespace swell::controller
