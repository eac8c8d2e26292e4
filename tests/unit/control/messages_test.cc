// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/messages.h"

#include <criterion/criterion.h>
#include <fmt/format.h>
#include <limits>

using namespace swell;
using namespace swell::control;

namespace {

Message through_text(const Message& message) {
  const auto json = Json::parse(to_json(message).dump());
  cr_assert(json.ok());
  auto read = message_from(*json);
  cr_assert(read.ok(), "%s", read.error().message().c_str());
  return *read;
}

template <typename T>
T accepted(const char* text) {
  const auto json = Json::parse(text);
  cr_assert(json.ok());
  const auto read = message_from(*json);
  cr_assert(read.ok(), "%s", read.error().message().c_str());
  return std::get<T>(*read);
}

std::string refusal(const char* text) {
  const auto json = Json::parse(text);
  cr_assert(json.ok());
  const auto read = message_from(*json);
  cr_assert_not(read.ok());
  return read.error().message();
}

}  // namespace

Test(messages, an_agent_of_the_version_before_calls_a_generation_epoch) {
  cr_assert_eq(
      accepted<Status>(R"({"type":"status","state":"ACTIVE","epoch":4,"workers":2,"stopped_s":0})")
          .generation,
      4);
  cr_assert_eq(
      accepted<Switched>(R"({"type":"switched","mode":"live","epoch":5,"workers":2,"stopped_s":0})")
          .generation,
      5);
  cr_assert_eq(accepted<Profile>(
                   R"({"type":"profile","epoch":6,"companions":[],"step_s":1,"profile":{"a":1}})")
                   .generation,
               6);
}

Test(messages, every_type_reads_back_as_it_was_written) {
  Grow grow;
  grow.expires_s = 30;
  Offer offer;
  offer.nonce = "abc";
  offer.node = "node2";
  offer.gpus = offer.workers = offer.cpus = 4;
  grow.offers = {offer, offer};
  Hello hello;
  hello.job = 4294967295u;
  hello.workers = 4;
  hello.companions = {7, 9};
  WorkerStart start;
  start.environment = {{"RANK", "0"}, {"WORLD_SIZE", "4"}};
  start.none_is_new = true;
  start.ports = "mlx5_0:1";
  Welcome welcome;
  const auto document = Json::parse(R"({"micro_batches":4,"stages":[]})");
  cr_assert(document.ok());
  hello.model = *document;
  grow.plan = *document;
  grow.reason = "1.9 times as fast";
  grow.devices_apart = true;
  WorkerHello takes_one;
  takes_one.one_program = "GPU 0 is in compute mode EXCLUSIVE_PROCESS";
  takes_one.misfit = "one task in place of four";
  WorkerSignal signal;
  signal.signal = 10;
  const std::vector<Message> all = {
      hello,
      GrowDone{{{"abc", 12, ""}}},
      Released{12, "x", true, true},
      Status{JobState::switching,
             3,
             12,
             1.5,
             "it failed there",
             "generation 3",
             {2, 4},
             "it runs already",
             7.5,
             3,
             0.5,
             true,
             "its workers did not leave"},
      Profile{3, {7}, 0.25, *document},
      Switched{"live", 2, 6, 0.25, *document},
      Bye{1},
      welcome,
      Refused{"no"},
      WorkerListens{},
      WorkerRuntime{"/tmp/x/socket", "127.0.0.1:1", ""},
      WorkerProfile{2, "00ff"},
      WorkerSizes{{1, 2, 4}, "it cannot save"},
      WorkerLaunches{1, "torchrun runs python3 with RANK=0, WORLD_SIZE=1", true},
      WorkerSteps{1, 20'000, 0.25, 50'000},
      grow,
      Shrink{{12}, 30, "needed by job 17", *document},
      Replan{*document, "its owner wants it"},
      Requeue{7, 60, true, "the job moves to h100"},
      Ask{12, 2, "replan", 0, *document, 6, true, std::string(16 * 1024, 'F')},
      Answer{"done", Json()},
      takes_one,
      WorkerNotice{15},
      WorkerExit{1, 0, 9},
      start,
      signal};
  cr_assert_eq(all.size(), std::variant_size_v<Message>);
  for (const Message& message : all) {
    const Message read = through_text(message);
    cr_assert_eq(read.index(), message.index());
    cr_assert_eq(to_json(read).dump(), to_json(message).dump());
  }
}

Test(messages, a_start_of_an_older_agent_says_nothing_of_new_programs) {
  const auto json = Json::parse(
      R"({"type":"worker-start","generation":1,"restart_signal":10,"key":"","environment":{}})");
  const auto read = message_from(*json);
  cr_assert(read.ok());
  cr_assert_not(std::get<WorkerStart>(*read).none_is_new);
}

Test(messages, an_ask_of_an_older_swell_is_read_and_a_late_page_of_history_asked_for) {
  const auto ask = [](const char* what, int number) {
    return message_from(Json::object(
        {{"type", "ask"}, {"job", 12}, {"version", 2}, {"what", what}, {"number", number}}));
  };
  const auto late = ask("history", 3'000'000);
  cr_assert(late.ok());
  cr_assert_eq(std::get<Ask>(*late).number, 3'000'000);
  cr_assert_eq(std::get<Ask>(*late).last, 0);
  cr_assert_not(std::get<Ask>(*late).profiles);
  cr_assert_not(ask("max", 3'000'000).ok());
}

Test(messages, a_bad_member_is_named_with_its_value) {
  cr_assert_eq(
      refusal(R"({"type":"bye","exit_code":999})"),
      std::string(
          "message \"bye\": \"exit_code\" is 999; it must be a whole number from 0 to 255"));
  cr_assert_neq(
      refusal(R"({"type":"shrink","companions":["x"],"deadline_s":1,"reason":""})").find("job ids"),
      std::string::npos);
  cr_assert_neq(
      refusal(R"({"type":"status","state":"ASLEEP","generation":0,"workers":0,"stopped_s":0})")
          .find("ASLEEP"),
      std::string::npos);
}

Test(messages, sizes_rise_within_bounds) {
  for (const char* bad : {"[0]", "[2,2]", "[4,2]", "[1000001]", "[1.5]", "2"})
    refusal(fmt::format(R"({{"type":"worker-sizes","workers":{}}})", bad).c_str());
  cr_assert_neq(refusal(R"({"type":"worker-sizes","workers":[4,2]})").find("rising"),
                std::string::npos);
}

Test(messages, a_plan_or_a_profile_is_bounded) {
  Replan large;
  large.plan = Json::object({{"x", std::string(kMaxDocument, 'x')}});
  cr_assert_neq(refusal(to_json(large).dump().c_str()).find("at most 32768 are read"),
                std::string::npos);
  cr_assert_neq(
      refusal(R"({"type":"profile","generation":0,"companions":[],"step_s":1,"profile":[]})")
          .find("must be an object"),
      std::string::npos);
  refusal(R"({"type":"profile","generation":0,"companions":[],"step_s":-1,"profile":{}})");
  refusal(R"({"type":"grow","offers":[],"expires_s":1,"plan":"none"})");
}

Test(messages, refuses_anything_but_messages) {
  refusal("[]");
  refusal("{}");
  refusal(R"({"type":"steal-gpus"})");
  refusal(R"({"type":"grow","offers":{},"expires_s":1})");
}

Test(messages, sent_messages_are_within_the_bounds_of_reading) {
  WorkerSteps steps;
  steps.generation = kMaxGpus + 1;
  steps.steps = -5;
  steps.age_s = -0.25;  // a clock that went back
  const auto read = std::get<WorkerSteps>(through_text(steps));
  cr_assert_eq(read.generation, kMaxGpus);
  cr_assert_eq(read.steps, 0);
  cr_assert_eq(read.age_s, 0.0);
  Status status;
  status.start_s = 1e12;
  status.lost_s = -1;
  status.stopped_s = std::numeric_limits<double>::quiet_NaN();
  status.plan_refused = std::string(5000, 'x');
  status.no_growth = std::string(4095, 'x') + "\u00e9";  // of two bytes: left out in whole
  const auto told = std::get<Status>(through_text(status));
  cr_assert_eq(told.start_s, 1e9);
  cr_assert_eq(told.lost_s, 0.0);
  cr_assert_eq(told.stopped_s, 0.0);
  cr_assert_eq(told.plan_refused, std::string(4096, 'x'));
  cr_assert_eq(told.no_growth, std::string(4095, 'x'));
  WorkerHello hello;
  hello.local_rank = -1;
  hello.port = 70000;
  hello.misfit = std::string(4000, '\xff');  // no UTF-8: written as four characters each
  const auto said = std::get<WorkerHello>(through_text(hello));
  cr_assert_eq(said.local_rank, 0);
  cr_assert_eq(said.port, 65535);
  cr_assert_eq(said.misfit.size(), 4096u);
}
