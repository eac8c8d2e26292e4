// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/command.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <csignal>
#include <fmt/format.h>

#include "launcher/step_fit.h"
#include "support/worker_nodes.h"

using namespace swell;
using namespace swell::launcher;

namespace {

bool has(const Command& command, const std::string& word) {
  return std::find(command.begin(), command.end(), word) != command.end();
}

const RunNames own{5, "", "", 4};
const ShimAddress shim{"/x/swell-worker", "10.0.0.1", 4000, "/run/m"};

}  // namespace

Test(command, the_basic_step_takes_its_options_and_every_gpu) {
  Options options;
  options.each_step = {"--label"};
  options.basic_step = {"-i", "in"};
  options.program = {"python", "train.py", "--", "-x"};
  const auto commands = step_commands(
      options, 5, own, {worker_node(0, 5, "n1", 4), worker_node(1, 5, "n2", 4)}, 8, false, shim);
  cr_assert_eq(commands.size(), 1u);
  const Command& command = commands.front();
  for (const char* word :
       {"--label", "-i", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--gres=gpu:4",
        "--cpus-per-task=8", "--nodelist=n1,n2", "n1=0,n2=1", "--kill-on-bad-exit=0"})
    cr_assert(has(command, word), "%s is missing", word);
  cr_assert_not(has(command, "--jobid=5"));
  cr_assert_not(has(command, "--input=none"));
  const auto dashes = std::find(command.begin(), command.end(), "--");
  cr_assert_eq(Command(dashes + 1, command.end()), options.program);
}

Test(command, nodes_with_different_counts_get_an_srun_each) {
  Options options;
  options.program = {"x"};
  const auto commands = step_commands(
      options, 5, own,
      {worker_node(0, 5, "n1", 4), worker_node(1, 5, "n2", 2), worker_node(2, 5, "n3", 4)}, 8,
      false, shim);
  cr_assert_eq(commands.size(), 2u);
  // In all, not for each node: Slurm refuses that to a node with more than the job's average.
  cr_assert(has(commands[0], "--gpus=8") && has(commands[0], "n1=0,n3=2"));
  cr_assert(has(commands[1], "--gpus=2") && has(commands[1], "n2=1"));
  cr_assert(has(commands[1], "--input=none") && has(commands[1], "--open-mode=append"));
}

Test(command, a_companion_s_step_names_its_job_and_leaves_the_input_alone) {
  Options options;
  options.basic_step = {"-A", "research"};
  options.program = {"x"};
  const Command command =
      step_commands(options, 9, own, {worker_node(2, 9, "n3", 8)}, 8, false, shim).front();
  cr_assert(has(command, "--jobid=9") && has(command, "--input=none") && has(command, "--mem=0"));
  cr_assert_not(has(command, "-A"));
}

Test(command, standard_input_that_is_kept_goes_to_every_step) {
  Options options;
  options.basic_step = {"--input=prog.py"};
  options.program = {"x"};
  ShimAddress gives = shim;
  gives.gives_input = true;
  for (const bool is_companion : {false, true})
    for (const Command& command :
         step_commands(options, 5, is_companion ? RunNames{1, "", "", 1} : own,
                       {worker_node(0, 5, "n1", 4), worker_node(1, 5, "n2", 2)}, 8, false, gives)) {
      cr_assert(has(command, "--input=all") && has(command, "kept"));
      cr_assert_not(has(command, "--input=none"));
    }
}

Test(command, workers_share_what_cpus_there_are) {
  Options options;
  options.program = {"x"};
  cr_assert(has(step_commands(options, 5, own, {worker_node(0, 5, "n1", 4)}, 1, true, shim).front(),
                "--overcommit"));
  cr_assert_not(
      has(step_commands(options, 5, own, {worker_node(0, 5, "n1", 4)}, 1, false, shim).front(),
          "--overcommit"));
}

Test(command, nodes_with_gpus_of_several_types_are_asked_for_by_type) {
  Options options;
  options.program = {"x"};
  WorkerNode mixed = worker_node(0, 5, "n1", 3), other = worker_node(1, 5, "n2", 2);
  mixed.gpu_types = "a100:2,v100:1";
  cr_assert(has(step_commands(options, 5, own, {mixed}, 8, false, shim).front(),
                "--gres=gpu:a100:2,gpu:v100:1"));
  const auto both = step_commands(options, 5, own, {mixed, other}, 8, false, shim);
  cr_assert_eq(both.size(), 2u);
  cr_assert(has(both[0], "--gpus=a100:2,v100:1") && has(both[1], "--gpus=2"));
  options.no_gpus = true;
  cr_assert(has(step_commands(options, 5, own, {mixed}, 8, false, shim).front(), "--gres=none"));
}

Test(command, files_of_workers_have_one_name_in_all_allocations_and_are_written_by_one_each) {
  Options options;
  options.program = {"x"};
  options.output = "log.%j.%t";
  const Command first =
      step_commands(options, 5, own, {worker_node(0, 5, "n1", 4)}, 8, false, shim).front();
  cr_assert(has(first, "--output=log.%j.%t") && !has(first, "--open-mode=append"));
  const Command lent =
      step_commands(options, 9, own, {worker_node(2, 9, "n3", 4)}, 8, false, shim).front();
  cr_assert(has(lent, "--output=log.5.2%1t") && has(lent, "--open-mode=append"));
  // One file for all: none replaces what another wrote.
  options.output = "log.%j";
  cr_assert(
      has(step_commands(options, 5, own, {worker_node(0, 5, "n1", 4)}, 8, false, shim).front(),
          "--open-mode=append"));
}

// A step that begins later would empty the file of those that run.
Test(command, steps_append_to_one_file_also_where_the_user_has_it_truncated) {
  Options options;
  options.program = {"x"};
  options.output = "log.%j";
  options.open_mode = "truncate";
  options.each_step = {"--open-mode=truncate"};
  const auto last_mode = [&](JobId job, const WorkerNode& node) {
    std::string last;
    const auto steps = step_commands(options, job, own, {node}, 8, false, shim);
    for (const std::string& word : steps.front())
      if (word.starts_with("--open-mode=")) last = word;
    return last;
  };
  cr_assert_eq(last_mode(5, worker_node(0, 5, "n1", 4)), std::string("--open-mode=append"));
  cr_assert_eq(last_mode(9, worker_node(2, 9, "n3", 4)), std::string("--open-mode=append"));
  options.output = "log.%j.%t";
  cr_assert_eq(last_mode(5, worker_node(0, 5, "n1", 4)), std::string("--open-mode=truncate"));
  cr_assert_eq(last_mode(9, worker_node(2, 9, "n3", 4)), std::string("--open-mode=append"));
}

Test(command, a_probe_has_the_resources_of_the_step_and_runs_nothing) {
  Options options;
  options.program = {"train"};
  const Command step =
      step_commands(options, 5, own, {worker_node(0, 5, "n1", 4)}, 8, false, shim).front();
  const Command probe = probe_of(step, shim);
  cr_assert(has(probe, "--gres=gpu:4") && has(probe, "--immediate=1"));
  cr_assert_eq(probe.back(), std::string("true"));
  cr_assert_not(has(probe, "train") || has(probe, shim.program));
}

Test(command, salloc_asks_for_exactly_what_was_offered) {
  control::Offer offer;
  offer.nonce = "abc";
  offer.name = "swell-5";
  offer.node = "n2";
  offer.partition = "train";
  offer.gpu_type = "h100";
  offer.gpus = 8;
  offer.workers = 4;
  offer.cpus = 32;
  offer.warn_s = 30;
  const Command command = salloc_command(offer, SIGUSR1);
  for (const char* word :
       {"--no-shell", "--immediate=1", "--comment=swell-grant=abc", "--nodelist=n2", "--ntasks=4",
        "--cpus-per-task=8", "--gres=gpu:h100:8", "--time=UNLIMITED", "--signal=USR1@30"})
    cr_assert(has(command, word), "%s is missing", word);
  cr_assert(std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return word.starts_with("--comment=swell-grant") && word.ends_with("abc");
  }));
}

Test(command, salloc_s_answer_is_read) {
  cr_assert_eq(
      granted_job("salloc: Pending job allocation 12\nsalloc: Granted job allocation 12\n"), 12u);
  cr_assert_eq(granted_job("salloc: error: no"), 0u);
  cr_assert_eq(refusal("salloc: error: Job submit/allocate failed: Requested nodes are busy\n"),
               std::string("Job submit/allocate failed: Requested nodes are busy"));
}

Test(command, a_companion_is_cancelled_by_its_name_too) {
  cr_assert_eq(cancel_command("swell-30", 31), (Command{"scancel", "--name=swell-30", "31"}));
}

Test(command, workers_with_several_mig_instances_are_told_that_a_process_sees_the_first) {
  cr_assert_eq(
      mig_note(2, "MIG-a,MIG-b", "n1"),
      std::string("n1 has 2 MIG instances for 2 workers, and CUDA shows a process only the "
                  "first of them: a program must set CUDA_VISIBLE_DEVICES to the entry of "
                  "its LOCAL_RANK before it uses CUDA, and use device 0"));
  for (const auto& [workers, visible] :
       {std::pair{2, "0,1"}, {2, ""}, {2, "GPU-a,GPU-b"}, {2, "0,MIG-a"}, {1, "MIG-a,MIG-b"}})
    cr_assert_eq(mig_note(workers, visible, "n1"), "", "%s", visible);
}

Test(command, a_step_of_other_workers_than_were_asked_for_is_told_from_one_that_fits) {
  cr_assert_eq(step_misfit(2, 4, "4(x2)", "n1", true), "");
  cr_assert_eq(step_misfit(1, 4, "4", "n1", true), "");
  cr_assert_eq(step_misfit(1, 4, "", "n1", true), "");  // srun has not said
  for (const auto& [tasks, listed] :
       {std::pair{"1", true}, {"8", true}, {"3,5", true}, {"4", true}, {"4(x2)", false}})
    cr_assert_neq(step_misfit(2, 4, tasks, "n1", listed), "", "%s", tasks);
  cr_assert(step_misfit(1, 4, "1", "n1", true).find("SLURM_STEP_TASKS_PER_NODE=1 on n1") !=
            std::string::npos);
}

Test(command, a_step_of_other_gpus_than_were_asked_for_is_told_from_one_that_fits) {
  cr_assert_eq(gpus_misfit(2, "2", true, "n1"), "");
  cr_assert_eq(gpus_misfit(2, "", true, "n1"), "");  // Slurm does not say how many
  cr_assert_eq(gpus_misfit(0, "", false, "n1"), "");
  cr_assert(
      gpus_misfit(2, "", false, "n1")
          .starts_with("srun was asked for 2 GPUs on n1 and made a step with none: a cli_filter"));
  cr_assert(
      gpus_misfit(2, "1", true, "n1")
          .starts_with(
              "srun was asked for 2 GPUs on n1 and made a step with SLURM_GPUS_ON_NODE=1: a cli_filter"));
}

Test(command, workers_that_cannot_tell_each_other_apart_are_told_from_those_that_can) {
  cr_assert_eq(local_id_misfit(4, "3", "n1"), "");
  cr_assert_eq(local_id_misfit(1, "0", "n1"), "");
  cr_assert_eq(local_id_misfit(1, nullptr, "n1"), "");
  for (const char* local : {"4", "-1", "x", "", "1x"})
    cr_assert(
        local_id_misfit(4, local, "n1")
            .starts_with(fmt::format("n1 has a worker with SLURM_LOCALID={}, which is not", local)),
        "%s", local);
  cr_assert_neq(local_id_misfit(4, nullptr, "n1"), "");
}
