// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/spooled_input.h"

#include <criterion/criterion.h>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace swell::launcher;

namespace {

std::string all_of(int fd) {
  std::string text;
  char bytes[256];
  for (ssize_t count; (count = read(fd, bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<std::size_t>(count));
  return text;
}

swell::Descriptor file_with(const std::string& text) {
  char name[] = "/tmp/swell-test-XXXXXX";
  swell::Descriptor file(mkstemp(name));
  unlink(name);  // as that of a here-document
  cr_assert_eq(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

struct Pipe {
  Pipe() { cr_assert_eq(pipe2(ends, O_CLOEXEC), 0); }
  void say(const char* text) {
    cr_assert_eq(write(ends[1], text, strlen(text)), static_cast<ssize_t>(strlen(text)));
  }
  int ends[2];
};

}  // namespace

Test(spooled_input, a_file_is_given_to_each_program_from_the_beginning) {
  const auto file = file_with("print(1)\n");
  const InputPlan plan = plan_input({}, file.get());
  cr_assert(plan.spooled && plan.no_growth.empty());
  for (int generation = 0; generation < 3; ++generation)
    cr_assert_eq(all_of(plan.spooled->open().get()), std::string("print(1)\n"));
  cr_assert_eq(all_of(file.get()), std::string(), "as srun, it has read it");
}

Test(spooled_input, input_that_the_shell_has_read_is_not_given_again) {
  const auto file = file_with("first\nsecond\n");
  lseek(file.get(), 6, SEEK_SET);
  const InputPlan plan = plan_input({}, file.get());
  cr_assert_eq(all_of(plan.spooled->open().get()), std::string("second\n"));
}

Test(spooled_input, a_pipe_whose_writer_ends_is_a_file, .timeout = 60) {
  Pipe pipe;
  pipe.say("print(2)\n");
  close(pipe.ends[1]);
  const InputPlan plan = plan_input({}, pipe.ends[0]);
  cr_assert(plan.spooled && plan.no_growth.empty());
  cr_assert_eq(all_of(plan.spooled->open().get()), std::string("print(2)\n"));
}

Test(spooled_input, a_pipe_whose_writer_goes_on_is_left_to_srun_and_the_job_is_not_grown,
     .timeout = 60) {
  Pipe pipe;
  pipe.say("first\n");
  const InputPlan plan = plan_input({}, pipe.ends[0]);
  cr_assert_not(plan.spooled.has_value());
  cr_assert_neq(plan.no_growth.find("swellrun --input=none"), std::string::npos);
  char bytes[6];
  cr_assert_eq(read(pipe.ends[0], bytes, 6), 6, "nothing of it is lost");
}

Test(spooled_input, without_input_there_is_nothing_to_keep) {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const auto file = file_with("x");
  for (const auto& plan :
       {plan_input({}, null), plan_input("none", file.get()), plan_input({}, -1)})
    cr_assert(!plan.spooled && plan.no_growth.empty());
}

Test(spooled_input, a_file_that_srun_is_to_read_is_kept_too) {
  char name[] = "/tmp/swell-test-XXXXXX";
  const int made = mkstemp(name);
  cr_assert_eq(write(made, "x\n", 2), 2);
  const InputPlan plan = plan_input(name, open("/dev/null", O_RDONLY | O_CLOEXEC));
  unlink(name);
  cr_assert_eq(all_of(plan.spooled->open().get()), std::string("x\n"));
  for (const char* other : {"3", "in.%t"})
    cr_assert_not(plan_input(other, -1).no_growth.empty(), "which differs by task");
}

Test(spooled_input, a_fifo_that_srun_is_to_read_is_left_to_it, .timeout = 60) {
  char folder[] = "/tmp/swell-test-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  const std::string fifo = std::string(folder) + "/fifo";
  cr_assert_eq(mkfifo(fifo.c_str(), 0600), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    const int to = open(fifo.c_str(), O_WRONLY);  // waits for a reader
    _exit(write(to, "first\n", 6) == 6 ? 0 : 1);
  }
  const InputPlan plan = plan_input(fifo, -1);
  cr_assert(!plan.spooled && !plan.no_growth.empty());
  usleep(100'000);
  cr_assert_eq(waitpid(writer, nullptr, WNOHANG), 0, "nobody has met it yet");
  const swell::Descriptor reader(open(fifo.c_str(), O_RDONLY));
  cr_assert_eq(all_of(reader.get()), std::string("first\n"));
  waitpid(writer, nullptr, 0);
  unlink(fifo.c_str());
  rmdir(folder);
}

Test(spooled_input, a_slow_writer_is_waited_for, .timeout = 60) {
  Pipe pipe;
  const pid_t writer = fork();
  if (writer == 0) {
    for (const char* line : {"a\n", "b\n", "c\n"}) {
      usleep(300'000);
      pipe.say(line);
    }
    _exit(0);
  }
  close(pipe.ends[1]);
  const auto input = SpooledInput::read_from(pipe.ends[0], 30);
  waitpid(writer, nullptr, 0);
  cr_assert(input.ok());
  cr_assert_eq(all_of(input->open().get()), std::string("a\nb\nc\n"));
}

Test(spooled_input, more_than_is_kept_is_left_to_srun) {
  const auto file = file_with("x");
  cr_assert_eq(ftruncate(file.get(), static_cast<off_t>(SpooledInput::kMaxBytes) + 1), 0);
  const InputPlan plan = plan_input({}, file.get());
  cr_assert(!plan.spooled && !plan.no_growth.empty());
  cr_assert_eq(lseek(file.get(), 0, SEEK_CUR), 0);
}

// As `ulimit -f` has it: what was read before the fault is there for srun.
Test(spooled_input, a_file_that_cannot_be_kept_is_left_to_srun_from_where_it_stood) {
  const std::string text(20000, 'x');
  const auto file = file_with("read " + text);
  lseek(file.get(), 5, SEEK_SET);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = 4096;
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  const InputPlan plan = plan_input({}, file.get());
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_FSIZE, &limit);
  cr_assert_not(plan.spooled.has_value());
  cr_assert_neq(plan.no_growth.find("File too large"), std::string::npos, "%s",
                plan.no_growth.c_str());
  cr_assert_eq(all_of(file.get()), text);
}

Test(spooled_input, becomes_the_standard_input_of_a_child) {
  const auto file = file_with("exit 7\n");
  const InputPlan plan = plan_input({}, file.get());
  for (int generation = 0; generation < 2; ++generation) {
    const pid_t child = fork();
    if (child == 0) {
      plan.spooled->become_standard_input();
      execlp("bash", "bash", "-", nullptr);
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    cr_assert_eq(WEXITSTATUS(status), 7);
  }
}
