// SPDX-License-Identifier: BSD-3-Clause
// Part of the session: tensors on a GPU, and the tasks that the shim gives for that GPU.
#include <fmt/format.h>

#include "runtime/api/session.h"
#include "runtime/quiet_thread.h"

namespace swell::runtime {

Session::~Session() {
  if (!waiting_.joinable()) return;
  channel_.shut();
  waiting_.join();
}

Result<void> Session::use_device(int ordinal, bool shares) {
  if (device_ != nullptr && device_->device().ordinal() != ordinal)
    return Error(
        fmt::format("tensors of this session are on GPU {} already; one GPU a session, not "
                    "GPU {} too",
                    device_->device().ordinal(), ordinal));
  if (device_ == nullptr) {
    auto opened = DeviceState::open(ordinal);
    if (!opened) return opened.error();
    device_ = std::move(*opened);
  }
  return shares ? device_->device().check_sharing() : Result<void>();
}

/// Names the GPU to the shim, which then keeps the tensors that stand there.
Result<void> Session::tell_device() {
  if (device_ == nullptr) return {};
  const Device& device = device_->device();
  // Launched work on the program's own memory must not overwrite the incoming state.
  if (device_->has_own())
    if (auto done = device.wait(); !done) return done;
  const auto told =
      ask_shim(Op::device, ByteWriter().text(device.gpu()).put(device.granularity()).take(),
               within(std::chrono::seconds(30)));
  if (!told) return told.error().while_doing("memory of a GPU");
  ByteReader reader(told->body);  // shims of an earlier version send an empty body
  const auto staging = reader.get<std::uint64_t>(), bytes = reader.get<std::uint64_t>();
  if (reader.done() && bytes > 0 && arena_->has(staging, bytes))
    device_->stage_in({arena_->data() + staging, bytes});
  return tell_own();
}

/// Tells the shim how other programs map the memory that this one has allocated on its GPU. If they
/// cannot map it, or the shim is of an earlier version, the memory is copied through this program.
Result<void> Session::tell_own() {
  if (!device_->has_own()) return {};
  // Without an answer the memory that was told of is mapped, and the rest is copied.
  const auto all = device_->each_own_share([&](const OwnShare& share) -> Result<void> {
    const auto told = ask_shim(Op::own_share, write(share), within(std::chrono::seconds(10)),
                               share.fd != nullptr ? share.fd->get() : -1);
    return told ? Result<void>() : told.error();
  });
  return is_lost_ ? all : Result<void>();
}

/// Receives the answer to a question. Until it comes, the shim may give tasks for the GPU.
Result<Message> Session::receive_answer(Deadline deadline) {
  if (answer_) {
    Result<Message> answer = std::move(*answer_);
    answer_.reset();
    return answer;
  }
  for (;;) {
    auto message = channel_.receive(deadline);
    if (device_ == nullptr) return message;
    if (!message || message->op != kTaskOp) {
      device_->end_service();
      return message;
    }
    if (auto said = device_->serve(channel_, *message, *arena_); !said) return said.error();
  }
}

/// Waits in a thread, while the process trains on with another session.
Result<void> Session::await_in_thread() {
  auto thread = quiet_thread([this] {
    try {
      auto answer = receive_answer(Deadline::max());
      // The generation was cancelled: the program may keep this session until it must prepare
      // again.
      if (!answer || answer->op != kDoneOp) device_->drop();
      answer_ = std::move(answer);
    } catch (const std::exception& problem) { answer_ = Error(problem.what()); }
  });
  if (!thread) return thread.error();
  waiting_ = std::move(*thread);
  return {};
}

/// Checks that each tensor got a place in the kind of memory for which it was declared.
Result<void> Session::check_places(const Adopted& adopted) const {
  if (adopted.places.size() != entries_.size())
    return Error("the shim gave another number of tensors than were registered");
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& [memory, at] = adopted.places[i];
    const auto bytes = static_cast<std::uint64_t>(entries_[i].bytes());
    const bool is_right =
        memory == memory_of(entries_[i]) && (!is_own(memory) || at == own_place_of(entries_[i]));
    if (!is_right || (memory == Memory::arena && !arena_->has(at, bytes)))
      return Error("the shim gave tensor " + entries_[i].tensor.name +
                   " a place outside of its memory");
    if (is_on_gpu(memory))
      if (const auto there = device_->address(at, bytes); !there)
        return there.error().while_doing("tensor " + entries_[i].tensor.name);
  }
  return {};
}

}  // namespace swell::runtime
