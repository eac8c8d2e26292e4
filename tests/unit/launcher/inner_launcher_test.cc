// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/inner_launcher.h"

#include <criterion/criterion.h>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/program.h"

using namespace swell::launcher;

namespace {

using Given = std::vector<std::pair<std::string, std::string>>;

const Given kGiven = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "5"}};

/// Returns what is found among a shell script's processes once it has written a line.
std::optional<std::string> seen_of(std::string text, bool without_rank = false) {
  int ends[2];
  cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
  const int saved = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  char shell[] = "bash", option[] = "-c";
  char* command[] = {shell, option, text.data(), nullptr};
  Program program;
  cr_assert(program.start(command, kGiven));
  dup2(saved, STDOUT_FILENO);
  close(saved);
  close(ends[1]);
  char byte = 0;
  while (read(ends[0], &byte, 1) == 1 && byte != '\n') continue;
  const auto found = without_rank ? worker_without_rank(program.pid(), SIGUSR1)
                                  : inner_worker(program.pid(), kGiven, SIGUSR1);
  close(ends[0]);
  program.signal(SIGKILL);
  while (program.runs() && !program.reap()) poll(nullptr, 0, 5);
  return found;
}

/// A worker that says that it is there.
constexpr const char* kWorker = "bash -c 'echo up; exec 1>&-; sleep 60; :'";

}  // namespace

Test(inner_launcher, workers_of_a_launcher_are_found_wherever_they_are, .timeout = 120) {
  const char* launchers[] = {
      // torchrun, in a script or behind a program that waits for it
      "RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none %; wait",
      "(RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none %; :) & wait",
      // with the job's own number as its run id, on one worker of as many
      "RANK=1 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=5 TORCHELASTIC_ERROR_FILE=/tmp/x %; :",
      // deepspeed and others
      "RANK=0 WORLD_SIZE=1 %; :",
      "RANK=1 WORLD_SIZE=8 %; :",
      "OMPI_COMM_WORLD_RANK=0 %; :",
      "PMIX_RANK=1 %; :",
      "MV2_COMM_WORLD_RANK=0 %; :",
      "FLUX_TASK_RANK=0 %; :",
      // below a script that passes signals on
      "trap : USR1; RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none %; :",
  };
  for (std::string text : launchers) {
    const std::string script = text.replace(text.find('%'), 1, kWorker);
    const auto found = seen_of(script);
    cr_assert(found.has_value(), "%s", script.c_str());
    cr_assert_neq(found->find("bash"), std::string::npos, "%s", found->c_str());
  }
}

Test(inner_launcher, a_program_that_is_no_launcher_is_left_alone, .timeout = 120) {
  const char* programs[] = {
      "%; :",
      // scripts that name what swellrun gave, or addresses of their own
      "export RANK WORLD_SIZE MASTER_PORT=29500 MASTER_ADDR=node1; %; :",
      "LOCAL_RANK=0 %; :",
      "env -u RANK -u WORLD_SIZE %; :",
      // a helper of a training program, such as an evaluation on one GPU
      "trap : USR1; RANK=0 WORLD_SIZE=1 %; :",
  };
  for (std::string text : programs) {
    const std::string script = text.replace(text.find('%'), 1, kWorker);
    const auto found = seen_of(script);
    cr_assert_not(found.has_value(), "%s: %s", script.c_str(), found ? found->c_str() : "");
  }
}

Test(inner_launcher, ranks_that_the_shim_was_started_with_are_not_a_worker_s, .timeout = 60) {
  // A shell and its copy, which runs no program of its own: a shim before execvp() of its program.
  int ends[2];
  cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
  const pid_t shim = fork();
  if (shim == 0) {
    dup2(ends[1], STDOUT_FILENO);
    setenv("RANK", "77", 1);
    setenv("WORLD_SIZE", "1", 1);
    execlp("bash", "bash", "-c", "(exec {never}<> <(:); echo $BASHPID; read -u $never; :) & wait",
           nullptr);
    _exit(127);
  }
  close(ends[1]);
  FILE* lines = fdopen(ends[0], "r");
  pid_t copy = 0;
  cr_assert_eq(fscanf(lines, "%d", &copy), 1);
  cr_assert_not(inner_worker(copy, kGiven, SIGUSR1, shim).has_value());
  cr_assert(inner_worker(copy, kGiven, SIGUSR1).has_value(), "where another started it");
  fclose(lines);
  kill(copy, SIGKILL);
  kill(shim, SIGKILL);
  waitpid(shim, nullptr, 0);
}

Test(inner_launcher, names_and_values_of_processes_do_not_reach_terminals_raw, .timeout = 60) {
  const auto found = seen_of("RANK=$'\\e[31m0\\n' WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none " +
                             std::string(kWorker) + "; :");
  cr_assert(found.has_value());
  for (const char each : *found) cr_assert(each >= 0x20 && each <= 0x7e);
}

Test(inner_launcher, programs_that_pytorch_has_named_are_called_by_their_own_names, .timeout = 60) {
  const auto named = [](const char* name, const std::string& rest) {
    return fmt::format("printf {} > /proc/self/comm; {}", name, rest);
  };
  const std::string worker = "RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none bash -c '" +
                             named("pt_main_thread", "echo up; exec 1>&-; sleep 60; :") + "'; :";
  const auto found = seen_of(named("pt_elastic", worker));
  cr_assert(found.has_value());
  cr_assert(found->starts_with("torchrun runs bash with RANK=1, WORLD_SIZE=2"), "%s",
            found->c_str());
}

Test(inner_launcher, a_training_that_was_started_without_its_rank_is_found, .timeout = 120) {
  const std::string training = "bash -c 'trap : USR1; echo up; exec 1>&-; sleep 60; :'";
  const std::string clean = "env -i PATH=\"$PATH\" HOME=/tmp ";
  for (const std::string& script :
       {"exec " + clean + training, clean + training + "; :", "timeout 60 " + clean + training,
        // a container's command, which passes signals on
        "trap : USR1; " + clean + training + "; :"}) {
    const auto found = seen_of(script, true);
    cr_assert(found.has_value(), "%s", script.c_str());
    cr_assert_eq(*found, "bash");
  }
  for (const std::string& script :
       {training + "; :", "env -u RANK -u WORLD_SIZE SLURM_PROCID=1 " + training + "; :",
        clean + "RANK=1 " + training + "; :",
        // it has no handler, as a helper that is started first
        clean + "bash -c 'echo up; exec 1>&-; sleep 60; :'; :",
        // helpers of a training
        "trap : USR1; sleep 60 & " + clean + training + "; :",
        // its variables are not to be seen
        "exec env -i " + training}) {
    const auto found = seen_of(script, true);
    cr_assert_not(found.has_value(), "%s: %s", script.c_str(), found ? found->c_str() : "");
  }
}
