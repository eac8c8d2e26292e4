// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/owner_requests.h"

#include <criterion/criterion.h>
#include <string>

#include "unit/controller/fakes.h"

namespace swell::test {
namespace {

/// The requests about job 100 of user 1000, which has 4 GPUs of its own.
struct Asked {
  FakeSlurm slurm{2};
  FakeServer server;
  controller::GrantBook book;
  controller::LoopState loop{.config = {},
                             .slurm = slurm,
                             .book = book,
                             .events = controller::EventLog("", [](const std::string&) {}),
                             .sessions = controller::AgentSessions(server)};
  controller::ClusterViews views{loop, nullptr, policy::Preemption::as_reclaimed};
  controller::TypeMover types{loop};
  controller::HistoryRequests history{loop};
  controller::Reclaimer reclaimer{loop};
  controller::TypeSwitcher switcher{loop, reclaimer};
  controller::OwnerRequests requests{loop, views, types, switcher, history};
  controller::ElasticJob& job = loop.jobs[100];

  Asked() {
    job.id = 100;
    job.uid = 1000;
    job.basic_gpus = 4;
  }
  /// Returns the refusal, or nothing where there is an answer.
  std::string refusal_of(const char* what, int number = 0, uid_t uid = 1000, JobId id = 100) {
    control::Ask ask;
    ask.what = what;
    ask.job = id;
    ask.number = number;
    server.sent.clear();
    requests.handle({control::Server::Event::Kind::message, 5, uid, "test", ask}, ask, 50);
    cr_assert_eq(server.sent.size(), 1u, "each request has one answer");
    cr_assert_eq(server.closed.back(), 5u);
    const control::Refused* refused = server.last<control::Refused>();
    return refused != nullptr ? refused->reason : "";
  }
};

}  // namespace

Test(owner_requests, a_limit_below_the_gpus_of_its_own_is_refused_and_changes_nothing) {
  Asked asked;
  cr_assert_neq(asked.refusal_of("max", 3).find("the job has 4 of its own"), std::string::npos);
  cr_assert_eq(asked.job.limits.max_gpus(), 0);
  cr_assert_not(asked.loop.decision.is_asked());
}

Test(owner_requests, a_request_that_is_done_is_kept_and_decided_for) {
  Asked asked;
  cr_assert_eq(asked.refusal_of("max", 6), "");
  cr_assert_eq(asked.job.limits.max_gpus(), 6);
  cr_assert_eq(asked.loop.saved.jobs.at(100).own_max, 6);
  cr_assert(asked.loop.save.is_asked() && asked.loop.decision.is_asked());
}

Test(owner_requests, a_pause_withdraws_the_offers_that_stand) {
  Asked asked;
  controller::LiveGrant grant;
  grant.parent = 100;
  grant.expires = 100;
  grant.offer.nonce = "nonce";
  asked.book.add(grant);
  cr_assert_eq(asked.refusal_of("pause"), "");
  cr_assert(asked.job.limits.is_paused() && !asked.book.has_grant_of(100));
  cr_assert_eq(asked.refusal_of("resume"), "");
  cr_assert_not(asked.job.limits.is_paused());
}

Test(owner_requests, requests_of_strangers_and_for_unknown_jobs_are_refused) {
  Asked asked;
  cr_assert_eq(asked.refusal_of("pause", 0, 1001), "job 100 belongs to another user");
  cr_assert_not(asked.job.limits.is_paused());
  cr_assert_eq(asked.refusal_of("pause", 0, 0), "", "root may");
  cr_assert_neq(asked.refusal_of("why", 0, 1000, 999).find("there is no job 999"),
                std::string::npos);
  cr_assert_neq(asked.refusal_of("grow").find("is not known here"), std::string::npos);
}

}  // namespace swell::test
