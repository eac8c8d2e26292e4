// SPDX-License-Identifier: GPL-2.0-or-later
#include "profiler/trace.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "core/json.h"
#include "profiler/library.h"
#include "profiler/profiler.h"

using namespace swell;
using namespace swell::profiler;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = fs::temp_directory_path() / "swell-trace-XXXXXX";
    cr_assert_not_null(mkdtemp(pattern.data()));
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

Json read(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = Json::parse(text);
  cr_assert(json.ok(), "%s: %s", path.c_str(), json.ok() ? "" : json.error().message().c_str());
  return *json;
}

std::string text(const Json& value) { return json_string_value(value.get()); }
double number(const Json& value) { return json_number_value(value.get()); }

/// The slices of a trace by name.
std::multimap<std::string, Json> slices(const Json& trace) {
  std::multimap<std::string, Json> found;
  for (const Json& event : trace.at("traceEvents").items())
    if (text(event.at("ph")) == "X") found.emplace(text(event.at("name")), event);
  return found;
}

Span span(Kind kind, std::int64_t began_ns, std::int64_t ended_ns) {
  Span made;
  made.opening.kind = kind;
  made.began_ns = began_ns;
  made.ended_ns = ended_ns;
  return made;
}

void train(Profiler& profiler, std::uint64_t steps) {
  for (std::uint64_t step = 1; step <= steps; ++step) {
    for (const Kind kind : {Kind::forward, Kind::backward}) {
      Opening opening;
      opening.kind = kind;
      opening.micro_batch = static_cast<std::int32_t>(step);
      profiler.recorder().end(profiler.recorder().begin(opening), 100);
    }
    profiler.boundary(step);
  }
}

}  // namespace

Test(trace, has_the_regions_of_one_step_with_what_is_known_of_them) {
  const Folder folder;
  Profiler profiler({folder / "trace.json", 3, false, 5});
  train(profiler, 12);
  const Json trace = read(folder / "trace.5.json");
  cr_assert_eq(number(trace.at("otherData").at("step")), 3);
  const auto found = slices(trace);
  cr_assert_eq(found.size(), 2);
  const Json& forward = found.find("forward")->second;
  cr_assert_eq(number(forward.at("pid")), 5);
  cr_assert_eq(number(forward.at("args").at("micro_batch")), 3);
  cr_assert_eq(number(forward.at("args").at("allocated_after")), 100);
  cr_assert_geq(number(forward.at("ts")), 0);
  cr_assert_eq(folder.files(), 1, "no half of a file is left behind");
}

Test(trace, a_program_that_ends_soon_has_its_trace_all_the_same) {
  const Folder folder;
  {
    Profiler profiler({folder / "trace", 1, false, 0});
    train(profiler, 1);
  }
  cr_assert_eq(slices(read(folder / "trace.0")).size(), 2);
}

Test(trace, regions_that_overlap_stand_on_tracks_of_their_own) {
  TracedStep traced;
  traced.step.spans = {span(Kind::backward, 0, 100), span(Kind::dp_sync, 50, 120),
                       span(Kind::tp_allreduce, 10, 20)};
  const auto found = slices(Json::parse(chrome_trace(traced)).value());
  const auto lane = [&](const char* name) { return number(found.find(name)->second.at("tid")); };
  cr_assert_eq(lane("tp all-reduce"), lane("backward"));
  cr_assert_neq(lane("dp sync"), lane("backward"));
}

Test(trace, names_from_elsewhere_are_quoted) {
  TracedStep traced;
  traced.note = "a \"quoted\"\n\x01 word\\";
  traced.kernels = {{"kernel<\"x\", \xc3\xa4>", 0, 0, 0, 5}};
  const Json trace = Json::parse(chrome_trace(traced)).value();
  cr_assert_eq(text(trace.at("otherData").at("missing")), traced.note);
}

Test(trace, launch_and_work_of_a_region_with_a_stream_are_two_slices) {
  TracedStep traced;
  Span forward = span(Kind::forward, 1000, 2000);
  int stream = 0;
  forward.opening.stream = &stream;
  forward.on_device = true;
  forward.device_began_ns = 500;
  forward.device_ended_ns = 9500;
  traced.step.began_ns = 1000;
  traced.step.spans = {forward};
  const auto found = slices(Json::parse(chrome_trace(traced)).value());
  cr_assert_eq(number(found.find("forward (launch)")->second.at("dur")), 1);
  cr_assert_eq(number(found.find("forward")->second.at("dur")), 9);
  cr_assert_eq(number(found.find("forward")->second.at("ts")), 0.5);
}

Test(trace, a_file_that_cannot_be_written_is_an_error_that_names_it) {
  const auto written = write_file("/proc/no-such-folder/trace.json", "{}");
  cr_assert_not(written.ok());
  cr_assert(written.error().message().find("/proc/no-such-folder/trace.json") == 0);
}

Test(kernel_timeline, has_kernels_by_the_hosts_clock) {
  Library library;
  void (*run)(const char*, std::uint64_t, std::uint64_t, std::uint32_t) = nullptr;
  cr_assert(library.open(SWELL_FAKE_CUPTI).ok());
  cr_assert(library.find({{"fake_kernel", &run}}).ok());
  KernelTimeline timeline;
  run("before", 1'000'001, 1'000'002, 7);
  // The fake's clock stands at 1,000,000 then.
  cr_assert(timeline.start(5'000'000, {"libno-such-cupti.so", SWELL_FAKE_CUPTI}).ok());
  run("gemm", 1'000'100, 1'000'300, 7);
  run("under way", 1'000'400, 0, 7);
  timeline.stop();
  run("after", 1'000'500, 1'000'600, 7);
  const auto kernels = timeline.take();
  cr_assert_eq(kernels.size(), 1);
  cr_assert_eq(kernels[0].name, "gemm");
  cr_assert(kernels[0].device == 3 && kernels[0].stream == 7);
  cr_assert_eq(kernels[0].began_ns, 5'000'100);
  cr_assert_eq(kernels[0].ended_ns, 5'000'300);
  cr_assert(timeline.start(0, {SWELL_FAKE_CUPTI}).ok(), "it can be asked for again");
}

Test(kernel_timeline, the_library_that_is_loaded_is_taken_before_one_that_could_be) {
  const Folder folder;
  const std::string other = folder / "libcupti.so.99";
  fs::copy_file(SWELL_FAKE_CUPTI, other);
  Library loaded;
  int (*subscribe)(void**, void*, void*) = nullptr;
  cr_assert(loaded.open(SWELL_FAKE_CUPTI).ok());
  cr_assert(loaded.find({{"cuptiSubscribe", &subscribe}}).ok());
  KernelTimeline timeline;
  cr_assert(timeline.start(0, {other, SWELL_FAKE_CUPTI}).ok());
  void* subscriber = nullptr;
  cr_assert_eq(subscribe(&subscriber, nullptr, nullptr), 39, "a second CUPTI was loaded");
  timeline.stop();
  timeline.take();
}

Test(kernel_timeline, another_tool_that_holds_cupti_is_said_and_left_alone) {
  Library library;
  void (*hold)(int) = nullptr;
  cr_assert(library.open(SWELL_FAKE_CUPTI).ok());
  cr_assert(library.find({{"fake_hold_cupti", &hold}}).ok());
  hold(1);
  KernelTimeline timeline;
  const auto started = timeline.start(0, {SWELL_FAKE_CUPTI});
  cr_assert_not(started.ok());
  cr_assert(started.error().message().find("torch.profiler") == 0, "%s",
            started.error().message().c_str());
  cr_assert_not(timeline.is_started());
  cr_assert(timeline.take().empty());
  cr_assert_not(KernelTimeline().start(0, {"libno-such-cupti.so"}).ok());
}
