// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/state_file.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace swell::controller;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    char name[] = "/tmp/swell-state-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file() const { return path / "swell_state"; }
  void put(const char* text) const { std::ofstream(file()) << text; }
};

SavedState two_grants() {
  SavedState state;
  state.issued["9f0c"].parent = 12;
  state.issued["77aa"].parent = 4294967295u;
  state.issued["77aa"].node = "node2";
  state.issued["77aa"].gpus = 4;
  return state;
}

std::string reason(const Folder& folder) {
  const auto state = load_state(folder.file());
  cr_assert_not(state.ok());
  return state.error().message();
}

}  // namespace

Test(state_file, is_read_as_it_was_written) {
  const Folder folder;
  cr_assert(save_state(folder.file(), two_grants()).ok());
  cr_assert(load_state(folder.file()).value() == two_grants());
  SavedState planned;
  planned.jobs[7].owners_plan = {8, 9};
  cr_assert(save_state(folder.file(), planned).ok());
  cr_assert(load_state(folder.file()).value() == planned);
  cr_assert(load_state(folder.file())->jobs[7].owners_plan == planned.jobs[7].owners_plan);
  planned.health.failed("node1", 10, 1000, 5000, 8, 3600);
  cr_assert(save_state(folder.file(), planned).ok());
  cr_assert(load_state(folder.file()).value() == planned);
  swell::slurm::Snapshot snapshot;
  snapshot.taken = 5000;
  snapshot.jobs.emplace_back();
  snapshot.jobs[0].id = 3;
  snapshot.jobs[0].phase = swell::slurm::JobPhase::running;
  snapshot.jobs[0].submit_time = 4990;
  snapshot.jobs[0].gpus_in_all.count = 64;
  planned.submissions.look(snapshot, 600, 32);
  cr_assert_eq(planned.submissions.on_clock(0, 5000).size(), 1u);
  cr_assert(save_state(folder.file(), planned).ok());
  cr_assert(load_state(folder.file()).value() == planned);
}

Test(state_file, costs_of_changes_of_plan_are_kept) {
  using swell::redeploy::Measured;
  const Folder folder;
  SavedState state;
  state.jobs[7].pauses.changed(Measured::live, {5, 1.0 / 3}, 1e9);
  state.pauses.changed(1000, Measured::restart, {0, 33}, 1e9);
  cr_assert(save_state(folder.file(), state).ok());
  cr_assert(load_state(folder.file()).value() == state);
}

Test(state_file, a_damaged_part_that_only_advises_leaves_the_grants) {
  const std::string grants =
      R"({"version":3,"issued":{"9f0c":{"parent":12,"node":"n","gpu_type":"","partition":"","qos":"",)"
      R"("gpus":4,"workers":4,"cpus":4,"memory_mib":0}},)";
  const auto job_with = [](const std::string& member) {
    return R"("jobs":{"7":{"started":1,"paused":true,"max":5,)" + member + "}}";
  };
  const std::string good = R"("jobs":{})";
  // Each damaged part, and words of the one sentence about it.
  const std::vector<std::pair<std::string, std::string>> cases = {
      {good + R"(,"submissions":7)", "submissions left out: submissions: it must be a list"},
      {good + R"(,"submissions":[{"job":-1}])", "submissions left out"},
      {good + R"(,"submissions":null)", "submissions left out"},
      {good + R"(,"pauses":7)", "pauses left out: pauses: it must be a list"},
      {good + R"(,"pauses":[{"owner":1,"way":"slow","delay_s":0,"pause_s":0}])", "\"slow\""},
      {good + R"(,"pauses":[{"owner":1,"way":"live","delay_s":-1,"pause_s":0}])", "delay_s"},
      {good + R"(,"health":7)", "health left out: health: it must be an object"},
      {good + R"(,"health":{"node1":[]})", "health left out"},
      {R"("jobs":[])", "jobs left out: \"jobs\" must be an object"},
      {R"("jobs":{"x":{}})", "job x: \"x\" is not a job id"},
      {R"("jobs":{"8":7,"9":7})", "job 8: it must be an object (and 1 more)"},
      {job_with(R"("pauses":7)"), "job 7: pauses: it must be an object"},
      {job_with(R"("pauses":{"start_s":1,"live":[{}]})"), "job 7: pauses"},
      {job_with(R"("owners_plan":[0])"), "owners_plan: 0 is not a job id"},
      {job_with(R"("training":7)"), "job 7: training"},
      {job_with(R"("training":{"report":[]})"), "job 7: training"}};
  for (const auto& [part, words] : cases) {
    const Folder folder;
    folder.put((grants + part + "}").c_str());
    std::vector<std::string> dropped;
    const auto state = load_state(folder.file(), &dropped);
    cr_assert(state.ok(), "%s", part.c_str());
    cr_assert_eq(state->issued.size(), 1u, "%s", part.c_str());
    cr_assert_eq(state->issued.at("9f0c").gpus, 4);
    cr_assert_eq(dropped.size(), 1u, "%s: %zu", part.c_str(), dropped.size());
    cr_assert_neq(dropped[0].find(words), std::string::npos, "%s: %s", part.c_str(),
                  dropped[0].c_str());
    if (part.find("\"7\"") == std::string::npos) continue;
    cr_assert(state->jobs.at(7).paused && state->jobs.at(7).own_max == 5, "%s", part.c_str());
  }
}

Test(state_file, is_for_its_owner_alone) {
  const Folder folder;
  cr_assert(save_state(folder.file(), two_grants()).ok());
  using std::filesystem::perms;
  cr_assert(std::filesystem::status(folder.file()).permissions() ==
            (perms::owner_read | perms::owner_write));
}

Test(state_file, half_a_new_one_changes_nothing) {
  const Folder folder;
  cr_assert(save_state(folder.file(), two_grants()).ok());
  std::ofstream(folder.file() + ".new") << "{\"version\"";
  cr_assert(load_state(folder.file()).value() == two_grants());
  cr_assert(save_state(folder.file(), SavedState{}).ok());
  cr_assert(load_state(folder.file()).value() == SavedState{});
}

Test(state_file, none_is_an_empty_state) {
  const Folder folder;
  cr_assert(load_state(folder.file()).value() == SavedState{});
}

Test(state_file, a_damaged_one_is_an_error_that_names_it) {
  const Folder folder;
  for (const char* text :
       {"", "{", "[]", "{\"version\":99,\"issued\":{}}", "{\"version\":1}",
        "{\"version\":1,\"issued\":[]}", "{\"version\":1,\"issued\":{\"9f0c\":0}}",
        "{\"version\":1,\"issued\":{\"9f0c\":\"12\"}}"}) {
    folder.put(text);
    cr_assert_neq(reason(folder).find(folder.file()), std::string::npos, "%s", text);
  }
}

Test(state_file, a_folder_that_cannot_be_written_to_is_an_error) {
  const Folder folder;
  cr_assert_not(save_state(folder.path / "none" / "swell_state", two_grants()).ok());
}

Test(state_file, a_link_that_somebody_planted_is_not_written_through) {
  const Folder folder;
  const std::string other = folder.path / "other";
  std::ofstream(other) << "theirs";
  std::filesystem::create_symlink(other, folder.file() + ".new");
  cr_assert_not(save_state(folder.file(), two_grants()).ok());
  cr_assert_eq(std::filesystem::file_size(other), 6u);
  std::filesystem::remove(folder.file() + ".new");
  std::filesystem::create_symlink(other, folder.file());  // replaced, as a file
  cr_assert(save_state(folder.file(), two_grants()).ok());
  cr_assert_eq(std::filesystem::file_size(other), 6u);
  cr_assert_not(std::filesystem::is_symlink(folder.file()));
}
