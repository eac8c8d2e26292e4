// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/patient_client.h"

#include <criterion/criterion.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;
using swell::tools::PatientClient;

namespace {

using Clock = PatientClient::Clock;

/// A client's end of a connection, and the server's.
struct Connection {
  Connection() { cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0); }
  ~Connection() {
    close(ends[0]);
    close(ends[1]);
  }
  void say(const std::string& text) const {
    cr_assert_eq(write(ends[0], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int ends[2] = {-1, -1};
};

}  // namespace

Test(patient_client, a_request_in_several_parts_is_read_up_to_its_empty_line, .timeout = 60) {
  const Connection connection;
  connection.say("GET /metrics HTTP/1.1\r\nHost: a\r");
  std::thread rest([&] { connection.say("\n\r\n"); });
  cr_assert_eq(PatientClient(connection.ends[1], 30s).request(),
               std::string("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"));
  rest.join();
}

Test(patient_client, a_request_that_is_too_long_or_ends_early_is_none, .timeout = 60) {
  const Connection connection;
  connection.say("GET /metrics" + std::string(20000, 'x'));
  cr_assert_eq(PatientClient(connection.ends[1], 30s).request(), std::string());
  const Connection ended;
  ended.say("GET /metrics");
  shutdown(ended.ends[0], SHUT_WR);
  cr_assert_eq(PatientClient(ended.ends[1], 30s).request(), std::string());
}

// A byte that comes late does not begin the time anew.
Test(patient_client, who_says_a_little_has_no_more_time_than_who_says_nothing, .timeout = 60) {
  const Connection connection;
  std::thread drips([&] {
    std::this_thread::sleep_for(1700ms);
    connection.say("x");
  });
  const auto begin = Clock::now();
  cr_assert_eq(PatientClient(connection.ends[1], 2s).request(), std::string());
  const auto took = Clock::now() - begin;
  drips.join();
  cr_assert(took >= 2s && took < 3600ms, "it took %f s",
            std::chrono::duration<double>(took).count());
}

Test(patient_client, what_the_request_took_is_missing_for_the_answer, .timeout = 60) {
  const Connection connection;
  std::thread late([&] {
    std::this_thread::sleep_for(1500ms);
    connection.say("GET / HTTP/1.1\r\n\r\n");
  });
  PatientClient client(connection.ends[1], 2s);
  cr_assert(!client.request().empty());
  late.join();
  const auto begin = Clock::now();
  // More than any socket takes, and nobody reads.
  cr_assert_not(client.send(std::string(std::size_t{16} << 20, 'x')));
  cr_assert_lt(Clock::now() - begin, 1900ms);
}

Test(patient_client, who_takes_the_answer_slowly_gets_all_of_it, .timeout = 60) {
  const Connection connection;
  std::size_t got = 0;
  std::thread reads([&] {
    for (char part[65536]; got < (std::size_t{4} << 20);) {
      const ssize_t bytes = read(connection.ends[0], part, sizeof part);
      if (bytes <= 0) return;
      got += static_cast<std::size_t>(bytes);
    }
  });
  cr_assert(PatientClient(connection.ends[1], 30s).send(std::string(std::size_t{4} << 20, 'x')));
  reads.join();
  cr_assert_eq(got, std::size_t{4} << 20);
}

Test(patient_client, who_has_gone_ends_it, .timeout = 60) {
  const Connection connection;
  shutdown(connection.ends[0], SHUT_RDWR);
  cr_assert_not(PatientClient(connection.ends[1], 30s).send("HTTP/1.1 200 OK\r\n"));
}
