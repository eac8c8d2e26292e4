// SPDX-License-Identifier: GPL-2.0-or-later
// Limits that Slurm sets users and accounts, which lent GPUs count for.
#include <criterion/criterion.h>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::World;

namespace {

std::int64_t uid_of(const std::string& user) {
  if (user.empty()) return -1;
  return user == "ann" ? 1000 : user == "bob" ? 1001 : 1002;
}

slurm::AssociationRecord association(const std::string& account, const std::string& user,
                                     const std::string& parent, bool limits_running,
                                     std::optional<int> max_submitted = std::nullopt) {
  return {account, user, "", uid_of(user), parent, limits_running, max_submitted};
}

/// Users of two accounts under one, which is under root. Job 10 of ann in physics is lent GPUs.
struct Limited : World {
  explicit Limited(std::vector<slurm::AssociationRecord> limits) {
    for (const auto& [account, user, parent] :
         std::vector<std::tuple<const char*, const char*, const char*>>{{"root", "", ""},
                                                                        {"science", "", "root"},
                                                                        {"physics", "", "science"},
                                                                        {"biology", "", "science"},
                                                                        {"physics", "ann", ""},
                                                                        {"physics", "bob", ""},
                                                                        {"biology", "cem", ""}})
      if (std::none_of(limits.begin(), limits.end(), [&, a = account, u = user](const auto& each) {
            return each.account == a && each.user == u;
          }))
        limits.push_back(association(account, user, parent, false));
    slurm.now.associations =
        std::make_shared<const std::vector<slurm::AssociationRecord>>(std::move(limits));
    belongs(slurm.run_elastic(10, "node1", 8), "physics", "ann");
    hello(1, 10, 8);
  }
  static slurm::JobRecord& belongs(slurm::JobRecord& job, const char* account, const char* user) {
    job.account = account;
    job.uid = static_cast<uid_t>(uid_of(user));
    return job;
  }
  slurm::JobRecord& waits(JobId id, const char* account, const char* user, int gpus,
                          slurm::Waiting reason = slurm::Waiting::for_association) {
    slurm::JobRecord& job = belongs(slurm.wait(id, gpus), account, user);
    job.waiting = reason;
    return job;
  }
  int leaving() {
    int companions = 0;
    for (const Companion& each : controller->jobs().at(10).companions)
      companions += each.is_leaving();
    return companions;
  }
  /// Companions that are reclaimed within a round after job 90 began to wait.
  int reclaimed_for(const char* account, const char* user, int gpus) {
    take_offers(1, 20);
    cr_assert_eq(controller->jobs().at(10).companions.lent_gpus(), 24);
    waits(90, account, user, gpus);
    step();
    return leaving();
  }
};

}  // namespace

Test(user_limits, a_job_that_waits_for_a_limit_gets_lent_gpus_back_that_count_for_it) {
  Limited own({association("physics", "ann", "", true)});
  cr_assert_eq(own.reclaimed_for("physics", "ann", 4), 1);
  const std::string why = own.controller->jobs().at(10).lending.taken_back();
  cr_assert(why.find("job 90 waits for a limit of user ann in account physics") != why.npos, "%s",
            why.c_str());
  Limited big({association("physics", "ann", "", true)});
  cr_assert_eq(big.reclaimed_for("physics", "ann", 16), 2);
}

Test(user_limits, limits_of_accounts_above_count_too) {
  Limited account({association("physics", "", "science", true)});
  cr_assert_eq(account.reclaimed_for("physics", "bob", 4), 1);
  Limited parent({association("science", "", "root", true)});
  cr_assert_eq(parent.reclaimed_for("biology", "cem", 4), 1);
}

Test(user_limits, companions_outside_the_limit_stay) {
  Limited other({association("biology", "cem", "", true)});
  cr_assert_eq(other.reclaimed_for("biology", "cem", 4), 0);
  Limited unlimited({association("physics", "bob", "", true)});
  cr_assert_eq(unlimited.reclaimed_for("physics", "bob", 4), 0);
}

Test(user_limits, the_qos_of_a_partition_counts_what_is_lent_in_it) {
  Limited world({});
  world.slurm.now.partitions[0].qos = "of-train";
  world.take_offers(1, 20);
  world.waits(90, "biology", "cem", 4, slurm::Waiting::for_qos);
  world.step();
  cr_assert_eq(world.leaving(), 1);
}

Test(user_limits, nothing_is_lent_again_before_the_job_that_waited_has_started) {
  Limited world({association("physics", "ann", "", true)});
  cr_assert_eq(world.reclaimed_for("physics", "ann", 4), 1);
  for (const Companion& each : CompanionSet(world.controller->jobs().at(10).companions))
    if (each.is_leaving()) world.slurm.end(each.id);
  world.server.sent.clear();
  for (int i = 0; i < 9; ++i) world.step();
  cr_assert_eq(world.leaving(), 0, "Slurm has time to start it");
  cr_assert_null(world.server.last<control::Grow>());
  for (int i = 0; i < 5; ++i) world.step();
  cr_assert_eq(world.leaving(), 1, "one was not enough");
}

Test(user_limits, a_job_that_its_users_own_jobs_keep_waiting_does_not_stop_lending_for_ever) {
  Limited world({association("physics", "ann", "", true)});
  Limited::belongs(world.slurm.run(50, "node2", 1, ""), "physics", "ann");
  world.waits(90, "physics", "ann", 4);
  world.server.sent.clear();
  world.step(50);
  cr_assert_not(world.controller->jobs().at(10).limits.held_back().empty());
  cr_assert_null(world.server.last<control::Grow>());
  for (int i = 0; i < 100; ++i) world.step();
  cr_assert(world.controller->jobs().at(10).limits.held_back().empty());
  cr_assert_not_null(world.server.last<control::Grow>());
  world.slurm.end(50);  // now it could start
  world.step();
  cr_assert_not(world.controller->jobs().at(10).limits.held_back().empty());
}

Test(user_limits, some_of_the_jobs_that_may_be_submitted_stay_free) {
  Limited few({association("physics", "ann", "", false, 3)});
  cr_assert_eq(few.server.last<control::Grow>()->offers.size(), 1u);
  Limited none({association("physics", "ann", "", false, 2)});
  cr_assert_null(none.server.last<control::Grow>());
  const std::string why = none.controller->jobs().at(10).limits.held_back();
  cr_assert(why.find("1 of 2 submitted jobs stay free") != why.npos, "%s", why.c_str());
  Limited many({association("science", "", "root", false, 100)});
  cr_assert_eq(many.server.last<control::Grow>()->offers.size(), 3u);
}

Test(user_limits, a_user_who_submits_more_gets_companions_slots_back) {
  Limited world({association("physics", "ann", "", false, 8)});
  world.take_offers(1, 20);
  for (slurm::JobRecord& each : world.slurm.now.jobs) Limited::belongs(each, "physics", "ann");
  world.step();
  cr_assert_eq(world.leaving(), 0);
  slurm::JobRecord& array = world.waits(90, "physics", "ann", 1, slurm::Waiting::for_resources);
  array.pending_tasks = 3;
  array.gpus_per_node = {};
  world.step();
  cr_assert_eq(world.leaving(), 1, "7 of 8 are submitted, and 2 stay free");
}
