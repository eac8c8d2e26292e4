// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

namespace swell::profiler {

namespace {

std::string quoted(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') made += fmt::format("\\{}", c);
    else if (code < 0x20 || code >= 0x7f) made += fmt::format("\\u{:04x}", code);
    else made += c;
  }
  return made + '"';
}

struct Slice {
  std::string name, args;
  std::int64_t began_ns, ended_ns;
};

/// Writes tracks. Splits each into as many lanes as its slices need in order to nest.
class Writer {
 public:
  Writer(int rank, std::int64_t zero_ns) : rank_(rank), zero_ns_(zero_ns) {
    add(fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})",
                    rank_, rank_));
  }
  void track(const std::string& name, std::vector<Slice> slices) {
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return a.began_ns != b.began_ns ? a.began_ns < b.began_ns : a.ended_ns > b.ended_ns;
    });
    std::vector<std::vector<std::int64_t>> lanes;  // ends of the slices that are open on each lane
    const int first = next_thread_;
    for (const Slice& slice : slices) {
      std::size_t lane = 0;
      for (; lane < lanes.size(); ++lane) {
        auto& open = lanes[lane];
        while (!open.empty() && open.back() <= slice.began_ns) open.pop_back();
        if (open.empty() || open.back() >= slice.ended_ns) break;
      }
      if (lane == lanes.size()) {
        lanes.emplace_back();
        add(fmt::format(
            R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", rank_,
            first + static_cast<int>(lane),
            quoted(lane == 0 ? name : fmt::format("{}, beside", name))));
      }
      lanes[lane].push_back(slice.ended_ns);
      add(fmt::format(
          R"({{"name":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
          quoted(slice.name), rank_, first + static_cast<int>(lane), us(slice.began_ns),
          static_cast<double>(slice.ended_ns - slice.began_ns) / 1e3, slice.args));
    }
    next_thread_ += std::max<int>(1, static_cast<int>(lanes.size()));
  }
  void memory(std::int64_t at_ns, std::uint64_t bytes) {
    add(fmt::format(R"({{"name":"allocated","ph":"C","pid":{},"ts":{:.3f},"args":{{"bytes":{}}}}})",
                    rank_, us(at_ns), bytes));
  }
  std::string finish(const std::string& other) {
    return "{\"displayTimeUnit\":\"ms\",\"otherData\":{" + other + "},\"traceEvents\":[\n" + text_ +
           "\n]}\n";
  }

 private:
  double us(std::int64_t at_ns) const { return static_cast<double>(at_ns - zero_ns_) / 1e3; }
  void add(const std::string& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event;
  }
  const int rank_;
  const std::int64_t zero_ns_;
  int next_thread_ = 0;
  std::string text_;
};

std::string args_of(const Span& span) {
  std::string args;
  const auto say = [&](const char* name, auto value, bool is_known) {
    if (is_known) args += fmt::format("{}\"{}\":{}", args.empty() ? "" : ",", name, value);
  };
  const Opening& opening = span.opening;
  say("stage", opening.stage, opening.stage >= 0);
  say("micro_batch", opening.micro_batch, opening.micro_batch >= 0);
  say("first_layer", opening.first_layer, opening.first_layer >= 0);
  say("layers", opening.layers, opening.layers > 0);
  say("allocated_before", opening.allocated_bytes, opening.allocated_bytes > 0);
  say("allocated_after", span.allocated_bytes, span.allocated_bytes > 0);
  return args;
}

}  // namespace

std::string chrome_trace(const TracedStep& traced) {
  const Step& step = traced.step;
  Writer writer(traced.rank, step.began_ns);
  std::map<std::uint32_t, std::vector<Slice>> threads;
  std::map<const void*, std::vector<Slice>> streams;
  // It is not known what the device's clock was when its first region was opened, so the host's
  // time of that opening is used.
  std::int64_t base_ns = step.began_ns;
  for (auto span = step.spans.rbegin(); span != step.spans.rend(); ++span)
    if (span->on_device) base_ns = span->began_ns;
  for (const Span& span : step.spans) {
    if (!span.is_closed()) continue;
    const std::string name = name_of(span.opening.kind), args = args_of(span);
    threads[span.thread].push_back(
        {span.on_device ? name + " (launch)" : name, args, span.began_ns, span.ended_ns});
    if (span.on_device)
      streams[span.opening.stream].push_back(
          {name, args, base_ns + span.device_began_ns, base_ns + span.device_ended_ns});
    if (span.opening.allocated_bytes > 0)
      writer.memory(span.began_ns, span.opening.allocated_bytes);
    if (span.allocated_bytes > 0) writer.memory(span.ended_ns, span.allocated_bytes);
  }
  for (auto& [thread, slices] : threads)
    writer.track(fmt::format("thread {}", thread), std::move(slices));
  int number = 0;
  for (auto& [stream, slices] : streams)
    writer.track(fmt::format("stream {}", number++), std::move(slices));
  std::vector<Slice> enqueued;
  for (const nccl::Operation& operation : traced.operations)
    enqueued.push_back(
        {operation.function,
         fmt::format("\"bytes\":{},\"ranks\":{},\"device_us\":{:.3f}", operation.bytes,
                     operation.ranks, static_cast<double>(operation.device_ns) / 1e3),
         operation.enqueued_ns, operation.returned_ns});
  if (!enqueued.empty()) writer.track("NCCL, enqueued", std::move(enqueued));
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Slice>> kernels;
  for (const Kernel& kernel : traced.kernels)
    kernels[{kernel.device, kernel.stream}].push_back(
        {kernel.name, "", kernel.began_ns, kernel.ended_ns});
  for (auto& [where, slices] : kernels)
    writer.track(fmt::format("kernels of device {}, stream {}", where.first, where.second),
                 std::move(slices));
  std::string other = fmt::format("\"step\":{},\"step_us\":{:.3f}", step.number,
                                  static_cast<double>(step.ended_ns - step.began_ns) / 1e3);
  if (!traced.note.empty()) other += ",\"missing\":" + quoted(traced.note);
  return writer.finish(other);
}

Result<void> write_file(const std::string& path, const std::string& text) {
  const std::string half = fmt::format("{}.{}.half", path, getpid());
  std::FILE* file = std::fopen(half.c_str(), "we");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int why = errno;
  if (file != nullptr && std::fclose(file) != 0 && good) {
    why = errno;
    good = false;
  }
  if (good && std::rename(half.c_str(), path.c_str()) != 0) {
    why = errno;
    good = false;
  }
  if (good) return {};
  static_cast<void>(unlink(half.c_str()));
  return Error(fmt::format("{} cannot be written: {}", path, std::strerror(why)));
}

std::string path_of_rank(const std::string& path, int rank) {
  const auto dot = path.rfind('.'), slash = path.rfind('/');
  const bool has_extension =
      dot != std::string::npos && dot > 0 && (slash == std::string::npos || dot > slash + 1);
  const std::string number = fmt::format(".{}", rank);
  return has_extension ? path.substr(0, dot) + number + path.substr(dot) : path + number;
}

}  // namespace swell::profiler
