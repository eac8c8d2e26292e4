// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/transport/nccl_link.h"

#include <fmt/format.h>
#include <vector>

#include "runtime/wire/messages.h"

namespace swell::runtime {

namespace {

/// Kinds of requests, {kind u8, ...}. The first answer is {}, once the program has the task; the
/// second one, given below, comes once the task is done.
enum class Ask : std::uint8_t {
  about,  ///< {} -> {the GPU's name, its NCCL}; answered at once
  join,   ///< {id text, milliseconds u32} -> {}
  send,   ///< {memory u8, Checksum u8, milliseconds u32, runs} -> {checksum u64}
};
constexpr auto kAnswerTime = std::chrono::seconds(10);
/// The other program may be working for another rank, or for a snapshot.
constexpr auto kTurnTime = std::chrono::seconds(60);

Error refusal(const Message& answer) {
  return read_refusal(answer.body).while_doing("another rank's shim");
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::shared_ptr<NcclLink> link, std::unique_ptr<Transport> otherwise, Memory memory,
                bool is_near)
      : link_(std::move(link)),
        otherwise_(std::move(otherwise)),
        memory_(memory),
        is_near_(is_near),
        name_(std::string(is_near ? "nccl, within a node" : "nccl, between nodes") +
              (memory == Memory::device ? kFromGpu : kFromOwnGpu)) {}
  const char* name() const noexcept override {
    return note_.empty() ? name_.c_str() : otherwise_->name();
  }
  bool crosses_network() const noexcept override { return !is_near_; }
  std::string note() const override {
    return !note_.empty() || !link_->is_joined() ? note_
                                                 : "state of GPUs goes by " + link_->about();
  }
  Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink& sink, Checksum by) override {
    if (note_.empty())
      if (const auto joined = link_->join(); !joined)
        note_ = fmt::format("state of GPUs goes through host memory, not by NCCL: {}",
                            joined.error().message());
    return note_.empty() ? link_->fetch(memory_, runs, by) : otherwise_->fetch(runs, sink, by);
  }

 private:
  const std::shared_ptr<NcclLink> link_;
  const std::unique_ptr<Transport> otherwise_;
  const Memory memory_;
  const bool is_near_;
  const std::string name_;
  std::string note_;  ///< why the other path is used
};

}  // namespace

Result<std::shared_ptr<NcclLink>> NcclLink::connect(Channel channel,
                                                    std::shared_ptr<DeviceProxy> proxy,
                                                    std::uint64_t pair,
                                                    const NcclOptions& options) {
  const auto mine = proxy->tasks().its_nccl();
  if (!mine) return mine.error().while_doing("the new program");
  if (auto sent = channel.send(kNcclOp, ByteWriter().put(Ask::about).take()); !sent)
    return sent.error();
  const auto answer = channel.receive(within(kAnswerTime));
  if (!answer) return answer.error();
  if (answer->op != kDoneOp) return refusal(*answer);
  ByteReader reader(answer->body);
  const std::string gpu = reader.text(256), its = reader.text(4096);
  if (!reader.done()) return Error("what another shim says of NCCL cannot be read");
  if (gpu == proxy->gpu())
    return Error("both programs have the same GPU, of which NCCL takes each once");
  std::shared_ptr<NcclLink> link(new NcclLink(std::move(channel), std::move(proxy), pair, options));
  auto id = link->proxy_->nccl({DeviceTask::Kind::nccl_id});
  if (!id) return id.error().while_doing("the new program");
  link->id_ = std::move(*id);
  link->about_ = *mine == its ? its : fmt::format("{}; there {}", *mine, its);
  return link;
}

/// Has both programs do their part at the same time. The other one is asked first, so that this one
/// does not wait for a program that has not begun. Reads the other shim's messages meanwhile; a bad
/// message ends the work.
Result<Message> NcclLink::together(std::string request, const DeviceTask& task) {
  if (auto sent = channel_.send(kNcclOp, request); !sent) return sent.error();
  const auto begun = channel_.receive(within(kTurnTime));
  if (!begun) return begun.error();
  if (begun->op != kDoneOp) return refusal(*begun);
  std::optional<Result<Message>> answer;
  const auto is_off = [&] {
    if (!answer && channel_.has_news()) answer = channel_.receive(within(kAnswerTime));
    return answer && (!*answer || (*answer)->op != kDoneOp);
  };
  const auto mine = proxy_->nccl(task, {{}, is_off});
  const bool is_refused = is_off();
  if (!mine && !is_refused) {
    channel_.shut();  // the other program stops its work
    return mine.error().while_doing("the new program");
  }
  if (is_refused) {
    const Error theirs = *answer ? refusal(**answer) : answer->error();
    // It is not known which error came first and caused the other.
    return mine ? theirs
                : Error(fmt::format("the new program: {}; {}", mine.error().message(),
                                    theirs.message()));
  }
  if (!answer) answer = channel_.receive(within(kTurnTime));
  if (*answer && (*answer)->op != kDoneOp) return refusal(**answer);
  return std::move(*answer);
}

Result<void> NcclLink::join() {
  if (joined_) return *joined_;
  const auto limit = static_cast<std::uint32_t>(options_.join_limit.count());
  const auto done = together(ByteWriter().put(Ask::join).text(id_).put(limit).take(),
                             {DeviceTask::Kind::nccl_join, pair_, limit, {}, id_, 0});
  joined_ = done ? Result<void>() : done.error();
  return *joined_;
}

Result<std::uint64_t> NcclLink::fetch(Memory memory, std::span<const Run> runs, Checksum by) {
  const auto limit = static_cast<std::uint32_t>(options_.patience.count());
  ByteWriter request;
  request.put(Ask::send).put(memory).put(by).put(limit);
  request.put(static_cast<std::uint32_t>(runs.size()));
  for (const Run& run : runs) request.put(run.from).put(run.bytes);
  const auto done = together(request.take(), {DeviceTask::Kind::nccl_receive, pair_, limit,
                                              std::vector<Run>(runs.begin(), runs.end())});
  if (!done) return done.error();
  ByteReader reader(done->body);
  const auto hash = reader.get<std::uint64_t>();
  if (!reader.done()) return Error("what another shim says of its state cannot be read");
  return hash;
}

std::unique_ptr<Transport> from_nccl(std::shared_ptr<NcclLink> link,
                                     std::unique_ptr<Transport> otherwise, Memory memory,
                                     bool is_near) {
  return std::make_unique<NcclTransport>(std::move(link), std::move(otherwise), memory, is_near);
}

Result<void> serve_nccl(Channel& channel, std::string_view request, const NcclSource& source) {
  const auto refuse = [&](const std::string& why) {
    return channel.send(kRefusedOp, ByteWriter().text(why).take());
  };
  if (source.proxy == nullptr) return refuse("no program trains here that has a GPU");
  DeviceProxy& proxy = *source.proxy;
  ByteReader reader(request);
  const auto ask = static_cast<Ask>(reader.get<std::uint8_t>());
  if (ask == Ask::about && reader.done()) {
    const auto its = proxy.tasks().its_nccl();
    if (!its) return refuse(its.error().message());
    return channel.send(kDoneOp, ByteWriter().text(proxy.gpu()).text(*its).take());
  }
  DeviceTask task{DeviceTask::Kind::nccl_join, source.pair};
  auto by = Checksum::none;
  auto memory = Memory::device;
  if (ask == Ask::join) {
    task.id = reader.text(4096);
    task.rank = 1;
    task.bytes = reader.get<std::uint32_t>();
  } else if (ask == Ask::send) {
    task.kind = DeviceTask::Kind::nccl_send;
    memory = static_cast<Memory>(reader.get<std::uint8_t>());
    by = wanted_checksum(reader.get<std::uint8_t>());
    task.bytes = reader.get<std::uint32_t>();
    task.runs.resize(reader.count(16));
    for (Run& run : task.runs) {
      run.from = run.to = reader.get<std::uint64_t>();
      run.bytes = reader.get<std::uint64_t>();
    }
  } else {
    reader.fail();
  }
  if (!reader.done()) return refuse("a request of NCCL's cannot be read");
  for (const Run& run : task.runs)
    if (!is_on_gpu(memory) || run.bytes == 0 || !source.allowed(run, memory))
      return refuse(fmt::format("{} bytes at {} are not of this state", run.bytes, run.from));
  std::uint64_t hash = 0;
  if (by != Checksum::none) {
    const auto made = Sink::device(proxy).hash_of(task.runs, by);
    if (!made) return refuse(made.error().message());
    hash = *made;
  }
  // Any message from the asking side before the end means that it has left.
  Result<void> told;
  const auto done = proxy.nccl(task, {[&] { told = channel.send(kDoneOp, {}); },
                                      [&] { return !told.ok() || channel.has_news(); }});
  if (!told) return told;
  if (!done) return refuse(done.error().message());
  return channel.send(kDoneOp, ask == Ask::send ? ByteWriter().put(hash).take() : std::string());
}

}  // namespace swell::runtime
