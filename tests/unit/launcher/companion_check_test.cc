// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/companion_check.h"

#include <criterion/criterion.h>

using namespace swell;
using launcher::check_companion;
using launcher::shown_name;

namespace {

control::Offer offer() {
  control::Offer offer;
  offer.nonce = "0a1b";
  offer.name = "swell-5";
  offer.node = "node2";
  offer.partition = "train";
  offer.account = "Lab";
  offer.qos = "expansion";
  return offer;
}

/// The output of `scontrol show job -d 7` for a good companion.
const std::string kShown =
    "JobId=7 JobName=swell-5\n"
    "   UserId=games(5) GroupId=games(60) MCS_label=N/A\n"
    "   Priority=4294967280 Nice=0 Account=lab QOS=expansion\n"
    "   JobState=RUNNING Reason=None Dependency=(null)\n"
    "   Partition=train AllocNode:Sid=head:1\n"
    "   Features=(null) DelayBoot=00:00:00\n"
    "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n"
    "   Comment=swell-grant=0a1b\n"
    "   AdminComment=swell[parent=5 grant=0a1b]\n"
    "\n";

std::string with(std::string text, const std::string& old, const std::string& now) {
  const auto at = text.find(old);
  cr_assert(at != std::string::npos, "%s", old.c_str());
  return text.replace(at, old.size(), now);
}

}  // namespace

Test(companion_check, takes_what_was_offered) {
  cr_assert(check_companion(kShown, 7, 5, offer()).ok());
  control::Offer of_older_controller = offer();
  of_older_controller.qos.clear();
  cr_assert(check_companion(kShown, 7, 5, of_older_controller).ok());
}

Test(companion_check, names_of_accounts_and_qos_may_have_blanks) {
  control::Offer of_two_words = offer();
  of_two_words.account = "we ird";
  of_two_words.qos = "odd qos";
  const std::string shown = with(kShown, "Account=lab QOS=expansion", "Account=we ird QOS=odd qos");
  cr_assert(check_companion(shown, 7, 5, of_two_words).ok());
  cr_assert(check_companion(with(shown, "odd qos", "odd qos WCKey=*x"), 7, 5, of_two_words).ok());
  of_two_words.account = "we";
  cr_assert_not(check_companion(shown, 7, 5, of_two_words).ok());
}

Test(companion_check, names_every_change_of_a_plugin) {
  const struct {
    const char *old, *now, *words;
  } cases[] = {{"   AdminComment=swell[parent=5 grant=0a1b]\n", "", "changed its AdminComment"},
               {"swell[parent=5 grant=0a1b]", "cost=3", "leave jobs alone whose name"},
               {"parent=5", "parent=6", "changed its AdminComment"},
               {"[parent=5 grant=0a1b]", "[parent=5 grant=0a1c]", "changed its AdminComment"},
               {"JobName=swell-5", "JobName=lab-swell-5",
                "changed its name from \"swell-5\" to \"lab-swell-5\""},
               {"QOS=expansion", "QOS=normal", "changed its QOS from \"expansion\" to \"normal\""},
               {"Partition=train", "Partition=debug", "its partition from \"train\" to \"debug\""},
               {"Account=lab", "Account=other", "its account"},
               {"Licenses=(null)", "Licenses=matlab:1", "its licences from \"\" to \"matlab:1\""},
               {"   Comment=", "   Reservation=maint\n   Comment=", "its reservation"}};
  for (const auto& each : cases) {
    const auto checked = check_companion(with(kShown, each.old, each.now), 7, 5, offer());
    cr_assert_not(checked.ok(), "%s", each.now);
    cr_assert(checked.error().message().find(each.words) != std::string::npos, "%s: %s", each.now,
              checked.error().message().c_str());
  }
}

Test(companion_check, a_job_that_is_not_shown_is_not_taken) {
  cr_assert_not(check_companion("", 7, 5, offer()).ok());
  cr_assert_not(check_companion("slurm_load_jobs error: Invalid job id\n", 7, 5, offer()).ok());
  cr_assert_not(check_companion(with(kShown, "JobId=7", "JobId=77"), 7, 5, offer()).ok());
}

Test(companion_check, fields_within_free_text_are_none) {
  cr_assert(check_companion(with(kShown, "Comment=swell", "Comment=QOS=normal Partition=x swell"),
                            7, 5, offer())
                .ok());
}

Test(companion_check, it_is_cancelled_by_the_name_that_it_has) {
  cr_assert_eq(shown_name(with(kShown, "swell-5", "lab swell-5"), 7, "swell-5"), "lab swell-5");
  cr_assert_eq(shown_name("", 7, "swell-5"), "swell-5");
}
