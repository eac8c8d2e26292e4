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

void CommentWriter::look() {
  std::erase_if(comments_, [&](const auto& each) { return !loop_.jobs.contains(each.first); });
  for (const slurm::JobRecord& record : loop_.snapshot.jobs) {
    const auto job = loop_.jobs.find(record.id);
    if (job == loop_.jobs.end()) continue;
    AdminComment& comment = comments_[record.id];
    if (comment.started != job->second.started) {  // requeued and started again between two looks
      comment = {};
      comment.started = job->second.started;
    }
    if (comment.seen == record.admin_comment) continue;
    comment.seen = record.admin_comment;
    // Another tag in place of the last one is left until that changes: what others write around
    // it stays.
    const auto own = control::Tag::find(comment.written);
    const auto tag = control::Tag::find(record.admin_comment);
    const bool is_elastic = tag && !tag->get("elastic").empty();
    comment.written =
        own && is_elastic ? own->put_into(record.admin_comment) : record.admin_comment;
  }
}

/// slurmctld has held the controller for a while, and could not write this job's AdminComment.
void CommentWriter::comment_waits(JobId job, AdminComment& comment, double now) {
  CommentsWait& all = comments_wait_;
  if (all.pause_s == 0)
    loop_.events.say(fmt::format("slurmctld cannot write AdminComment of job {} yet", job));
  all.pause_s = std::clamp(2 * all.pause_s, kCommentsWait_s, kMaxCommentsWait_s);
  all.again_until = now + all.pause_s;
  // Only news hold up jobs that have not waited themselves.
  if (comment.waited == 0) all.until = all.again_until;
  comment.again_at = now + std::min(std::ldexp(kCommentsWait_s, comment.waited), kCommentPause_s);
  comment.waited = std::min(comment.waited + 1, 10);
}

void CommentWriter::write(double now) {
  bool waits = false;
  struct Write {
    JobId job;
    AdminComment* comment;
    std::string text;
  };
  std::vector<Write> due;
  for (const auto& [id, job] : loop_.jobs) {
    AdminComment& comment = comments_[id];
    waits = waits || comment.waited > 0;
    if (now - job.first_seen < kNewJobLeftAlone_s) continue;
    std::string text = job.tag().put_into(comment.written);
    if (text != comment.written && now >= comment.again_at)
      due.push_back({id, &comment, std::move(text)});
  }
  if (!waits) comments_wait_.pause_s = 0;
  // The most likely to be written come first, so that jobs with refused comments delay no others.
  std::stable_sort(due.begin(), due.end(), [](const Write& one, const Write& other) {
    const auto rank = [](const AdminComment& its) {
      return std::tuple(its.waited, !its.taken, its.again_at);
    };
    return rank(*one.comment) < rank(*other.comment);
  });
  for (const Write& next : due) {
    AdminComment& comment = *next.comment;
    const bool has_waited = comment.waited > 0;
    if (now < (has_waited ? comments_wait_.again_until : comments_wait_.until)) break;
    const Result<bool> done = loop_.slurm.set_admin_comment(next.job, next.text);
    if (done && !*done) return comment_waits(next.job, comment, now);
    if (!done) {
      // For example a site's own job_modify may refuse every change.
      double& pause_s = comment.pause_s;
      pause_s = std::clamp(2 * pause_s, 1.0, kCommentPause_s);
      comment.again_at = now + pause_s;
      comment.waited = 0;  // what it waited for is back
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
    comment.pause_s = 0;
    comment.waited = 0;
    comment.taken = true;
    comment.written = next.text;
    // A change before the next look keeps this tag, not the one before.
    if (loop_.tags != nullptr) loop_.tags->wrote(next.job, next.text);
    // slurmdbd, for which the others may have waited too, is likely to be back.
    if (has_waited)
      for (auto& [id, other] : comments_)
        if (other.waited > 0) other.again_at = 0;
  }
  const bool refused = std::any_of(comments_.begin(), comments_.end(),
                                   [](const auto& comment) { return comment.second.pause_s > 1; });
  if (!refused) loop_.events.fixed("AdminComment");
}

}  // namespace swell::controller
