// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/transport/ucx_link.h"

#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <set>
#include <sys/random.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/byte_message.h"
#include "runtime/transport/ucx_functions.h"

namespace swell::runtime {

using namespace ucx;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxAddress = 65536;
constexpr std::size_t kWindow = 16;  ///< messages under way at once
/// Large enough to be sent the way that large messages are.
constexpr std::size_t kTried = 1 << 18;

/// Returns the transports in UCX's description of an endpoint: "tcp", "sysv+cma".
std::string transports_of(std::string_view printed) {
  std::string names;
  std::set<std::string> seen;
  for (std::size_t at = 0; (at = printed.find("lane[", at)) != printed.npos; ++at) {
    const std::string_view line = printed.substr(at, printed.find('\n', at) - at);
    const auto slash = line.find('/');
    if (slash == line.npos) continue;
    const auto begin = line.find_last_of(": ", slash) + 1;
    std::string name(line.substr(begin, slash - begin));
    if (name.empty() || !seen.insert(name).second) continue;
    names += names.empty() ? name : "+" + name;
  }
  return names;
}

bool is_readable(const Channel& channel) {
  pollfd polled{channel.fd(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

/// Returns byte `i` of the test data.
std::byte tried(std::size_t i) noexcept { return static_cast<std::byte>(i * 31 + (i >> 8)); }

}  // namespace

Result<std::string> UcxLink::open() {
  const auto& ucx = ucx_->functions_;
  WorkerParams params;
  params.field_mask = WorkerParams::kThreadMode;
  params.thread_mode = WorkerParams::kSerialized;
  if (const Status status = ucx.make_worker(ucx_->context_, &params, &worker_); status != kOk) {
    worker_ = nullptr;
    return Error(fmt::format("making a worker of UCX: {}", ucx.to_text(status)));
  }
  void* address = nullptr;
  std::size_t bytes = 0;
  if (const Status status = ucx.get_address(worker_, &address, &bytes); status != kOk)
    return Error(fmt::format("asking UCX for its address: {}", ucx.to_text(status)));
  std::string copy(static_cast<const char*>(address), bytes);
  ucx.release_address(worker_, address);
  patience_ = ucx_->options_.meet_limit;
  return copy;
}

Result<void> UcxLink::join(std::string_view address) {
  const auto& ucx = ucx_->functions_;
  EndpointParams params;
  params.field_mask = EndpointParams::kRemoteAddress;
  params.address = address.data();
  if (const Status status = ucx.make_endpoint(worker_, &params, &endpoint_); status != kOk) {
    endpoint_ = nullptr;
    return Error(fmt::format("UCX finds no way to the other end: {}", ucx.to_text(status)));
  }
  return {};
}

Result<std::unique_ptr<UcxLink>> UcxLink::connect(std::shared_ptr<const Ucx> ucx,
                                                  Channel& channel) {
  std::unique_ptr<UcxLink> link(new UcxLink(std::move(ucx), channel));
  const auto own = link->open();
  if (!own) return own.error();
  if (auto sent = channel.send(kUcxOp, ByteWriter().text(*own).take()); !sent) return sent.error();
  const auto answer = channel.receive(within(link->patience_));
  if (!answer) return answer.error();
  ByteReader reader(answer->body);
  if (answer->op != kDoneOp) return Error(reader.text(4096));
  link->tag_ = reader.get<std::uint64_t>();
  const std::string theirs = reader.text(kMaxAddress);
  Result<void> good;
  if (!reader.done() || theirs.empty()) good = Error("the other end gave no address of UCX");
  if (good.ok()) good = link->join(theirs);
  if (good.ok()) good = link->receive_trial();
  // The other end waits for the answer.
  const auto told =
      good ? channel.send(kDoneOp, {})
           : channel.send(kRefusedOp, ByteWriter().text(good.error().message()).take());
  if (!told) return told.error();
  if (!good) return good.error();
  link->begin_work();
  return link;
}

Result<std::unique_ptr<UcxLink>> UcxLink::accept(std::shared_ptr<const Ucx> ucx, Channel& channel,
                                                 std::string_view request) {
  std::unique_ptr<UcxLink> link(new UcxLink(std::move(ucx), channel));
  ByteReader reader(request);
  const std::string theirs = reader.text(kMaxAddress);
  const auto refuse = [&](const std::string& why) -> Result<std::unique_ptr<UcxLink>> {
    if (auto sent = channel.send(kRefusedOp, ByteWriter().text(why).take()); !sent)
      return sent.error();
    return std::unique_ptr<UcxLink>();
  };
  if (!reader.done() || theirs.empty()) return refuse("a request for UCX cannot be read");
  const auto own = link->open();
  if (!own) return refuse(own.error().message());
  if (getrandom(&link->tag_, sizeof link->tag_, 0) != sizeof link->tag_)
    return refuse("no random numbers are to be had");
  if (auto joined = link->join(theirs); !joined) return refuse(joined.error().message());
  if (auto sent = channel.send(kDoneOp, ByteWriter().put(link->tag_).text(*own).take()); !sent)
    return sent.error();
  if (auto good = link->send_trial(); !good) {
    if (channel.has_left()) return good.error();
    return std::unique_ptr<UcxLink>();
  }
  link->begin_work();
  return link;
}

/// Sends data with which the other end tests the connection; it is large enough to be sent like
/// real data. Returns when the other end has sent something.
Result<void> UcxLink::send_trial() {
  std::vector<std::byte> bytes(kTried);
  for (std::size_t i = 0; i < kTried; ++i) bytes[i] = tried(i);
  auto good = send(bytes);
  const auto end = Clock::now() + 2 * patience_;
  // Messages arrive only while both ends call UCX.
  for (unsigned idle = 0; good.ok() && !is_readable(channel_);) {
    progress(idle);
    if (Clock::now() > end) good = Error("the other end does not say whether UCX reached it");
  }
  if (!good) {
    give_up();  // cancel before its memory is freed
    return good;
  }
  const auto verdict = channel_.receive(within(patience_));
  if (!verdict || verdict->op != kDoneOp) {
    give_up();
    if (!verdict) return verdict.error();
    return Error(ByteReader(verdict->body).text(4096));
  }
  good = flush();
  if (!good) give_up();
  return good;
}

Result<void> UcxLink::receive_trial() {
  std::vector<std::byte> bytes(kTried);
  auto good = receive(bytes);
  if (good.ok()) good = flush();
  if (!good) {
    give_up();  // cancel before its memory is freed
    return good;
  }
  for (std::size_t i = 0; i < kTried; ++i)
    if (bytes[i] != tried(i)) return Error("UCX delivered other bytes than were sent");
  return {};
}

/// Begins real work: the test has passed.
void UcxLink::begin_work() {
  char* text = nullptr;
  std::size_t size = 0;
  if (std::FILE* file = open_memstream(&text, &size); file != nullptr) {
    ucx_->functions_.print_endpoint(endpoint_, file);
    std::fclose(file);
    name_ = transports_of({text, size});
    std::free(text);
  }
  name_ = name_.empty() ? "ucx" : "ucx " + name_;
  patience_ = ucx_->options_.patience;
}

/// Lets UCX work. Returns whether data has moved.
bool UcxLink::progress(unsigned& idle) const {
  if (ucx_->functions_.progress(worker_) != 0) {
    idle = 0;
    return true;
  }
  // The other end may be waiting for this core, or for a disk.
  if (++idle > 4096) std::this_thread::sleep_for(std::chrono::microseconds(50));
  else if (idle > 64) sched_yield();
  return false;
}

Result<void> UcxLink::begin(void* request, std::size_t bytes, bool is_incoming) {
  if (is_error(request))
    return Error(fmt::format("UCX: {}", ucx_->functions_.to_text(error_of(request))));
  if (request != nullptr) under_way_.push_back({request, bytes, is_incoming});
  return {};
}

Result<void> UcxLink::send(std::span<const std::byte> bytes) {
  if (under_way_.size() == kWindow)
    if (auto good = finish_first(); !good) return good;
  RequestParams params;
  params.op_attr_mask = RequestParams::kMemoryType;
  return begin(ucx_->functions_.send(endpoint_, bytes.data(), bytes.size(), tag_, &params),
               bytes.size(), false);
}

Result<void> UcxLink::receive(std::span<std::byte> bytes) {
  if (under_way_.size() == kWindow)
    if (auto good = finish_first(); !good) return good;
  RequestParams params;
  // Only a request says how many bytes have arrived.
  params.op_attr_mask = RequestParams::kMemoryType | RequestParams::kNotAtOnce;
  return begin(
      ucx_->functions_.receive(worker_, bytes.data(), bytes.size(), tag_, UINT64_MAX, &params),
      bytes.size(), true);
}

Result<void> UcxLink::finish_first() {
  const auto& ucx = ucx_->functions_;
  const Message message = under_way_.front();
  auto end = Clock::now() + patience_;
  Status status = kOk;
  Received received;
  unsigned idle = 0;
  for (unsigned turns = 1;; ++turns) {
    status = message.is_incoming ? ucx.check_received(message.request, &received)
                                 : ucx.check(message.request);
    if (status != kInProgress) break;
    const bool moves = progress(idle);
    if (turns % 256 != 0) continue;
    if (moves) end = Clock::now() + patience_;
    if (channel_.has_left()) return Error("the other side has left");
    if (Clock::now() > end)
      return Error(fmt::format("UCX has moved nothing for {} ms", patience_.count()));
  }
  under_way_.pop_front();
  ucx.free(message.request);
  if (status != kOk) return Error(fmt::format("UCX: {}", ucx.to_text(status)));
  if (message.is_incoming && received.length != message.bytes)
    return Error(
        fmt::format("UCX delivered {} bytes; {} were asked for", received.length, message.bytes));
  return {};
}

Result<void> UcxLink::flush() {
  while (!under_way_.empty())
    if (auto good = finish_first(); !good) return good;
  return {};
}

/// Cancels transfers under way: afterwards nothing is written into their memory.
void UcxLink::give_up() noexcept {
  const auto& ucx = ucx_->functions_;
  for (const Message& message : under_way_)
    if (message.is_incoming) ucx.cancel(worker_, message.request);
  for (const Message& message : under_way_) {
    for (int turns = 0; turns < 1000 && ucx.check(message.request) == kInProgress; ++turns)
      ucx.progress(worker_);
    ucx.free(message.request);
  }
  under_way_.clear();
  if (worker_ != nullptr) ucx.destroy_worker(std::exchange(worker_, nullptr));
  endpoint_ = nullptr;
}

UcxLink::~UcxLink() { give_up(); }

}  // namespace swell::runtime
