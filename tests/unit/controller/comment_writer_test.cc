// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/comment_writer.h"

#include <criterion/criterion.h>
#include <string>

#include "unit/controller/fakes.h"

namespace swell::test {
namespace {

/// The comments of job 10, which runs with 2 GPUs.
struct Commented {
  FakeSlurm slurm{1};
  FakeServer server;
  controller::GrantBook book;
  controller::LoopState loop{.config = {},
                             .slurm = slurm,
                             .book = book,
                             .events = controller::EventLog("", [](const std::string&) {}),
                             .sessions = controller::AgentSessions(server)};
  controller::CommentWriter comments{loop};
  controller::ElasticJob& job = loop.jobs[10];

  Commented() {
    job.id = 10;
    job.basic_gpus = 2;
    slurm.run_elastic(10, "node1", 2);
    job.started = slurm.find(10)->start_time;
    look(slurm.find(10)->admin_comment);
    comments.write(100);
  }
  /// Slurm's records show this comment.
  void look(const std::string& comment) {
    slurm.find(10)->admin_comment = comment;
    loop.snapshot = slurm.now;
    comments.look();
  }
  void set_workers(int workers) {
    control::Status status;
    status.workers = workers;
    job.agent_words.hear(status, 100, 0);
  }
  const std::string& comment() { return slurm.find(10)->admin_comment; }
};

}  // namespace

Test(comment_writer, a_tag_that_somebody_removed_is_written_behind_his_words) {
  Commented commented;
  commented.look("JS1:abc");
  commented.comments.write(101);
  cr_assert(commented.comment().starts_with("JS1:abc swell[elastic="), "%s",
            commented.comment().c_str());
  // A look that shows nothing new does not undo what was written since.
  const int written = commented.slurm.comments_written;
  commented.comments.look();
  commented.comments.write(102);
  cr_assert_eq(commented.slurm.comments_written, written);
}

Test(comment_writer, words_beside_a_tag_are_kept_with_the_tag_that_was_written_last) {
  Commented commented;
  const int written = commented.slurm.comments_written;
  commented.look("JS2 swell[elastic=max=8 lent=0]");
  commented.comments.write(101);
  cr_assert_eq(commented.slurm.comments_written, written, "no tag has changed");
  commented.set_workers(7);
  commented.comments.write(102);
  cr_assert(commented.comment().starts_with("JS2 swell[elastic="), "%s",
            commented.comment().c_str());
  cr_assert_neq(commented.comment().find("workers=7"), std::string::npos);
}

Test(comment_writer, another_run_of_a_job_begins_without_the_pause_of_the_one_before) {
  Commented commented;
  commented.slurm.refuses_comments = true;
  for (const int workers : {2, 3, 4}) {
    commented.set_workers(workers);
    commented.comments.write(100 + 10 * workers);
  }
  commented.slurm.refuses_comments = false;
  commented.comments.write(141);
  cr_assert_eq(commented.comment().find("workers=4"), std::string::npos, "it pauses for 4 s");
  commented.job.started += 60;
  commented.look(commented.comment());
  commented.comments.write(142);
  cr_assert_neq(commented.comment().find("workers=4"), std::string::npos);
}

}  // namespace swell::test
