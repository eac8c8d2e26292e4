// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/preemption_order.h"

#include <criterion/criterion.h>

using swell::controller::preemption_order;
using swell::policy::Preemption;

Test(preemption_order, without_the_select_plugin_it_is_slurms_where_slurm_preempts) {
  swell::slurm::ControllerConfig config;
  config.plugin_dir = "/nowhere:/nowhere/else";
  for (const char* type : {"preempt/qos", "preempt/partition_prio"}) {
    config.preempt_type = type;
    config.preempts_youngest_first = false;
    cr_assert_eq(preemption_order(config), Preemption::oldest_first, "%s", type);
    config.preempts_youngest_first = true;
    cr_assert_eq(preemption_order(config), Preemption::youngest_first, "%s", type);
  }
  for (const char* type : {"", "preempt/none"}) {
    config.preempt_type = type;
    cr_assert_eq(preemption_order(config), Preemption::as_reclaimed, "%s: nothing else goes", type);
  }
}
