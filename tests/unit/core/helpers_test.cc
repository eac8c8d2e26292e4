// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/helpers.h"

#include <atomic>
#include <condition_variable>
#include <criterion/criterion.h>
#include <stdexcept>

using namespace swell;

namespace {

std::thread plain_thread(std::function<void()> body) { return std::thread(std::move(body)); }

}  // namespace

Test(helpers, every_piece_is_done_once_whatever_the_number_of_threads) {
  for (const int threads : {0, 1, 3}) {
    Helpers helpers(threads, plain_thread);
    for (const std::size_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> done(count);
      helpers.run(count, [&](std::size_t i) { ++done[i]; });
      for (const auto& one : done) cr_assert_eq(one.load(), 1);
    }
  }
}

Test(helpers, one_helper_and_the_caller_work_at_the_same_time, .timeout = 60) {
  Helpers helpers(1, plain_thread);
  std::mutex mutex;
  std::condition_variable both;
  int inside = 0;
  helpers.run(2, [&](std::size_t) {
    std::unique_lock lock(mutex);
    ++inside;
    both.notify_all();
    both.wait(lock, [&] { return inside == 2; });
  });
  cr_assert_eq(inside, 2);
}

Test(helpers, an_exception_reaches_the_caller_once_all_is_done) {
  Helpers helpers(1, plain_thread);
  std::atomic<int> done{0};
  bool caught = false;
  try {
    helpers.run(10, [&](std::size_t i) {
      ++done;
      if (i == 3) throw std::runtime_error("third");
    });
  } catch (const std::runtime_error&) { caught = true; }
  cr_assert(caught);
  cr_assert_eq(done.load(), 10);
  helpers.run(1, [&](std::size_t) { ++done; });
  cr_assert_eq(done.load(), 11, "it works on");
}

Test(helpers, a_piece_may_have_pieces_of_its_own_and_several_may_call, .timeout = 60) {
  Helpers helpers(2, plain_thread);
  std::atomic<int> done{0};
  const auto call = [&] {
    helpers.run(8, [&](std::size_t) { helpers.run(8, [&](std::size_t) { ++done; }); });
  };
  std::thread other(call);
  call();
  other.join();
  cr_assert_eq(done.load(), 128);
}

Test(helpers, where_a_thread_cannot_start_those_before_it_end) {
  int started = 0;
  bool caught = false;
  try {
    Helpers helpers(3, [&](std::function<void()> body) {
      if (++started == 3) throw std::runtime_error("no more");
      return std::thread(std::move(body));
    });
  } catch (const std::runtime_error&) { caught = true; }
  cr_assert(caught);
}
