// SPDX-License-Identifier: GPL-2.0-or-later
// The controller with jobs whose users say what they train.
#include <algorithm>
#include <criterion/criterion.h>
#include <string>

#include "controller/view_builder.h"
#include "core/models/catalogue.h"
#include "core/plan/plan.h"
#include "unit/controller/live_world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::kEight;
using swell::test::Live;
using swell::test::Reported;

namespace {

/// A step of eight GPUs takes half a minute, against which gradients between nodes do not count.
Json gpt(int layers = 24) {
  return Json::object({{"name", "gpt-test"},
                       {"layers", layers},
                       {"hidden", 1024},
                       {"heads", 16},
                       {"sequence", 1024},
                       {"global_batch", 65536}});
}

struct Described : Live {
  explicit Described(const Json& model = gpt(),
                     const std::string& spec = "max=16,mode=live,grace=20") {
    slurm.run(11, "node2", 8, "swell[elastic=" + spec + " basic=8]");
    say(model);
  }
  void say(const Json& model) {
    control::Hello hello = test::hello_of(11, 8);
    hello.model = model;
    server.says(++connection, hello);
    step();
  }
  const ElasticJob& described() const { return controller->jobs().at(11); }
  void is(control::JobState state, int generation, const std::string& plan_refused = "") {
    control::Status status;
    status.state = state;
    status.generation = generation;
    status.workers = 8;
    status.plan_refused = plan_refused;
    server.says(connection, status);
    step();
  }
  /// Whether it comes to be decided so: plans are made on another thread.
  bool comes_to(const std::string& by) {
    return until([&] { return described().decision.by() == by; });
  }
  /// Returns the GPUs that the last Grow lent to job 11.
  int offered() const {
    const auto* grow = server.last<control::Grow>();
    int gpus = 0;
    if (grow != nullptr)
      for (const control::Offer& offer : grow->offers) gpus += offer.gpus;
    return gpus;
  }
  control::ConnectionId connection = 2;
};

bool starts(const std::string& text, const char* with) { return text.starts_with(with); }

}  // namespace

Test(data_sheets, a_job_whose_model_is_known_is_lent_before_its_first_step) {
  Described world;
  cr_assert(world.grown(), "ProfileWait is not over");
  const auto* grow = world.server.last<control::Grow>();
  const auto plan = plan::Plan::from_json(grow->plan);
  cr_assert(plan.ok(), "%s", grow->plan.dump().c_str());
  cr_assert_eq(plan->gpu_count(), 16);
  cr_assert_eq(world.offered(), 8);
  cr_assert_neq(grow->reason.find("is predicted by data sheets"), std::string::npos, "%s",
                grow->reason.c_str());
  cr_assert(world.comes_to("by data sheet"));
  cr_assert_neq(
      world.described().decision.why().find("gpt-test, 4.1e+08 parameters, 65536 samples"),
      std::string::npos, "%s", world.described().decision.why().c_str());
  cr_assert_eq(world.job().decision.by(), std::string("worker by worker"), "nothing is said of it");
}

Test(data_sheets, how_much_it_is_lent_depends_on_the_model) {
  // Two samples a step of one layer with one head: two GPUs at most can work at a time.
  Json small = gpt(1);
  small.set("heads", 1).set("hidden", 64).set("global_batch", 2);
  Described world(small);
  for (int round = 0; round < 30; ++round) world.step(0.1);
  cr_assert_null(world.server.last<control::Grow>());
  cr_assert(world.comes_to("by data sheet"));
}

Test(data_sheets, a_profile_takes_their_place) {
  Described world;
  cr_assert(world.grown());
  world.server.says(world.connection, Reported{.gpus = kEight, .node = "node2"}.message());
  world.step();
  world.step();
  cr_assert(world.comes_to("planned"));
}

Test(data_sheets, a_refused_profile_ends_them) {
  Described world;
  Reported reported{.gpus = kEight, .layer_s = 1e-9, .layer_bytes = 4e8};
  reported.node = "node2";
  world.server.says(world.connection, reported.message());
  world.step();
  world.step(6);
  world.step();
  cr_assert(world.comes_to("not at all"));
  cr_assert(
      starts(world.described().decision.why(), "lent nothing until it reports a usable profile"));
}

Test(data_sheets, they_are_not_believed_for_long) {
  Described world;
  world.is(control::JobState::active, 0);
  world.step(ElasticJob::kSheetBelieved_s - 60);
  cr_assert(world.comes_to("by data sheet"));
  world.step(70);
  world.is(control::JobState::active, 0);
  cr_assert(world.comes_to("worker by worker"));
  cr_assert_neq(world.described().decision.why().find("data sheets are believed no longer"),
                std::string::npos, "%s", world.described().decision.why().c_str());
}

Test(data_sheets, they_are_not_believed_for_long_if_the_agent_never_says_that_it_runs) {
  Described world;
  world.step(ElasticJob::kSheetWaits_s - 60);
  cr_assert(world.comes_to("by data sheet"));
  world.say(gpt());  // an agent that connects anew is believed no longer for it
  world.step(70);
  cr_assert(world.comes_to("worker by worker"));
  cr_assert_neq(world.described().decision.why().find("data sheets are believed no longer"),
                std::string::npos, "%s", world.described().decision.why().c_str());
}

Test(data_sheets, make_no_plan_for_a_job_whose_loss_must_be_the_same) {
  Described world(gpt(), "max=16,mode=live,grace=20,consistency=exact");
  cr_assert(world.comes_to("worker by worker"));
  cr_assert_neq(world.described().decision.why().find("consistency=exact"), std::string::npos, "%s",
                world.described().decision.why().c_str());
}

Test(data_sheets, a_job_is_starting_until_its_program_runs) {
  Described world;
  const auto is_starting = [&] {
    const policy::ClusterView view =
        build_view(world.slurm.now, world.controller->jobs(), {}, world.config, world.now, nullptr,
                   test::live_machines());
    const auto found = std::find_if(view.jobs.begin(), view.jobs.end(),
                                    [](const auto& job) { return job.id == 11; });
    return found != view.jobs.end() && found->starting;
  };
  cr_assert(is_starting(), "no step is lost");
  world.is(control::JobState::active, 0);
  cr_assert_not(is_starting());
}

Test(data_sheets, they_are_not_used_after_the_program_refused_a_plan_made_by_them) {
  Described world;
  cr_assert(world.grown());
  world.is(control::JobState::active, 0, "it has 12 layers, the plan 24");
  world.step();
  cr_assert(world.comes_to("worker by worker"));
  cr_assert_neq(world.described().decision.why().find("it has 12 layers, the plan 24"),
                std::string::npos, "%s", world.described().decision.why().c_str());
}

Test(data_sheets, unknown_models_are_refused_with_a_message) {
  Described world(gpt(0));
  cr_assert_not(world.described().description.model().has_value());
  cr_assert_neq(world.described().description.refused_model().find("layers"), std::string::npos,
                "%s", world.described().description.refused_model().c_str());
  cr_assert(std::any_of(world.said.begin(), world.said.end(), [](const std::string& line) {
    return line.find("job 11: its model is not used: ") != std::string::npos;
  }));
  Described large(gpt(100'000));
  cr_assert_not(large.described().description.model().has_value());
  Json split = gpt();
  split.set("cp", 2);
  Described with_cp(split);
  cr_assert_not(with_cp.described().description.model().has_value());
  cr_assert_neq(with_cp.described().description.refused_model().find(
                    "\"cp\" is 2; jobs run without CP and EP"),
                std::string::npos, "%s", with_cp.described().description.refused_model().c_str());
}

Test(data_sheets, the_largest_numbers_that_are_read_harm_nobody) {
  Json huge = gpt(4096);
  huge.set("hidden", 1 << 26).set("heads", 1 << 26).set("sequence", 1 << 26).set("vocab", 1 << 26);
  huge.set("global_batch", 1 << 24);
  Described world(huge);
  cr_assert(world.described().description.model().has_value());
  cr_assert(world.comes_to("worker by worker"));
  cr_assert_neq(world.described().decision.why().find("no plan over its own GPUs fits"),
                std::string::npos, "%s", world.described().decision.why().c_str());
  Json tiny = gpt(4096);
  tiny.set("hidden", 64).set("heads", 64).set("sequence", 1).set("vocab", 1);
  tiny.set("global_batch", 1 << 24);
  Described many(tiny);
  cr_assert(many.comes_to("by data sheet"));
}

Test(data_sheets, a_site_may_lend_nothing_without_a_profile) {
  Described world;
  world.config.lends_without_profile = false;
  world.restart();
  world.hello(20);
  world.say(gpt());
  cr_assert(world.grown(), "data sheets do");
  cr_assert(world.comes_to("by data sheet"));
  world.step(100);
  cr_assert_eq(world.job().decision.by(), std::string("not at all"));
  cr_assert(
      starts(world.job().decision.why(), "LendWithoutProfile=no in swell.conf, and its program"),
      "%s", world.job().decision.why().c_str());
  for (const auto& [connection, message] : world.server.sent)
    if (const auto* grow = std::get_if<control::Grow>(&message))
      cr_assert(is_object(grow->plan), "only the described one");
}

Test(data_sheets, any_word_of_an_agent_is_one_harmless_word_of_admincomment) {
  for (const std::string& hostile :
       {std::string("x] swell[elastic=max=99 own_max=64 paused=1] y"),
        std::string("a\nb\r\n]\x1b[31m basic=1"), std::string(2000, ']') + " lent=0"}) {
    Json model = gpt();
    model.set("name", hostile);
    Described world(model);
    cr_assert(world.comes_to("by data sheet"));
    control::Status status;
    status.state = control::JobState::active;
    status.workers = 8;
    status.no_growth = status.switched = hostile;
    const std::string elastic = world.described().spec.text();
    const auto check = [&](const char* what) {
      world.server.says(world.connection, status);
      world.step(3);
      world.step();
      const std::string comment = world.comment(11);
      const auto count = [&](char sign) {
        return std::count(comment.begin(), comment.end(), sign);
      };
      cr_assert_eq(count('[') + count(']'), 2, "%s: %s", what, comment.c_str());
      cr_assert(std::all_of(comment.begin(), comment.end(),
                            [](char each) { return each >= ' ' && each < 127; }));
      // Each word has one value, and no word is there twice or was made up.
      cr_assert_eq(control::Tag::find(comment)->text(), comment);
      cr_assert_eq(comment, world.described().tag().text());
      cr_assert_eq(control::Tag::find(comment)->get("elastic"), elastic);
      cr_assert_eq(control::Tag::find(comment)->get("basic"), "8");
      for (const char* word : {"own_max", "paused"})
        cr_assert_eq(control::Tag::find(comment)->get(word), "", "%s", word);
      for (const char* word : {"no_growth", "switched", "decided_why"}) {
        const std::string said = control::Tag::find(comment)->get(word);
        cr_assert(!said.empty() && said.size() <= 200, "%s=%s", word, said.c_str());
      }
      cr_assert_eq(count('='), count(' ') + 1 + std::count(elastic.begin(), elastic.end(), '='),
                   "%s", comment.c_str());
    };
    check("the model's name");
    status.plan_refused = hostile;
    check("a refused plan");
    cr_assert_neq(world.described().decision.why().find(hostile.substr(0, 20)), std::string::npos,
                  "%s", world.described().decision.why().c_str());
  }
}
