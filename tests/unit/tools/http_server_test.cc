// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/http_server.h"

#include <atomic>
#include <criterion/criterion.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "control/thread_time.h"

using namespace std::chrono_literals;
using namespace swell;
using namespace swell::tools;
using Clock = std::chrono::steady_clock;

namespace {

/// A server on loopback that answers with what it was asked, in a thread of its own.
class Served {
 public:
  explicit Served(HttpServer::Options options) {
    auto listening = control::listen_on("127.0.0.1", 0);
    cr_assert(listening.ok());
    port_ = control::local_port(listening->get());
    if (!options.answer)
      options.answer = [](const std::string& request) { return "<" + request + ">"; };
    server_ = std::make_unique<HttpServer>(std::move(*listening), std::move(options));
    thread_ = std::thread([this] {
      while (!stops_) server_->turn();
    });
  }
  ~Served() {
    stops_ = true;
    const Descriptor last = client();
    static_cast<void>(send(last.get(), "x\r\n\r\n", 5, MSG_NOSIGNAL));
    thread_.join();
  }
  Descriptor client() const {
    auto fd = control::connect_to("127.0.0.1", port_, 10s);
    cr_assert(fd.ok());
    return std::move(*fd);
  }

 private:
  std::uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

void say(const Descriptor& client, const std::string& text) {
  cr_assert_eq(send(client.get(), text.data(), text.size(), MSG_NOSIGNAL),
               static_cast<ssize_t>(text.size()));
}
/// All that comes until the server closes the connection.
std::string heard(const Descriptor& client) {
  std::string text;
  char part[4096];
  for (;;) {
    pollfd ready{client.get(), POLLIN, 0};
    cr_assert_eq(poll(&ready, 1, 30'000), 1, "the server neither answers nor closes");
    const ssize_t got = recv(client.get(), part, sizeof part, 0);
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

}  // namespace

Test(http_server, a_request_in_several_parts_is_read_up_to_its_empty_line, .timeout = 60) {
  const Served served({});
  const Descriptor client = served.client();
  for (const char* part : {"GET /metrics HTTP/1.1\r\nHost: a\r", "\n\r", "\n"}) {
    say(client, part);
    std::this_thread::sleep_for(20ms);
  }
  cr_assert_eq(heard(client), std::string("<GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n>"));
}

Test(http_server, a_request_that_is_too_long_or_ends_early_is_not_answered, .timeout = 60) {
  const Served served({});
  const Descriptor client = served.client();
  say(client, "GET /metrics" + std::string(20000, 'x'));
  cr_assert_eq(heard(client), std::string());
  const Descriptor ended = served.client();
  say(ended, "GET /metrics");
  shutdown(ended.get(), SHUT_WR);
  cr_assert_eq(heard(ended), std::string());
}

// A byte that comes late does not begin the time anew.
Test(http_server, a_client_that_says_a_little_gets_no_more_time_than_a_silent_one, .timeout = 60) {
  HttpServer::Options options;
  options.patience = 1s;
  const Served served(std::move(options));
  const Descriptor silent = served.client(), slow = served.client();
  const auto begin = Clock::now();
  std::thread drips([&] {
    for (int i = 0; i < 100 && send(slow.get(), "x", 1, MSG_NOSIGNAL) == 1; ++i)
      std::this_thread::sleep_for(100ms);
  });
  cr_assert_eq(heard(silent), std::string());
  cr_assert_eq(heard(slow), std::string());
  cr_assert_lt(Clock::now() - begin, 8s);
  drips.join();
}

Test(http_server, silent_clients_delay_nobody, .timeout = 60) {
  const Served served({});
  std::vector<Descriptor> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(served.client());
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    const Descriptor client = served.client();
    say(client, "GET / HTTP/1.1\r\n\r\n");
    cr_assert_eq(heard(client), std::string("<GET / HTTP/1.1\r\n\r\n>"));
  }
  cr_assert_lt(Clock::now() - begin, 4s, "less than one silent client is waited for");
  cr_assert_eq(heard(silent.front()), std::string(), "the oldest gave way");
}

Test(http_server, a_client_that_reads_nothing_does_not_block_others, .timeout = 60) {
  HttpServer::Options options;
  options.patience = 30s;
  options.answer = [](const std::string&) { return std::string(64 << 20, 'x'); };
  const Served served(std::move(options));
  const Descriptor lazy = served.client(), good = served.client();
  say(lazy, "GET / HTTP/1.1\r\n\r\n");
  say(good, "GET / HTTP/1.1\r\n\r\n");
  cr_assert_eq(heard(good).size(), std::size_t{64} << 20);
}

Test(listen_address, has_the_forms_that_other_exporters_take) {
  const auto read = [](const char* text) {
    const auto address = read_listen_address(text, "127.0.0.1");
    cr_assert(address.ok(), "%s", text);
    return address->host + " " + std::to_string(address->port);
  };
  cr_assert_eq(read("[::]:9823"), std::string(":: 9823"));
  cr_assert_eq(read("[::1]:9823"), std::string("::1 9823"));
  cr_assert_eq(read("::1:9823"), std::string("::1 9823"));
  cr_assert_eq(read(":9823"), std::string(" 9823"));
  cr_assert_eq(read("9823"), std::string("127.0.0.1 9823"));
  cr_assert_eq(read("10.0.0.1:0"), std::string("10.0.0.1 0"));
  cr_assert_eq(read("node1:65535"), std::string("node1 65535"));
  cr_assert_eq(read("[10.0.0.1]:1"), std::string("10.0.0.1 1"));
  for (const char* bad : {"", ":", "[::]", "[::]:", "[::", "[::1:9823", "::1]:9823", "a:", "a:b",
                          "1:65536", "65536", "-1", ":+1", "[]:1", "a[b]:1", "9823 "}) {
    const auto address = read_listen_address(bad, "127.0.0.1");
    cr_assert_not(address.ok(), "%s", bad);
    cr_assert_neq(address.error().message().find("--listen=" + std::string(bad) + ": give "),
                  std::string::npos);
  }
}

Test(listen_address, all_addresses_are_those_of_ipv4_too) {
  const auto listening = listen_at({"", 0});
  cr_assert(listening.ok());
  cr_assert(control::connect_to("127.0.0.1", control::local_port(listening->get()), 10s).ok());
}

Test(http_server, a_flood_of_requests_costs_its_share, .timeout = 60) {
  HttpServer::Options options;
  std::atomic<int> answers = 0;
  options.share = 0.05;
  options.saved_up_s = 0.02;
  options.answer = [&](const std::string&) {
    for (const double begin = control::thread_time_s(); control::thread_time_s() < begin + 1e-3;)
      continue;
    ++answers;
    return std::string("answer");
  };
  const Served served(std::move(options));
  std::atomic<bool> stops = false;
  std::vector<std::thread> flood;
  for (int i = 0; i < 4; ++i)
    flood.emplace_back([&] {
      while (!stops) {
        const Descriptor client = served.client();
        say(client, "GET /\r\n\r\n");
        heard(client);
      }
    });
  const auto begin = Clock::now();
  std::this_thread::sleep_for(3s);
  const std::chrono::duration<double> time = Clock::now() - begin;
  const int answered = answers;
  stops = true;
  for (std::thread& each : flood) each.join();
  cr_assert_leq(answered * 1e-3, 1.5 * (0.02 + 0.05 * time.count()), "%d answers", answered);
  cr_assert_geq(answered, 10);
}
