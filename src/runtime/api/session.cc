// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/api/session.h"

#include <cstdlib>

namespace swell::runtime {

Result<std::unique_ptr<Session>> Session::open(const std::string& socket,
                                               std::uint64_t snapshot_every, Stays stays) {
  std::unique_ptr<Session> session(new Session);
  session->snapshot_every_ = snapshot_every;
  session->socket_ = socket;
  if (socket.empty()) return session;
  auto channel = Channel::connect_unix(socket);
  if (!channel) return channel.error();
  auto answer = ask(*channel, Op::open, {}, within(std::chrono::seconds(10)));
  if (!answer) return answer.error();
  auto arena = Arena::map(std::move(answer->fd), ByteReader(answer->body).get<std::uint64_t>());
  if (!arena) return arena.error();
  session->channel_ = std::move(*channel);
  session->arena_ = std::move(*arena);
  // A shim of an earlier version does not know the message, and starts a new program for each
  // generation.
  if (stays != Stays::no) {
    const Op op = stays == Stays::always ? Op::stays : Op::stays_if;
    session->stays_ = session->ask_shim(op, {}, within(std::chrono::seconds(10))).ok();
    if (session->is_lost_) return Error("the shim has left");
  }
  // An older shim does not know this either; then its switches are never made in chunks.
  if (snapshot_every != 0) {
    static_cast<void>(session->ask_shim(Op::takes_snapshots, {}, within(std::chrono::seconds(10))));
    if (session->is_lost_) return Error("the shim has left");
  }
  return session;
}

Result<std::unique_ptr<Session>> Session::next() const {
  auto made = open(socket_, snapshot_every_);
  if (!made) return made.error();
  const auto answer = (*made)->ask_shim(Op::next, {}, within(std::chrono::seconds(10)));
  if (!answer) return answer.error();
  auto variables = read_variables(answer->body);
  if (!variables) return variables.error();
  for (auto& [name, value] : *variables) (*made)->variables_[name] = std::move(value);
  (*made)->stays_ = (*made)->is_next_ = true;
  return made;
}

Result<void> Session::decline(const Error& why) {
  auto told = ask_shim(Op::decline, write_refusal(why), within(std::chrono::seconds(10)));
  // A shim of an earlier version reads only the sentence.
  if (!told && !is_lost_ && why.shortage())
    told = ask_shim(Op::decline, ByteWriter().text(why.message()).take(),
                    within(std::chrono::seconds(10)));
  return told ? Result<void>() : told.error();
}

Result<void> Session::offer() {
  if (auto told = tell_device(); !told) return told;
  if (auto declared = ask_shim(Op::declare, write(entries_), within(std::chrono::seconds(30)));
      !declared)
    return declared.error();
  if (auto sent = channel_.send(static_cast<std::uint16_t>(Op::adopt), {}); !sent) {
    is_lost_ = true;
    return sent;
  }
  has_offered_ = true;
  if (is_next_ && device_ != nullptr) return await_in_thread();
  return {};
}

const char* Session::variable(const std::string& name) const {
  const auto found = variables_.find(name);
  return found != variables_.end() ? found->second.c_str() : std::getenv(name.c_str());
}

Result<void> Session::add(Entry entry) {
  Entry checked = entry;
  if (entry.address == 0) {
    // The arena's tensors have no address yet: the registry's rules are checked with an address
    // that no other tensor has.
    for (const Entry& other : registry_.entries())
      if (!entry.alias_of.empty() && other.tensor.name == entry.alias_of &&
          other.part == entry.part)
        checked.address = other.address;
    if (checked.address == 0) {
      if (auto good = check(entry.part, entry.tensor.shape); !good)
        return good.error().while_doing("tensor " + entry.tensor.name);
      checked.address = next_address_;
      next_address_ += static_cast<std::uint64_t>(entry.bytes());
    }
  } else if (entry.device >= 0) {
    Result<void> good = check(entry.part, entry.tensor.shape);
    if (good.ok())
      good = device_->add_own(entry.address, static_cast<std::uint64_t>(entry.bytes()));
    if (!good) return good.error().while_doing("tensor " + entry.tensor.name);
  }
  if (auto good = registry_.add(std::move(checked)); !good) return good;
  entries_.push_back(std::move(entry));
  return {};
}

Result<Message> Session::ask_shim(Op op, std::string_view body, Deadline deadline, int fd) {
  is_lost_ = true;
  if (auto sent = channel_.send(static_cast<std::uint16_t>(op), body, fd); !sent)
    return sent.error();
  return take_answer(deadline);
}

Result<Message> Session::take_answer(Deadline deadline) {
  is_lost_ = true;
  auto answer = receive_answer(deadline);
  if (!answer) return answer.error();
  is_lost_ = false;
  if (answer->op != kDoneOp) return read_refusal(answer->body);
  return answer;
}

/// Gives each tensor memory of this process.
Result<void> Session::adopt_alone() {
  std::uint64_t total = Extents::kPage;
  for (const Entry& entry : entries_)
    total += Extents::rounded(static_cast<std::uint64_t>(entry.bytes()));
  auto arena = Arena::create(total);
  if (!arena) return arena.error();
  arena_ = std::move(*arena);
  Adopted adopted{0, 0, true, {}};
  std::uint64_t next = Extents::kPage, on_device = 0;
  for (const Entry& entry : entries_) {
    const Memory memory = memory_of(entry);
    if (is_own(memory)) {
      adopted.places.emplace_back(memory, own_place_of(entry));
      continue;
    }
    std::optional<std::uint64_t> at;
    for (std::size_t i = 0; i < adopted.places.size() && !at; ++i)
      if (!entry.alias_of.empty() && entries_[i].tensor.name == entry.alias_of &&
          entries_[i].part == entry.part)
        at = adopted.places[i].second;
    if (!at) {
      const auto bytes = static_cast<std::uint64_t>(entry.bytes());
      if (memory == Memory::device) {
        at = DevicePlace::of(++on_device, 0);
        if (auto taken = device_->take(on_device, bytes); !taken) return taken;
      } else {
        at = next;
        next += Extents::rounded(bytes);
      }
    }
    adopted.places.emplace_back(memory, *at);
  }
  adopted_ = std::move(adopted);
  return {};
}

Result<Adopted> Session::adopt() {
  if (!channel_) {
    if (auto good = adopt_alone(); !good) return good.error();
    return *adopted_;
  }
  if (!has_offered_)
    if (auto offered = offer(); !offered) return offered.error();
  has_offered_ = false;
  if (waiting_.joinable()) waiting_.join();
  const auto answer = take_answer(Deadline::max());
  if (!answer) return answer.error();
  auto adopted = read_adopted(answer->body);
  if (!adopted) return adopted.error();
  if (auto good = check_places(*adopted); !good) return good.error();
  adopted_ = std::move(*adopted);
  // That of this program, or an earlier one.
  seen_beside_ = page().beside.load(std::memory_order_relaxed);
  last_step_ = adopted_->step;
  return *adopted_;
}

void* Session::address(std::string_view name, int index, std::size_t* bytes) const {
  for (std::size_t i = 0; adopted_ && i < entries_.size(); ++i) {
    if (entries_[i].tensor.name != name || index-- > 0) continue;
    if (bytes != nullptr) *bytes = static_cast<std::size_t>(entries_[i].bytes());
    const auto& [memory, at] = adopted_->places[i];
    if (memory == Memory::arena) return arena_->data() + at;
    if (memory == Memory::program) return reinterpret_cast<void*>(at);
    const auto address = device_->address(at, static_cast<std::uint64_t>(entries_[i].bytes()));
    return address ? reinterpret_cast<void*>(*address) : nullptr;
  }
  return nullptr;
}

Result<Session::Action> Session::step(std::uint64_t step) {
  last_step_ = step;
  if (auto observed = profile_.observe(step); !observed) return observed.error();
  if (!channel_) return Action::go_on;
  // In this order, because the shim sets stop_at and then reads step: at least one of both sees the
  // other's value.
  page().passed_ns.store(
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                 std::chrono::nanoseconds(1)),
      std::memory_order_relaxed);
  page().step.store(step);
  const std::uint64_t stop_at = page().stop_at.load();
  if (stop_at != 0 && step >= stop_at) {
    // Launched GPU work is part of the step.
    if (device_ != nullptr)
      if (auto done = device_->device().wait(); !done) return done.error();
    const auto verdict = ask_shim(Op::quiesced, ByteWriter().put(step).take());
    if (!verdict) return verdict.error();
    if (ByteReader(verdict->body).get<std::uint8_t>() != 0) return Action::switched;
  }
  const std::uint64_t request =
      page().request.load(std::memory_order_relaxed) == 0 ? 0 : page().request.exchange(0);
  // A leaving program takes a snapshot at any step, so that the next programs begin at this step.
  if (snapshot_every_ != 0 && (step % snapshot_every_ == 0 || request == kStopRequest)) {
    if (device_ != nullptr)
      if (auto done = device_->device().wait(); !done) return done.error();
    const auto taken = ask_shim(Op::snapshot, ByteWriter().put(step).take());
    // A refused snapshot (for example because the partner is not known yet) is replaced by the next
    // one.
    if (!taken && is_lost_) return taken.error();
  }
  if (request == kStopRequest) return Action::stop;
  if (request == kCheckpointRequest) return Action::checkpoint;
  if (const std::uint64_t next = stays_ ? page().next.load(std::memory_order_relaxed) : 0;
      next != 0 && next != seen_next_) {
    seen_next_ = next;
    return Action::prepare;
  }
  return Action::go_on;
}

bool Session::take_beside() noexcept {
  if (!arena_) return false;
  const std::uint64_t beside = page().beside.load(std::memory_order_relaxed),
                      stop_at = page().stop_at.load(std::memory_order_relaxed);
  const bool begins = beside > std::exchange(seen_beside_, beside);
  const bool stops = stop_at != 0 && stop_at != seen_stop_ && last_step_ + 1 >= stop_at;
  if (stops) seen_stop_ = stop_at;
  return begins || stops;
}

}  // namespace swell::runtime
