// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/companion_requests.h"

#include <criterion/criterion.h>
#include <csignal>

#include "support/fake_runner.h"

using namespace swell;
using namespace swell::launcher;
using support::FakeRunner;

namespace {

control::Offer offer(const std::string& name, const std::string& node = "node2") {
  control::Offer offer;
  offer.nonce = name == "swell-5" ? "0a1b" : "0c2d";
  offer.name = name;
  offer.node = node;
  offer.partition = "train";
  offer.gpus = 4;
  offer.workers = 4;
  return offer;
}

/// The output of `scontrol show job -d` for a good companion with 2 GPUs.
std::string shown(const std::string& job, const control::Offer& of) {
  return "JobId=" + job + " JobName=" + of.name +
         "\n"
         "   UserId=games(5) GroupId=games(60) MCS_label=N/A\n"
         "   Priority=4294967280 Nice=0 Account=lab QOS=expansion\n"
         "   JobState=RUNNING Reason=None Dependency=(null)\n"
         "   Partition=train AllocNode:Sid=head:1\n"
         "   JOB_GRES=gpu:h100:2\n"
         "     Nodes=" +
         of.node +
         " CPU_IDs=0-7 Mem=8000 GRES=gpu:h100:2(IDX:2-3)\n"
         "   Features=(null) DelayBoot=00:00:00\n"
         "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n"
         "   Comment=swell-grant=" +
         of.nonce + "\n   AdminComment=swell[parent=5 grant=" + of.nonce + "]\n\n";
}

struct Trial {
  explicit Trial(bool wants_ports = false)
      : requests({.job = 5, .gpus_per_worker = 1, .warning = SIGUSR1, .wants_ports = wants_ports},
                 runner, descriptions,
                 [this](const std::vector<Granted>& results) { done.push_back(results); }) {}
  void begin(std::vector<control::Offer> offers, int expires_s = 10) {
    control::Grow grow;
    grow.offers = std::move(offers);
    grow.expires_s = expires_s;
    requests.begin(grow, 0);
  }
  /// Slurm grants the offer of this salloc; the pid of what looks at it.
  pid_t grant(pid_t salloc, const std::string& job) {
    cr_assert(requests.take(
        FakeRunner::ended(salloc, 0, "salloc: Granted job allocation " + job + "\n")));
    return runner.last().pid;
  }
  FakeRunner runner;
  std::map<std::string, cluster::NodeDescription> descriptions;
  std::vector<std::vector<Granted>> done;
  CompanionRequests requests;
};

}  // namespace

Test(companion_requests, a_grant_is_looked_at_and_has_the_gpus_that_slurm_gave) {
  Trial trial;
  trial.begin({offer("swell-5")});
  cr_assert_eq(trial.runner.last().command.front(), "salloc");
  const pid_t show = trial.grant(100, "7");
  cr_assert(trial.runner.last().command ==
            (std::vector<std::string>{"scontrol", "-d", "show", "job", "7"}));
  cr_assert(trial.done.empty());
  cr_assert(trial.requests.take(FakeRunner::ended(show, 0, shown("7", offer("swell-5")))));
  cr_assert_eq(trial.done.size(), 1u);
  const Granted& result = trial.done[0].at(0);
  cr_assert_eq(result.job, 7u);
  cr_assert_eq(result.nonce, "0a1b");
  cr_assert_eq(result.nodes.at(0).name, "node2");
  cr_assert_eq(result.nodes[0].gpus, 2);
  cr_assert_eq(result.nodes[0].gpu_list, "2-3");
  cr_assert_eq(result.nodes[0].workers, 2, "no more than fit its GPUs");
  cr_assert_eq(trial.requests.name_of(7), "swell-5");
  cr_assert_not(trial.requests.deadline().has_value());
}

Test(companion_requests, where_scontrol_fails_on_details_a_step_tells_the_gpus) {
  Trial trial;
  trial.begin({offer("swell-5")});
  const pid_t details = trial.grant(100, "7");
  cr_assert(trial.requests.take(FakeRunner::ended(details, 139)));
  cr_assert(trial.runner.last().command ==
            (std::vector<std::string>{"scontrol", "show", "job", "7"}));
  std::string summary = shown("7", offer("swell-5"));
  const auto detail = summary.find("     Nodes=");
  summary.erase(detail, summary.find('\n', detail) + 1 - detail);
  cr_assert(trial.requests.take(FakeRunner::ended(trial.runner.last().pid, 0, summary)));
  cr_assert_eq(trial.runner.last().command.front(), "srun");
  cr_assert(trial.done.empty());
  cr_assert(trial.requests.take(
      FakeRunner::ended(trial.runner.last().pid, 0, "swell-node 0 node2 2,3,5,6 8\n")));
  const Granted& result = trial.done.at(0).at(0);
  cr_assert_eq(result.job, 7u);
  cr_assert_eq(result.nodes.at(0).gpu_list, "2,3,5,6");
  cr_assert_eq(result.nodes[0].workers, 4);
}

Test(companion_requests, where_scontrol_tells_nothing_the_companion_is_cancelled) {
  Trial trial;
  trial.begin({offer("swell-5")});
  cr_assert(trial.requests.take(FakeRunner::ended(trial.grant(100, "7"), 139)));
  cr_assert(trial.requests.take(FakeRunner::ended(trial.runner.last().pid, 1, "scontrol: error")));
  cr_assert_eq(trial.runner.last().command.front(), "scancel");
  cr_assert_eq(trial.done.at(0).at(0).job, 0u);
}

Test(companion_requests, all_offers_of_a_grow_are_answered_together) {
  Trial trial;
  trial.begin({offer("swell-5"), offer("swell-6", "node3")});
  cr_assert(trial.requests.take(FakeRunner::ended(100, 1, "salloc: error: nothing is free\n")));
  cr_assert(trial.done.empty());
  const pid_t show = trial.grant(101, "8");
  cr_assert(trial.requests.take(FakeRunner::ended(show, 0, shown("8", offer("swell-6", "node3")))));
  cr_assert_eq(trial.done.at(0).size(), 2u);
  cr_assert_eq(trial.done[0][0].job, 0u);
  cr_assert(trial.done[0][0].reason.find("nothing is free") != std::string::npos);
  cr_assert_eq(trial.done[0][1].job, 8u);
}

Test(companion_requests, what_is_not_the_companion_that_was_offered_is_cancelled) {
  Trial trial;
  trial.begin({offer("swell-5")});
  const pid_t show = trial.grant(100, "7");
  std::string other = shown("7", offer("swell-5"));
  other.replace(other.find("grant=0a1b]"), 11, "grant=0a1c]");
  cr_assert(trial.requests.take(FakeRunner::ended(show, 0, other)));
  cr_assert_eq(trial.runner.last().command.front(), "scancel");
  cr_assert_eq(trial.done.at(0).at(0).job, 0u);
  cr_assert_not(trial.done[0][0].reason.empty());
}

Test(companion_requests, an_offer_that_slurm_does_not_grant_in_time_is_given_up) {
  Trial trial;
  trial.begin({offer("swell-5")}, 10);
  cr_assert_eq(trial.requests.deadline().value(), 10);
  trial.requests.expire(9.9);
  cr_assert(trial.runner.signals.empty());
  trial.requests.expire(10);
  cr_assert(trial.runner.signals == (std::vector<std::pair<pid_t, int>>{{100, SIGTERM}}));
  cr_assert(trial.done.empty(), "salloc has not ended");
  cr_assert(trial.requests.take(
      FakeRunner::ended(100, 1, "salloc: Job allocation 7 has been revoked.\n")));
  cr_assert_eq(trial.done.at(0).at(0).job, 0u);
}

Test(companion_requests, a_look_that_hangs_is_the_last_and_its_companion_goes_back) {
  for (const bool hangs_at_once : {true, false}) {
    Trial trial;
    trial.begin({offer("swell-5")}, 10);
    pid_t look = trial.grant(100, "7");
    if (!hangs_at_once) {
      cr_assert(trial.requests.take(FakeRunner::ended(look, 139)));
      look = trial.runner.last().pid;
    }
    trial.requests.expire(10);
    cr_assert(trial.runner.signals.empty(), "it may have begun just now");
    trial.requests.expire(15);
    cr_assert(trial.runner.signals == (std::vector<std::pair<pid_t, int>>{{look, SIGKILL}}));
    cr_assert(trial.requests.take(FakeRunner::ended(look, 137)));
    cr_assert_eq(trial.runner.last().command.front(), "scancel");
    cr_assert_eq(trial.done.at(0).at(0).job, 0u);
    cr_assert_neq(trial.done[0][0].reason.find("in time"), std::string::npos);
    cr_assert_not(trial.requests.deadline().has_value());
  }
}

Test(companion_requests, a_look_that_ends_soon_after_the_expiry_counts) {
  Trial trial;
  trial.begin({offer("swell-5")}, 10);
  const pid_t look = trial.grant(100, "7");
  trial.requests.expire(10);
  cr_assert(trial.requests.take(FakeRunner::ended(look, 0, shown("7", offer("swell-5")))));
  cr_assert_eq(trial.done.at(0).at(0).job, 7u);
}

Test(companion_requests, a_grant_that_comes_too_late_goes_back_without_a_look) {
  Trial trial;
  trial.begin({offer("swell-5")}, 10);
  trial.requests.expire(10);
  cr_assert(trial.requests.take(FakeRunner::ended(100, 0, "salloc: Granted job allocation 7\n")));
  cr_assert_eq(trial.runner.last().command.front(), "scancel");
  cr_assert_eq(trial.done.at(0).at(0).job, 0u);
}

Test(companion_requests, a_grant_whose_node_runs_its_prolog_keeps_no_other_waiting) {
  Trial trial;
  trial.begin({offer("swell-5"), offer("swell-6", "node3")}, 10);
  const pid_t show = trial.grant(101, "8");
  cr_assert(trial.requests.take(FakeRunner::ended(show, 0, shown("8", offer("swell-6", "node3")))));
  trial.runner.outputs[100] = "salloc: Granted job allocation 7\n";
  trial.requests.expire(10);
  cr_assert(trial.runner.signals.empty(), "it may take longer");
  cr_assert_eq(trial.done.size(), 1u);
  cr_assert_eq(trial.done[0].size(), 1u, "without the slow one");
  cr_assert_eq(trial.done[0][0].job, 8u);
  cr_assert_eq(trial.requests.deadline().value(), 10 + CompanionRequests::kProlog_s);
  const pid_t late = trial.grant(100, "7");
  cr_assert(trial.requests.take(FakeRunner::ended(late, 0, shown("7", offer("swell-5")))));
  cr_assert_eq(trial.done.at(1).at(0).job, 7u);
}

Test(companion_requests, a_prolog_that_does_not_end_costs_the_companion) {
  Trial trial;
  trial.begin({offer("swell-5")}, 10);
  trial.runner.outputs[100] = "salloc: Granted job allocation 7\n";
  trial.requests.expire(10);
  trial.requests.expire(10 + CompanionRequests::kProlog_s);
  cr_assert_eq(trial.runner.last().command.front(), "scancel");
  cr_assert(trial.runner.signals == (std::vector<std::pair<pid_t, int>>{{100, SIGTERM}}));
  const Granted& result = trial.done.back().at(0);
  cr_assert_eq(result.job, 0u);
  cr_assert(result.reason.find("Prolog") != std::string::npos);
}

Test(companion_requests, an_id_that_slurm_gives_twice_is_not_taken_twice) {
  Trial trial;
  for (const bool again : {false, true}) {
    const pid_t salloc = trial.runner.next_pid;
    trial.begin({offer("swell-5")});
    const pid_t show = trial.grant(salloc, "7");
    trial.requests.take(FakeRunner::ended(show, 0, shown("7", offer("swell-5"))));
    cr_assert_eq(trial.done.back().at(0).job, again ? 0u : 7u);
  }
  cr_assert_eq(trial.runner.last().command.front(), "scancel");
}

Test(companion_requests, where_salloc_cannot_be_started_the_answer_comes_at_once) {
  Trial trial;
  trial.runner.fails = true;
  trial.begin({offer("swell-5")});
  cr_assert_eq(trial.done.at(0).at(0).job, 0u);
  cr_assert(trial.done[0][0].reason.find("no more processes") != std::string::npos);
}

Test(companion_requests, a_node_without_a_description_is_asked_for_its_own) {
  Trial trial(true);
  trial.begin({offer("swell-5")});
  const pid_t show = trial.grant(100, "7");
  cr_assert(trial.requests.take(FakeRunner::ended(show, 0, shown("7", offer("swell-5")))));
  cr_assert(trial.done.empty());
  cr_assert(trial.runner.last().command ==
            (std::vector<std::string>{"scontrol", "show", "node", "node2"}));
  cr_assert(trial.requests.take(FakeRunner::ended(trial.runner.last().pid, 0, "NodeName=node2\n")));
  cr_assert_eq(trial.done.at(0).at(0).job, 7u);
}

Test(companion_requests, other_processes_are_left_to_others) {
  Trial trial;
  trial.begin({offer("swell-5")});
  cr_assert_not(trial.requests.take(FakeRunner::ended(4711)));
  trial.requests.kill();
  cr_assert(trial.runner.signals == (std::vector<std::pair<pid_t, int>>{{100, SIGKILL}}));
}
