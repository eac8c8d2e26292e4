// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/gpu_queue.h"

#include <criterion/criterion.h>

#include "control/tag.h"
#include "controller/type_choice.h"
#include "unit/controller/fakes.h"

using namespace swell;
using namespace swell::controller;

namespace {

/// Two nodes of 8 h100, and two of 8 a100.
struct TwoTypes {
  test::FakeSlurm slurm{4};
  TwoTypes() {
    for (const int node : {2, 3})
      slurm.now.nodes[static_cast<std::size_t>(node)].gpus = {{8, "a100", ""}};
    slurm.now.partitions.front().is_default = true;
  }
  /// A job that runs for `hours` more.
  slurm::JobRecord& runs(JobId id, const char* node, int gpus, int hours) {
    slurm::JobRecord& job = slurm.run(id, node, gpus, "");
    job.time_limit_min = 100 * 60;
    job.end_time = slurm.now.taken + hours * 3600;
    return job;
  }
  slurm::JobRecord& waits(JobId id, int gpus, const char* type, int hours) {
    slurm::JobRecord& job = slurm.wait(id, gpus);
    job.gpus_per_node.type = type;
    job.time_limit_min = static_cast<std::uint32_t>(60 * hours);
    return job;
  }
};

control::SpeedTable speeds(
    const char* text = "m;10;a100:one-device:4=10,8=18;h100:one-device:4=20,8=38") {
  return *control::SpeedTable::parse(text);
}
control::ElasticSpec spec(const char* text) { return *control::ElasticSpec::parse(text); }

}  // namespace

Test(gpu_queue, idle_gpus_are_free_now_and_held_ones_at_the_time_limit) {
  TwoTypes world;
  world.runs(1, "node1", 8, 3);
  world.runs(2, "node2", 6, 1);
  slurm::JobRecord job = world.waits(3, 4, "h100", 1);
  world.slurm.end(3);
  GpuQueue queue(world.slurm.now, true);
  cr_assert_eq(*queue.start_of(job, "a100"), 0);
  cr_assert_eq(*queue.start_of(job, "h100"), 3600, "the first node to have four");
  job.gpus_per_node.count = 2;
  cr_assert_eq(*queue.start_of(job, "h100"), 0);
  job.min_nodes = 2;
  cr_assert_eq(*queue.start_of(job, "h100"), 3 * 3600, "on both nodes");
  job.gpus_per_node.count = 9;
  cr_assert_not(queue.start_of(job, "h100"), "no node has so many");
  cr_assert_not(queue.start_of(job, "v100"));
}

Test(gpu_queue, jobs_ahead_are_served_first) {
  TwoTypes world;
  world.runs(1, "node1", 8, 1);
  world.waits(2, 8, "h100", 2);  // node2 now
  world.waits(3, 8, "h100", 5);  // node1 in an hour
  slurm::JobRecord job = world.waits(4, 8, "h100", 1);
  job.priority = 50;
  world.slurm.end(4);
  GpuQueue queue(world.slurm.now, true);
  cr_assert_eq(*queue.start_of(job, "h100"), 2 * 3600);
  cr_assert_eq(*queue.start_of(job, "a100"), 0);
}

Test(gpu_queue, lent_gpus_go_back_to_who_waits) {
  TwoTypes world;
  world.runs(1, "node1", 8, 9);
  slurm::JobRecord& lent = world.runs(2, "node2", 8, 9);
  slurm::JobRecord job = world.waits(3, 8, "h100", 1);
  world.slurm.end(3);
  cr_assert_eq(*GpuQueue(world.slurm.now, true).start_of(job, "h100"), 9 * 3600);
  world.slurm.find(2)->admin_comment = "swell[parent=1 grant=n1]";
  (void)lent;
  cr_assert_eq(*GpuQueue(world.slurm.now, true).start_of(job, "h100"), 0);
}

Test(gpu_queue, lists_and_constraints_and_partitions_leave_nodes_out) {
  TwoTypes world;
  world.slurm.now.nodes[3].features = {"big"};
  slurm::JobRecord job = world.waits(1, 8, "h100", 1);
  world.slurm.end(1);
  GpuQueue queue(world.slurm.now, true);
  job.excluded_nodes = "node[3-4]";
  cr_assert_not(queue.start_of(job, "a100"));
  job.excluded_nodes = "";
  job.features = "big";
  cr_assert_eq(*queue.start_of(job, "a100"), 0);
  cr_assert_not(queue.start_of(job, "h100"));
  job.features = "";
  job.partition = "other";
  cr_assert_not(queue.start_of(job, "a100"));
  job.partition = "";
  cr_assert_eq(*queue.start_of(job, "a100"), 0, "the default partition");
}

Test(type_choice, the_faster_type_is_taken_where_both_are_idle) {
  TwoTypes world;
  slurm::JobRecord job = world.waits(1, 4, "a100", 10);
  world.slurm.end(1);
  GpuQueue queue(world.slurm.now, true);
  const auto choice = choose_type(job, spec("types=a100/h100"), speeds(), queue);
  cr_assert(choice.ok());
  cr_assert_eq(choice->best().type, std::string("h100"));
  cr_assert_float_eq(*choice->best().end_s, 5 * 3600, 1e-6, "ten hours of a100");
  cr_assert_float_eq(choice->gain_s, 5 * 3600, 1e-6);
  cr_assert(pays_to_move(*choice));
  cr_assert_eq(choice->words(4),
               std::string("4 h100: idle now, done in 5 h; 4 a100: idle now, done in 10 h"));
}

Test(type_choice, the_slower_type_is_taken_where_it_ends_first) {
  TwoTypes world;
  world.runs(1, "node1", 8, 6);
  world.runs(2, "node2", 8, 6);
  slurm::JobRecord job = world.waits(3, 4, "h100", 10);
  world.slurm.end(3);
  GpuQueue queue(world.slurm.now, true);
  // 10 samples a step: 3 h of h100 and 6 h of a100.
  auto choice = choose_type(job, spec("types=a100/h100,steps=21600"), speeds(), queue);
  cr_assert_eq(choice->best().type, std::string("a100"));
  cr_assert_float_eq(choice->gain_s, 3 * 3600, 1e-6);
  cr_assert_eq(choice->words(4),
               std::string("4 a100: idle now, done in 6 h; 4 h100: starts in 6 h, done in 9 h"));
  // 20 h of h100: waiting pays.
  choice = choose_type(job, spec("types=a100/h100,steps=144000"), speeds(), queue);
  cr_assert_eq(choice->best().type, std::string("h100"));
  cr_assert_eq(choice->gain_s, 0);
  cr_assert_not(pays_to_move(*choice));
}

Test(type_choice, without_steps_and_limit_the_type_that_starts_first_is_taken) {
  TwoTypes world;
  world.runs(1, "node1", 8, 6);
  world.runs(2, "node2", 8, 6);
  slurm::JobRecord job = world.waits(3, 4, "h100", 0);
  world.slurm.end(3);
  GpuQueue queue(world.slurm.now, true);
  const auto choice = choose_type(job, spec("types=a100/h100"), speeds(), queue);
  cr_assert_eq(choice->best().type, std::string("a100"));
  cr_assert_not(choice->best().end_s);
  cr_assert(pays_to_move(*choice));
}

Test(type_choice, what_the_table_does_not_know_is_never_chosen) {
  TwoTypes world;
  slurm::JobRecord job = world.waits(1, 4, "h100", 10);
  world.slurm.end(1);
  GpuQueue queue(world.slurm.now, true);
  const auto of = [&](const char* table) {
    return choose_type(job, spec("types=a100/h100"), speeds(table), queue);
  };
  cr_assert_neq(of("m;10;a100::4=10").error().message().find("no speed of that type"),
                std::string::npos, "the type that it asks for stays, as nothing says it is slower");
  cr_assert_eq(of("m;10;h100::4=10")->best().type, std::string("h100"));
  job.gpus_per_node.type = "";
  cr_assert_eq(of("m;10;a100::4=10")->best().type, std::string("a100"));
  cr_assert_neq(of("m;10;a100::8=10").error().message().find("no speed of a100/h100 with 4 GPUs"),
                std::string::npos);
}

namespace {

SubmitRequest submission(const char* gres, const char* elastic) {
  SubmitRequest request;
  request.tres_per_node = gres;
  request.min_nodes = request.max_nodes = 1;
  request.time_limit_min = 600;
  request.submitted = 1'000'000;
  request.elastic = elastic;
  request.speeds = speeds().text();
  return request;
}

Admission admitted(const SubmitRequest& request) {
  GrantBook book;
  auto admission = admit(request, {"expansion", ""}, book, 0, true);
  cr_assert(admission.ok(), "%s", admission.error().message().c_str());
  return *admission;
}

}  // namespace

Test(type_choice, a_submission_asks_for_the_better_type_and_says_so) {
  TwoTypes world;
  GpuQueue queue(world.slurm.now, true);
  for (const auto& [gres, wanted] : {std::pair{"gres:gpu:a100:4", "gres:gpu:h100:4"},
                                     {"gres/gpu:4,gres/tmp:1", "gres/gpu:h100:4,gres/tmp:1"}}) {
    const SubmitRequest request = submission(gres, "types=a100/h100,table=m.json");
    Admission admission = admitted(request);
    choose_type(request, admission, queue);
    cr_assert_eq(*admission.lowered.tres_per_node, std::string(wanted));
    cr_assert_neq(admission.notice.find("4 h100: idle now, done in 5 h"), std::string::npos, "%s",
                  admission.notice.c_str());
    const auto tag = control::Tag::find(*admission.admin_comment);
    cr_assert_eq(tag->get("speeds"), speeds().text());
    cr_assert_neq(tag->get("chosen").find("starts_on_h100"), std::string::npos);
  }
}

Test(type_choice, submissions_of_one_look_do_not_all_take_the_same_gpus) {
  TwoTypes world;
  GpuQueue queue(world.slurm.now, true);
  const SubmitRequest request = submission("gres:gpu:a100:8", "types=a100/h100,table=m.json");
  std::string types;
  for (int i = 0; i < 3; ++i) {
    Admission admission = admitted(request);
    choose_type(request, admission, queue);
    types += *admission.lowered.tres_per_node + " ";
  }
  cr_assert_eq(types, std::string("gres:gpu:h100:8 gres:gpu:h100:8 gres:gpu:h100:8 "),
               "two on h100 now; the third ends sooner after one of them (%s)", types.c_str());
  for (int i = 0; i < 2; ++i) {
    Admission admission = admitted(request);
    choose_type(request, admission, queue);
    types += *admission.lowered.tres_per_node + " ";
  }
  cr_assert_neq(types.find("a100"), std::string::npos, "%s", types.c_str());
}

Test(type_choice, with_min_the_fewer_gpus_are_of_the_better_type) {
  TwoTypes world;
  GpuQueue queue(world.slurm.now, true);
  const SubmitRequest request = submission("gres:gpu:a100:8", "min=4,types=a100/h100,table=m.json");
  Admission admission = admitted(request);
  choose_type(request, admission, queue);
  cr_assert_eq(*admission.lowered.tres_per_node, std::string("gres:gpu:h100:4"));
}

Test(type_choice, a_submission_that_names_its_gpus_twice_names_one_type) {
  TwoTypes world;
  GpuQueue queue(world.slurm.now, true);
  SubmitRequest request = submission("gres:gpu:a100:4", "types=a100/h100,table=m.json");
  request.tres_per_job = "gres:gpu:a100:8";
  request.min_nodes = request.max_nodes = 2;
  Admission admission = admitted(request);
  choose_type(request, admission, queue);
  cr_assert_eq(admission.lowered.tres_per_job.value_or(""), std::string("gres:gpu:h100:8"));
  cr_assert_eq(admission.lowered.tres_per_node.value_or(""), std::string("gres:gpu:h100:4"));
  for (std::string SubmitRequest::*list :
       {&SubmitRequest::tres_per_task, &SubmitRequest::tres_per_socket}) {
    request = submission("gres:gpu:a100:4", "types=a100/h100,table=m.json");
    request.*list = "gres:gpu:a100:4";
    admission = admitted(request);
    choose_type(request, admission, queue);
    cr_assert_not(admission.lowered.tres_per_node, "Slurm would be asked for two types");
    cr_assert_neq(admission.notice.find("of each task or socket"), std::string::npos, "%s",
                  admission.notice.c_str());
  }
}

Test(type_choice, without_consent_or_table_a_submission_stays_as_it_is) {
  TwoTypes world;
  GpuQueue queue(world.slurm.now, true);
  SubmitRequest request = submission("gres:gpu:a100:4", "table=m.json");
  Admission admission = admitted(request);
  choose_type(request, admission, queue);
  cr_assert_not(admission.lowered.tres_per_node);
  // Its environment may have the table of a job in which it is submitted.
  request = submission("gres:gpu:a100:4", "types=a100/h100");
  admission = admitted(request);
  choose_type(request, admission, queue);
  cr_assert_not(admission.lowered.tres_per_node);
  cr_assert_eq(admission.admin_comment->find("speeds="), std::string::npos);
  request = submission("gres:gpu:a100:4", "types=a100/h100,table=m.json");
  request.required_nodes = "node3";
  admission = admitted(request);
  choose_type(request, admission, queue);
  cr_assert_not(admission.lowered.tres_per_node);
  cr_assert_neq(admission.notice.find("--nodelist"), std::string::npos);
  request = submission("", "types=a100/h100,table=m.json");
  request.tres_per_task = "gres:gpu:a100:1";
  request.tasks = 4;
  admission = admitted(request);
  choose_type(request, admission, queue);
  cr_assert_not(admission.lowered.tres_per_node);
  cr_assert_neq(admission.notice.find("its type stays as it is: only GPUs of --gres"),
                std::string::npos, "%s", admission.notice.c_str());
}

Test(type_choice, a_table_that_was_not_read_or_is_damaged_is_refused) {
  GrantBook book;
  SubmitRequest request = submission("gres:gpu:a100:4", "types=a100/h100,table=m.json");
  request.speeds.reset();
  const auto unread = admit(request, {"expansion", ""}, book, 0);
  cr_assert_not(unread.ok());
  cr_assert_neq(unread.error().message().find("table=m.json was not read"), std::string::npos);
  request.speeds = "nonsense";
  cr_assert_not(admit(request, {"expansion", ""}, book, 0).ok());
}

Test(type_choice, a_deadline_that_no_speed_keeps_is_refused_with_the_earliest_end) {
  GrantBook book;
  // 10 samples a step; 38 samples/s at the most: 20,000 steps take 5,263 s.
  const auto refused = [&](const char* elastic) {
    const auto admission =
        admit(submission("gres:gpu:h100:4", elastic), {"expansion", ""}, book, 0);
    return admission ? std::string() : admission.error().message();
  };
  const std::string why = refused("max=8,steps=20000,deadline=1h,table=m.json");
  cr_assert_neq(why.find("cannot be kept: 8 h100 take 1.46 h"), std::string::npos, "%s",
                why.c_str());
  cr_assert_neq(why.find("ends at 1970-01-12T15:14:24Z at the earliest"), std::string::npos, "%s",
                why.c_str());
  cr_assert_eq(refused("max=8,steps=20000,deadline=2h,table=m.json"), std::string());
  cr_assert_neq(refused("max=4,steps=20000,deadline=2h,table=m.json"), std::string(),
                "four take 2.8 h");
  cr_assert_eq(refused("max=8,deadline=1h,table=m.json"), std::string(), "its steps are not known");
  const auto on = [&](const std::set<std::string>& types) {
    const auto admission = admit(
        submission("gres:gpu:a100:4", "max=4,types=h100,steps=20000,deadline=4h,table=m.json"),
        {"expansion", ""}, book, 0, false, types);
    return admission ? std::string() : admission.error().message();
  };
  cr_assert_eq(on({}), std::string(), "4 h100 take 2.8 h, where types are not known");
  cr_assert_eq(on({"a100", "h100"}), std::string());
  cr_assert_neq(on({"a100"}).find("cannot be kept: 4 a100 take"), std::string::npos,
                "a type that no node has keeps none: %s", on({"a100"}).c_str());
}
