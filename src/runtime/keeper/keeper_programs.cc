// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: requests of programs, and the answers to them.
#include <algorithm>
#include <fmt/format.h>

#include "base/mutex.h"
#include "runtime/keeper/keeper.h"

namespace swell::runtime {

namespace {

constexpr std::size_t kMaxProfile = 4096;
constexpr std::size_t kMaxWhy = 400;  // swell_decline() cuts the reason to this length

/// Checks what a program declares against the registry's rules; tensors of the arena get addresses
/// of their own for this check.
Result<void> check_declared(const std::vector<Entry>& entries) {
  Registry registry;
  std::uintptr_t next = std::uintptr_t{1} << 62;
  for (const Entry& declared : entries) {
    Entry entry = declared;
    if (entry.address == 0) {
      for (const Entry& other : registry.entries())
        if (other.tensor.name == entry.alias_of && other.part == entry.part)
          entry.address = other.address;
      if (entry.address == 0) {
        entry.address = next;
        next += static_cast<std::uintptr_t>(entry.bytes());
      }
    }
    if (auto good = registry.add(std::move(entry)); !good) return good;
  }
  return {};
}

/// Checks that the shim can keep the tensors that will stand on a GPU.
Result<void> check_devices(const std::vector<Entry>& entries, bool has_device) {
  for (const Entry& entry : entries) {
    if (entry.device < 0) continue;
    if (!has_device)
      return Error(fmt::format("tensor {}: its program has not named the GPU", entry.tensor.name));
    if (entry.bytes() >= std::int64_t{1} << DevicePlace::kOffsetBits)
      return Error(fmt::format("tensor {} has {} bytes; on a GPU a part has at most 1 TiB",
                               entry.tensor.name, entry.bytes()));
    if (entry.address >= DevicePlace::kOwn)
      return Error(fmt::format("tensor {}: {:#x} is not an address on a GPU", entry.tensor.name,
                               entry.address));
  }
  return {};
}

}  // namespace

Result<std::string> Keeper::declare(Peer& peer, std::string_view body) {
  auto entries = read_entries(body);
  if (!entries) return entries.error();
  if (!peer.is_unix) return Error("programs of other nodes have a shim of their own");
  if (auto good = check_declared(*entries); !good) return good.error();
  if (auto good = check_devices(*entries, peer.proxy != nullptr); !good) return good.error();
  std::byte probe;
  for (const Entry& entry : *entries)
    if (memory_of(entry) == Memory::program)
      if (auto good = Sink::program(peer.pid).read(entry.address, &probe, 1); !good)
        return good.error().while_doing(fmt::format(
            "tensor {} in the program's own memory; without an address it would stand in the arena",
            entry.tensor.name));
  Lock lock(mutex_);
  if (program_ == &peer || peer.has_declared) return Error("a program declares its tensors once");
  peer.entries = std::move(*entries);
  peer.has_declared = true;
  return std::string();
}

Result<std::string> Keeper::take_stays(Peer& peer, Stays stays) {
  Lock lock(mutex_);
  peer.stays = stays;
  return std::string();
}

Result<std::string> Keeper::tell_next(Peer& peer) {
  Lock lock(mutex_);
  if (!next_) return Error("no other generation is prepared here");
  if (program_ == nullptr || program_ == &peer || program_->pid != peer.pid)
    return Error("only the process that trains prepares for another generation");
  peer.next = next_->generation;
  peer.stays = program_->stays;
  return write(next_->variables);
}

/// Answers the coordinator that waits for this process to be ready: it need not wait any longer.
Result<std::string> Keeper::decline(Peer& peer, std::string_view body) {
  ByteReader reader(body);
  std::string text = reader.text(kMaxWhy);
  const auto shortage = get_shortage(reader);
  Lock lock(mutex_);
  if (!reader.done() || text.empty()) return Error("a program that declines a generation says why");
  Error why(std::move(text), shortage);
  // A new program that has not adopted yet: the old one goes on.
  const bool is_new = program_ != nullptr && program_ != &peer && peer.is_unix && peer.next == 0 &&
                      !peer.is_waiting && !peer.leaves;
  if (is_new) {
    peer.declined = std::move(why);
    changed_.notify_all();
    return std::string();
  }
  if (program_ != &peer || !next_)
    return Error(
        "only a program beside one that trains, or one that was told to prepare, can decline a "
        "generation");
  next_->declined = std::move(why);
  changed_.notify_all();
  return std::string();
}

bool Keeper::offer_next(std::uint64_t generation, Variables variables, bool none_is_new) {
  Lock lock(mutex_);
  if (program_ == nullptr || program_->channel.has_left()) return false;
  store_.page().beside = generation;
  if (program_->stays != Stays::always &&
      !(program_->stays == Stays::if_none_is_new && none_is_new))
    return false;
  next_ = Next{generation, std::move(variables), {}};
  store_.page().next = generation;
  return true;
}

void Keeper::withdraw_next() {
  Lock lock(mutex_);
  next_.reset();
  store_.page().next = 0;
  for (auto& peer : peers_) {
    if (!peer->is_waiting || peer->next == 0) continue;
    if (staged_ == nullptr || staged_->program != peer.get()) refuse_waiting(*peer);
    else if (!staged_->is_moved) spoil_staged();
  }
  changed_.notify_all();
}

Result<void> Keeper::adopt(Peer& peer) {
  Lock lock(mutex_);
  if (!peer.has_declared || peer.is_waiting || program_ == &peer)
    return Error("a program adopts once, after it has declared its tensors");
  if (peer.next != 0 && (!next_ || next_->generation != peer.next)) return called_off();
  peer.is_waiting = true;
  if (peer.proxy != nullptr) peer.proxy->tasks().open();
  changed_.notify_all();
  return {};
}

Result<void> Keeper::take_quiesced(Peer& peer, std::string_view body) {
  ByteReader reader(body);
  const auto step = reader.get<std::uint64_t>();
  Lock lock(mutex_);
  if (!reader.done() || program_ != &peer)
    return Error("only the program that trains can stop at a step");
  peer.step = step;
  peer.is_quiesced = true;
  if (peer.proxy != nullptr) peer.proxy->tasks().open();
  changed_.notify_all();
  // The stop may have been cancelled meanwhile, or moved to a later step.
  const std::uint64_t stop_at = store_.page().stop_at;
  if (stop_at == 0 || step < stop_at) answer_quiesced(false);
  else if (agreed_ && agreed_->request != 0) carry_out_request();
  return {};
}

Keeper::Peer* Keeper::waiting_program() {
  for (auto& peer : peers_)
    // The thread of a killed program may not have noticed its death yet.
    if (peer->is_waiting && !peer->channel.has_left()) return peer.get();
  return nullptr;
}

Result<std::string> Keeper::take_profile(const Peer& peer, const std::string& body) {
  std::uint64_t generation = 0;
  {
    Lock lock(mutex_);
    if (program_ != &peer) return Error("only the program that trains reports a profile");
    if (body.size() > kMaxProfile)
      return Error(
          fmt::format("a profile of {} bytes is longer than any is, {}", body.size(), kMaxProfile));
    state_.set_profile(body);
    generation = state_.generation();
  }
  if (options_.on_profile) options_.on_profile(generation, body);
  return std::string();
}

/// Makes a program that waits in adopt the training program, with the tensors of the table. If the
/// program has died since, its thread notices it.
void Keeper::hand_over(Peer& program, std::uint64_t step, bool fresh) {
  Adopted adopted{state_.generation(), step, fresh, {}};
  for (const Held& held : state_.table()) adopted.places.emplace_back(held.memory, held.at);
  program.is_waiting = false;
  program.step = step;
  program_ = &program;
  store_.page().stop_at = 0;
  store_.page().request = 0;
  store_.page().step = step;
  store_.page().next = 0;
  next_.reset();
  agreed_.reset();
  // Call it before the coordinator tells anyone.
  if (options_.on_adopted) options_.on_adopted(state_.generation(), program.pid);
  tell(program, kDoneOp, write(adopted));
  changed_.notify_all();
}

/// Tells the old program to exit, or to go on.
void Keeper::settle_programs(bool committed) {
  agreed_.reset();
  store_.page().stop_at = 0;
  answer_quiesced(committed);
}

/// Answers the program that stands at a boundary, if any; a program that is gone needs no answer.
void Keeper::answer_quiesced(bool committed) {
  if (program_ == nullptr || !std::exchange(program_->is_quiesced, false)) return;
  tell(*program_, kDoneOp, ByteWriter().put<std::uint8_t>(committed).take());
}

/// Tells a program that waits in adopt to exit; one that has died does not receive it.
void Keeper::refuse_waiting(Peer& peer) {
  if (!std::exchange(peer.is_waiting, false)) return;
  tell(peer, kRefusedOp, write_refusal(called_off()));
}

/// Answers a waiting program. If the program is working on its GPU for this shim, or hangs in that,
/// it is answered afterwards: the lock is held here, and others wait for it.
void Keeper::tell(Peer& program, std::uint16_t op, std::string answer) {
  if (program.proxy != nullptr) program.proxy->tasks().close(op, std::move(answer));
  else static_cast<void>(program.channel.send(op, answer));
}

}  // namespace swell::runtime
