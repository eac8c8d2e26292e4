// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/tag_book.h"

#include <criterion/criterion.h>

#include "unit/controller/fakes.h"

using namespace swell::controller;
using swell::test::FakeSlurm;

Test(tag_book, an_admincomment_of_somebody_s_keeps_the_tag_of_its_job) {
  FakeSlurm slurm(2);
  slurm.run(12, "node1", 2, "swell[elastic=max=8 basic=2]").phase = swell::slurm::JobPhase::pending;
  slurm.run(11, "node2", 2, "an old word swell[parent=10 grant=n1]");
  slurm.run(13, "node2", 2, "rigid");
  TagBook book;
  book.look(slurm.now.jobs);
  ChangeRequest change;
  change.jobs = {12};
  cr_assert_not(book.kept_in(change).has_value(), "it writes none");
  change.admin_comment = "JS1:abc";
  cr_assert_eq(book.kept_in(change).value(), "JS1:abc swell[elastic=max=8 basic=2]");
  change.admin_comment = "";
  cr_assert_eq(book.kept_in(change).value(), "swell[elastic=max=8 basic=2]");
  change.jobs = {11};
  change.admin_comment = "new";
  cr_assert_eq(book.kept_in(change).value(), "new swell[parent=10 grant=n1]");
  change.admin_comment = "swell[parent=10 grant=n1] by Swell itself";
  cr_assert_not(book.kept_in(change).has_value());
  change.admin_comment = "new";
  for (const JobId other : {10u, 13u, 14u}) {
    change.jobs = {other};
    cr_assert_not(book.kept_in(change).has_value());
  }
  // A tag that was written since the last look counts, also for a job that had none then.
  book.wrote(12, "JS1:abc swell[elastic=max=8 basic=2 lent=4]");
  book.wrote(13, "swell[elastic=max=2]");
  change.jobs = {12};
  cr_assert_eq(book.kept_in(change).value(), "new swell[elastic=max=8 basic=2 lent=4]");
  change.jobs = {13};
  cr_assert_eq(book.kept_in(change).value(), "new swell[elastic=max=2]");
  slurm.now.jobs.clear();
  book.look(slurm.now.jobs);
  change.jobs = {12};
  cr_assert_not(book.kept_in(change).has_value(), "it has left");
}
