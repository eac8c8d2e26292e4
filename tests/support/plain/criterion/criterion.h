// SPDX-License-Identifier: GPL-2.0-or-later
// Replaces Criterion under ThreadSanitizer, with which Criterion cannot start. Runs each test in
// its own process, and prints only failures.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace plain {

using Clock = std::chrono::steady_clock;
struct One {
  const char *suite, *name;
  void (*body)();
  Clock::time_point begin{};
  double took_s = 0, cpu_s = 0;  ///< cpu_s: processor time, including its child processes
};
inline std::vector<One>& all() {
  static std::vector<One> tests;
  return tests;
}
struct Adder {
  Adder(const char* suite, const char* name, void (*body)()) {
    all().push_back({suite, name, body});
  }
};
[[noreturn]] inline void fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what);
  std::_Exit(1);
}
/// Waits for the end of one running test. Returns whether it failed.
inline bool collect(std::map<pid_t, One*>& running) {
  int status = 0;
  rusage used{};
  const pid_t pid = wait4(-1, &status, 0, &used);
  One* one = running[pid];
  running.erase(pid);
  one->took_s = std::chrono::duration<double>(Clock::now() - one->begin).count();
  for (const timeval& time : {used.ru_utime, used.ru_stime})
    one->cpu_s += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  if (status != 0) std::fprintf(stderr, "failed: %s::%s\n", one->suite, one->name);
  return status != 0;
}
/// Prints the times of the slowest tests.
inline void print_slowest() {
  std::vector<One> tests = all();
  const auto shown = std::min<std::size_t>(tests.size(), 12);
  std::partial_sort(tests.begin(), tests.begin() + static_cast<std::ptrdiff_t>(shown), tests.end(),
                    [](const One& a, const One& b) { return a.took_s > b.took_s; });
  for (std::size_t i = 0; i < shown; ++i)
    std::printf("%6.1f s, %6.1f s of CPU: %s::%s\n", tests[i].took_s, tests[i].cpu_s,
                tests[i].suite, tests[i].name);
}
/// Runs all tests, several at a time, since most of them wait. Returns the number of failures.
inline int run() {
  constexpr std::size_t kAtATime = 4;
  int failed = 0;
  std::map<pid_t, One*> running;
  for (One& one : all()) {
    one.begin = Clock::now();
    const pid_t pid = fork();
    if (pid == 0) {
      one.body();
      std::exit(0);  // the sanitizer replaces this exit code if it found a fault
    }
    running[pid] = &one;
    if (running.size() == kAtATime) failed += collect(running);
  }
  while (!running.empty()) failed += collect(running);
  print_slowest();
  std::printf("%zu tests, %d failed\n", all().size(), failed);
  return failed;
}

}  // namespace plain

#define Test(suite, test, ...)                                                      \
  static void suite##_##test();                                                     \
  static const plain::Adder suite##_##test##_adder{#suite, #test, &suite##_##test}; \
  static void suite##_##test()
#define PLAIN_ASSERT(condition, text)                        \
  do {                                                       \
    if (!(condition)) plain::fail(__FILE__, __LINE__, text); \
  } while (0)
#define cr_assert(condition, ...) PLAIN_ASSERT(condition, #condition)
#define cr_assert_not(condition, ...) PLAIN_ASSERT(!(condition), "not " #condition)
#define cr_assert_eq(a, b, ...) PLAIN_ASSERT((a) == (b), #a " == " #b)
#define cr_assert_neq(a, b, ...) PLAIN_ASSERT((a) != (b), #a " != " #b)
#define cr_assert_gt(a, b, ...) PLAIN_ASSERT((a) > (b), #a " > " #b)
#define cr_assert_geq(a, b, ...) PLAIN_ASSERT((a) >= (b), #a " >= " #b)
#define cr_assert_leq(a, b, ...) PLAIN_ASSERT((a) <= (b), #a " <= " #b)
#define cr_assert_lt(a, b, ...) PLAIN_ASSERT((a) < (b), #a " < " #b)
#define cr_assert_null(a, ...) PLAIN_ASSERT((a) == nullptr, #a " is null")
#define cr_assert_not_null(a, ...) PLAIN_ASSERT((a) != nullptr, #a " is not null")
#define cr_assert_str_eq(a, b, ...) PLAIN_ASSERT(std::strcmp(a, b) == 0, #a " is " #b)
