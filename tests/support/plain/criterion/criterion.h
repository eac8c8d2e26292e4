// SPDX-License-Identifier: GPL-2.0-or-later
// Stands in for Criterion under ThreadSanitizer, where Criterion itself cannot start: each test in
// a process of its own, no output but of failures.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace plain {

struct One {
  const char *suite, *name;
  void (*body)();
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
/// Waits for one of the tests that run; whether it failed.
inline bool collect(std::map<pid_t, const One*>& running) {
  int status = 0;
  const pid_t pid = wait(&status);
  const One* one = running[pid];
  running.erase(pid);
  if (status != 0) std::fprintf(stderr, "failed: %s::%s\n", one->suite, one->name);
  return status != 0;
}
/// Runs every test, some at a time: most wait. The number that failed.
inline int run() {
  constexpr std::size_t kAtATime = 4;
  int failed = 0;
  std::map<pid_t, const One*> running;
  for (const One& one : all()) {
    const pid_t pid = fork();
    if (pid == 0) {
      one.body();
      std::exit(0);  // the sanitizer's own exit code counts
    }
    running[pid] = &one;
    if (running.size() == kAtATime) failed += collect(running);
  }
  while (!running.empty()) failed += collect(running);
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
