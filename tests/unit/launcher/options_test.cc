// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/options.h"

#include <criterion/criterion.h>
#include <cstring>

#include "launcher/srun_option.h"

using namespace swell;
using namespace swell::launcher;

namespace {

using Words = std::vector<std::string>;

const char* no_environment(const char*) { return nullptr; }

Options parsed(const Words& words, const char* (*env)(const char*) = no_environment) {
  const auto options = Options::parse(words, env);
  cr_assert(options.ok(), "%s", options.ok() ? "" : options.error().message().c_str());
  return *options;
}

std::string refusal(const Words& words) {
  const auto options = Options::parse(words, no_environment);
  cr_assert_not(options.ok());
  return options.error().message();
}

}  // namespace

Test(options, the_program_begins_after_srun_s_options) {
  const Options options =
      parsed({"-l", "-o", "out.txt", "--mpi=none", "--chdir", "/tmp", "-utrue", "--label"});
  // -u takes no argument: "true" are letters, the first of them -t with "rue"
  cr_assert_eq(options.program, Words{});
  const Options good = parsed(
      {"-l", "-o", "out.txt", "--mpi=none", "--chdir", "/tmp", "python", "-n", "x.py", "--lr=1"});
  cr_assert_eq(good.program, (Words{"python", "-n", "x.py", "--lr=1"}));
  cr_assert_eq(good.each_step, (Words{"-l", "--mpi=none", "--chdir", "/tmp"}));
  cr_assert_eq(*good.output, std::string("out.txt"));
  cr_assert_eq(good.plain_reason, std::string());
  cr_assert_not(good.ntasks.has_value());
}

Test(options, srun_gets_everything_but_swellrun_s_own) {
  const Options options = parsed({"--restart-signal=USR2", "-N", "2", "--swell-events", "e.json",
                                  "-n8", "./a.out", "--max-restarts=9"});
  cr_assert_eq(options.srun, (Words{"-N", "2", "-n8", "./a.out", "--max-restarts=9"}));
  cr_assert_eq(options.restart_signal, SIGUSR2);
  cr_assert_eq(options.events_file, std::string("e.json"));
  cr_assert_eq(options.max_restarts, 3);
  cr_assert_eq(*options.nodes, std::pair(2, 2));
  cr_assert_eq(*options.ntasks, 8);
}

Test(options, options_that_shape_workers_are_read_and_not_passed_on) {
  const Options options = parsed({"--ntasks-per-node=4", "-c", "8", "--gpus-per-task=2",
                                  "--gres=gpu:h100:8", "-G16", "-K0", "-W", "30", "x"});
  cr_assert_eq(*options.ntasks_per_node, 4);
  cr_assert_eq(*options.cpus_per_task, 8);
  cr_assert_eq(*options.gpus_per_task, 2);
  cr_assert_eq(*options.gpus_per_node, 8);
  cr_assert_eq(*options.gpus, 16);
  cr_assert_not(options.kill_on_bad_exit);
  cr_assert(options.each_step.empty() && options.basic_step.empty());
}

Test(options, options_of_the_allocation_go_to_the_basic_step_only) {
  const Options options = parsed({"-A", "research", "--mem=4G", "-i", "in.txt", "--time=10", "x"});
  cr_assert_eq(options.basic_step, (Words{"-A", "research", "--mem=4G", "-i", "in.txt"}));
  cr_assert_eq(options.each_step, (Words{"--time=10"}));
}

Test(options, runs_that_cannot_be_elastic_are_left_to_srun_with_the_reason) {
  cr_assert_eq(parsed({"--pty", "bash"}).plain_reason, std::string("--pty is given"));
  cr_assert_eq(parsed({"--jobid=5", "x"}).plain_reason, std::string("--jobid is given"));
  cr_assert_eq(parsed({"--multi-prog", "conf"}).plain_reason, std::string("--multi-prog is given"));
  cr_assert_neq(parsed({"x", ":", "y"}).plain_reason, std::string());
  cr_assert_neq(parsed({"--gres=fpga:1", "x"}).plain_reason, std::string());
  // An option of a newer Slurm: with "=" it is passed on, without it the program cannot be found.
  cr_assert_eq(parsed({"--brand-new=1", "x"}).plain_reason, std::string());
  const Options unknown = parsed({"-l", "--brand-new", "1", "x"});

  cr_assert_eq(unknown.plain_reason, std::string("--brand-new is not known to swellrun"));
  cr_assert_eq(unknown.srun, (Words{"-l", "--brand-new", "1", "x"}));
}

Test(options, srun_says_which_words_belong_to_an_option_of_a_plugin) {
  const AskSrun srun = [](const std::string& option) -> std::string {
    if (option == "--container-image") return "srun: fatal: No command given to execute.\n";
    if (option == "--container-writable") return "Usage: srun [OPTIONS(0)...\n";
    return "srun: unrecognized option '" + option + "'\n";
  };
  const auto read = [&](const Words& words) {
    return *Options::parse(words, no_environment, srun);
  };
  const Options image = read({"--container-image", "q.sqsh", "-l", "python", "x.py"});
  cr_assert_eq(image.plain_reason, std::string());
  cr_assert_eq(image.each_step, (Words{"--container-image", "q.sqsh", "-l"}));
  cr_assert_eq(image.program, (Words{"python", "x.py"}));
  const Options writable = read({"--container-writable", "python", "x.py"});
  cr_assert_eq(writable.each_step, Words{"--container-writable"});
  cr_assert_eq(writable.program, (Words{"python", "x.py"}));
  cr_assert_eq(read({"--nope", "x"}).plain_reason, std::string("--nope is not known to swellrun"));
  cr_assert_neq(read({"--container-image"}).plain_reason, std::string());
}

Test(options, options_without_effect_on_an_elastic_run_are_taken) {
  for (const Words& words : std::vector<Words>{{"--gpu-bind=none"},
                                               {"--gpu-bind", "closest"},
                                               {"--gpu-bind=single:1"},
                                               {"--tres-bind=gres/gpu:closest"},
                                               {"--cpus-per-gpu=4"},
                                               {"-w", "node1"},
                                               {"--nodelist=node[1-2]"},
                                               {"--exclude=node9"},
                                               {"-N", "1-1"},
                                               {"--nodes=1-2"},
                                               {"--ntasks-per-gpu=1"},
                                               {"--tres-per-task=cpu=4,gres/gpu=1"},
                                               {"--tres-per-task=cpu:4,gres:gpu:h100:2"},
                                               {"--relative=0"},
                                               {"--bcast=/tmp/x"}}) {
    Words all = words;
    all.push_back("x");
    const Options options = parsed(all);
    cr_assert_eq(options.plain_reason, std::string(), "%s", words.front().c_str());
    cr_assert_eq(options.no_growth, std::string(), "%s", words.front().c_str());
    cr_assert_eq(options.program, Words{"x"}, "%s", words.front().c_str());
  }
  cr_assert_eq(*parsed({"--nodes=1-2", "x"}).nodes, std::pair(1, 2));
  cr_assert_eq(parsed({"-w", "node[1-2]", "x"}).node_list, (Words{"node1", "node2"}));
  cr_assert_eq(parsed({"--tres-bind=gres/gpu:closest", "x"}).each_step,
               Words{"--gpu-bind=closest"});
  // Slurm would show each worker all GPUs of its node, also those of other jobs.
  cr_assert(parsed({"--gpu-bind=none", "x"}).each_step.empty());
  cr_assert_eq(parsed({"--bcast=/tmp/x", "x"}).left_out, Words{"--bcast"});
  cr_assert_eq(*parsed({"--tres-per-task=cpu:4,gres:gpu:h100:2", "x"}).gpus_per_task, 2);
}

Test(options, options_that_lent_gpus_cannot_follow_keep_the_workers_with_the_reason) {
  const Options list = parsed({"--gpu-bind=map_gpu:0,1", "x"});
  cr_assert_eq(list.plain_reason, std::string());
  cr_assert_eq(list.no_growth, std::string("--gpu-bind=map_gpu:0,1 is given to swellrun"));
  cr_assert_eq(list.basic_step, Words{"--gpu-bind=map_gpu:0,1"});
  const Options none = parsed({"--gres=none", "x"});
  cr_assert(none.no_gpus);
  cr_assert_eq(none.no_growth, std::string("--gres=none is given to swellrun"));
  for (const char* word : {"--ntasks-per-gpu=2", "--nodes=3-1", "--nodes=x", "--tres-bind=x",
                           "--tres-per-task=license:1", "-w/x/hosts"})
    cr_assert_neq(parsed({word, "x"}).plain_reason, std::string(), "%s", word);
}

Test(options, names_of_output_come_from_srun_s_variables_too) {
  const auto env = [](const char* name) -> const char* {
    return std::strcmp(name, "SLURM_STDOUTMODE") == 0 ? "out.%t"
           : std::strcmp(name, "SLURM_JOB_ID") == 0   ? "5"
                                                      : nullptr;
  };
  cr_assert_eq(*parsed({"x"}, env).output, std::string("out.%t"));
  cr_assert_eq(*parsed({"-oother", "x"}, env).output, std::string("other"));
  cr_assert_not(parsed({"x"}, env).error.has_value());
  // The job's own id asks for nothing else.
  cr_assert_eq(parsed({"--jobid=5", "x"}, env).plain_reason, std::string());
}

Test(options, optional_arguments_belong_to_the_same_word) {
  const Options options = parsed({"--exclusive", "--propagate=NONE", "-K", "prog"});
  cr_assert_eq(options.program, Words{"prog"});
  cr_assert_eq(options.each_step, (Words{"--exclusive", "--propagate=NONE"}));
}

Test(options, long_names_may_be_shortened_as_srun_allows) {
  cr_assert_eq(*parsed({"--ntasks-per-n=2", "x"}).ntasks_per_node, 2);
  cr_assert_eq(std::string(find_option("lab")->name), std::string("label"));
  cr_assert_null(find_option("gpu"));
}

Test(options, own_options_are_checked) {
  cr_assert_neq(refusal({"--restart-signal=KILL", "x"}).find("--restart-signal=KILL"),
                std::string::npos);
  cr_assert_neq(refusal({"--restart-timeout=soon", "x"}).find("--restart-timeout=soon"),
                std::string::npos);
  cr_assert_neq(refusal({"--first-wait=soon", "x"}).find("--first-wait=soon"), std::string::npos);
  cr_assert_neq(refusal({"--recover=inf", "x"}).find("--recover=inf"), std::string::npos);
  cr_assert_eq(parsed({"--recover=90", "x"}).recover_s, 90);
  cr_assert_eq(parsed({"--leave-code=3", "x"}).leave_code.value_or(0), 3);
  for (const char* bad :
       {"--leave-code=0", "--leave-code=75", "--leave-code=126", "--leave-code=x"})
    cr_assert_neq(refusal({bad, "x"}).find(bad), std::string::npos, "%s", bad);
  cr_assert_eq(parsed({"--before-end=120", "--requeue", "x"}).before_end_s.value_or(0), 120);
  cr_assert(parsed({"--before-end=0", "--requeue", "x"}).requeue);
  cr_assert_neq(refusal({"--before-end=soon", "x"}).find("--before-end=soon"), std::string::npos);
  cr_assert_neq(refusal({"--requeue", "x"}).find("--before-end"), std::string::npos);
  cr_assert_eq(parsed({"-i", "prog.py", "x"}).input.value_or(""), std::string("prog.py"));
  cr_assert_neq(refusal({"--max-restarts=-1", "x"}).find("--max-restarts=-1"), std::string::npos);
  for (const std::string bad : {"2X", "-1", "G", "", "99999999T"})
    cr_assert_neq(refusal({"--switch-memory=" + bad, "x"}).find("a size such as 512M"),
                  std::string::npos, "%s", bad.c_str());
  cr_assert_neq(refusal({"--swell-events"}).find("needs a value"), std::string::npos);
  cr_assert_neq(refusal({"-o"}).find("--output needs a value"), std::string::npos);
}

Test(options, a_switch_may_take_2_gib_or_what_is_said) {
  cr_assert_eq(parsed({"x"}).switch_memory_bytes, std::uint64_t{2} << 30);
  cr_assert_eq(parsed({"--switch-memory=64K", "x"}).switch_memory_bytes, 65536u);
  cr_assert_eq(parsed({"--switch-memory", "1000", "x"}).switch_memory_bytes, 1000u);
  cr_assert_eq(parsed({"--switch-memory=0", "x"}).switch_memory_bytes, 0u);
}

Test(options, the_transport_between_nodes_is_checked) {
  cr_assert_eq(parsed({"x"}).switch_network, "auto");
  using swell::runtime::Verify;
  cr_assert(parsed({"x"}).switch_verify == Verify::network);
  cr_assert(parsed({"--switch-verify=all", "x"}).switch_verify == Verify::all);
  cr_assert(parsed({"--switch-verify=none", "x"}).switch_verify == Verify::none);
  for (const std::string bad : {"", "yes", "networks"})
    cr_assert_eq(refusal({"--switch-verify=" + bad, "x"}),
                 "--switch-verify=" + bad + ": it must be network, all or none");
  for (const std::string good : {"tcp", "ucx", "auto", "nccl", "ucx:mlx5_0:1,mlx5_1:1"})
    cr_assert_eq(parsed({"--switch-network=" + good, "x"}).switch_network, good);
  for (const std::string bad : {"", "rdma", "ucx:", "ucx:eth0 lo", "TCP", "nccl:eth0"})
    cr_assert_neq(
        refusal({"--switch-network=" + bad, "x"}).find("it must be auto, tcp, nccl, ucx or ucx:"),
        std::string::npos, "%s", bad.c_str());
}

Test(options, the_environment_stands_for_options_that_are_not_given) {
  const auto env = [](const char* name) -> const char* {
    if (std::strcmp(name, "SWELL_RESTART_TIMEOUT") == 0) return "12.5";
    return std::strcmp(name, "SWELL_RESTART_SIGNAL") == 0 ? "USR2" : nullptr;
  };
  const Options options = parsed({"--restart-signal", "10", "x"}, env);
  cr_assert_eq(*options.restart_timeout_s, 12.5);
  cr_assert_eq(options.restart_signal, SIGUSR1);
}

Test(options, the_table_has_no_name_and_no_letter_twice) {
  for (const SrunOption& one : srun_options()) {
    cr_assert_eq(find_option(one.name), &one);
    if (one.letter != 0) cr_assert_eq(find_option(one.letter), &one);
  }
}

Test(options, the_model_may_be_named) {
  const Options given = parsed({"--model", "gpt3-6.7b", "--global-batch=64", "x"});
  cr_assert_eq(given.model, std::string("gpt3-6.7b"));
  cr_assert_eq(*given.global_batch, 64);
  cr_assert_eq(given.srun, Words{"x"});
  const Options of_environment = parsed({"x"}, [](const char* name) -> const char* {
    return std::strcmp(name, "SWELL_MODEL") == 0          ? "model.json"
           : std::strcmp(name, "SWELL_GLOBAL_BATCH") == 0 ? "8"
                                                          : nullptr;
  });
  cr_assert_eq(of_environment.model, std::string("model.json"));
  cr_assert_eq(*of_environment.global_batch, 8);
  for (const char* bad : {"0", "-1", "many", "1.5"})
    cr_assert_eq(refusal({std::string("--global-batch=") + bad, "--model=m", "x"}),
                 std::string("--global-batch=") + bad + ": it must be a whole number, 1 or more");
  cr_assert_eq(
      refusal({"--global-batch=8", "x"}),
      std::string(
          "--global-batch=8 describes the model of --model=FILE, which is missing; add it, or leave --global-batch out"));
}

Test(options, the_steps_of_the_training_are_a_number) {
  cr_assert_eq(*parsed({"--steps=5000", "x"}).steps, 5000);
  cr_assert_not(parsed({"x"}).steps);
  for (const char* bad : {"0", "-1", "many", "1e6", "9007199254740993"})
    cr_assert_neq(refusal({std::string("--steps=") + bad, "x"})
                      .find(std::string("--steps=") + bad + ": it must be"),
                  std::string::npos);
}

Test(options, one_letter_beside_its_own_option_is_named_and_what_srun_may_know_is_left_to_it) {
  cr_assert_eq(refusal({"--restart-signl=TERM", "x"}),
               std::string("unknown option --restart-signl; meant: --restart-signal?"));
  cr_assert_eq(refusal({"--modell", "m", "x"}),
               std::string("unknown option --modell; meant: --model?"));
  cr_assert_eq(refusal({"--mobel", "m", "x"}),
               std::string("unknown option --mobel; meant: --model?"));
  cr_assert_eq(parsed({"--restartable=1", "x"}).each_step, Words{"--restartable=1"});
}

Test(options, hang_detection_can_be_set_and_turned_off) {
  cr_assert_eq(parsed({"x"}).hang.factor, 20);
  cr_assert_eq(parsed({"--hang-factor=0", "x"}).hang.factor, 0);
  cr_assert_eq(parsed({"--hang-factor", "2.5", "x"}).hang.factor, 2.5);
  cr_assert_eq(parsed({"--hang-minimum=120", "x"}).hang.minimum_s, 120);
  for (const char* bad : {"--hang-factor=1", "--hang-factor=-3", "--hang-factor=nan",
                          "--hang-factor=often", "--hang-minimum=-1", "--hang-minimum=soon"})
    cr_assert_neq(refusal({bad, "x"}).find(bad), std::string::npos, "%s", bad);
}
