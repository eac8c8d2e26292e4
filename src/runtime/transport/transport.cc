// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/transport/transport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/uio.h>
#include <utility>
#include <vector>

#include "base/byte_message.h"
#include "runtime/wire/word_hash.h"

namespace swell::runtime {

namespace {

using Move = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

Result<void> between(Move move, const char* what, pid_t pid, std::uint64_t at, std::byte* bytes,
                     std::size_t count) {
  while (count > 0) {
    iovec here{bytes, count}, there{reinterpret_cast<void*>(at), count};
    const ssize_t done = move(pid, &here, 1, &there, 1, 0);
    if (done <= 0)
      return Error(fmt::format("{} {} bytes of process {}'s memory: {}", what, count, pid,
                               done == 0 ? "nothing was moved" : std::strerror(errno)));
    bytes += done;
    at += static_cast<std::uint64_t>(done);
    count -= static_cast<std::size_t>(done);
  }
  return {};
}

/// Calls each(piece) for pieces of at most kStaging bytes.
template <typename Each>
Result<void> in_pieces(const Run& run, Each&& each) {
  for (std::uint64_t done = 0; done < run.bytes;) {
    const Run piece{run.from + done, run.to + done,
                    std::min<std::uint64_t>(Transport::kStaging, run.bytes - done)};
    if (auto good = each(piece); !good) return good.error();
    done += piece.bytes;
  }
  return {};
}

/// Calls each() for parts of at most kStaging bytes: a link's messages.
template <typename Bytes, typename Each>
Result<void> in_messages(Bytes bytes, Each&& each) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(Transport::kStaging, bytes.size());
    if (auto good = each(bytes.first(count)); !good) return good;
    bytes = bytes.subspan(count);
  }
  return {};
}

/// Returns the first byte of a request, which shims of an earlier version read as a flag for the
/// program's memory.
std::uint8_t wire_of(Memory memory) {
  return memory == Memory::arena     ? 0
         : memory == Memory::program ? 1
         : memory == Memory::device  ? 2
                                     : 3;
}

std::string name_of(const DataLink* link, Memory memory, bool is_near) {
  const std::string way = link != nullptr             ? link->name()
                          : !is_near                  ? "tcp"
                          : is_on_gpu(memory)         ? kThroughHost
                          : memory == Memory::program ? kTcpToProgram
                                                      : kTcpWithinNode;
  return memory == Memory::device           ? way + kFromGpu
         : memory == Memory::program_device ? way + kFromOwnGpu
                                            : way;
}

class MappedTransport final : public Transport {
 public:
  explicit MappedTransport(std::shared_ptr<const Arena> arena) : arena_(std::move(arena)) {}
  const char* name() const noexcept override { return "mapped arena"; }
  // Source, copy and both checksums share the second-level cache: memory is read once.
  std::uint64_t piece_bytes() const noexcept override { return std::uint64_t{256} << 10; }
  bool is_parallel() const noexcept override { return true; }
  Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink& sink, Checksum by) override {
    RunHash hash(by, runs);
    for (const Run& run : runs) {
      if (!arena_->has(run.from, run.bytes))
        return Error(fmt::format("{} bytes at {} are outside of the arena", run.bytes, run.from));
      const std::byte* source = arena_->data() + run.from;
      if (auto good = sink.write(run.to, source, run.bytes); !good) return good.error();
      hash.add(source, run.bytes);
    }
    return hash.value();
  }

 private:
  std::shared_ptr<const Arena> arena_;
};

class ProgramTransport final : public Transport {
 public:
  explicit ProgramTransport(pid_t pid) : source_(Sink::program(pid)), staging_(kStaging) {}
  const char* name() const noexcept override { return "process_vm_readv"; }
  Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink& sink, Checksum by) override {
    RunHash hash(by, runs);
    for (const Run& run : runs) {
      const auto good = in_pieces(run, [&](const Run& piece) -> Result<void> {
        std::byte* direct = sink.direct(piece.to, piece.bytes);
        std::byte* target = direct != nullptr ? direct : staging_.data();
        if (auto read = source_.read(piece.from, target, piece.bytes); !read) return read;
        hash.add(target, piece.bytes);
        return direct != nullptr ? Result<void>()
                                 : sink.write(piece.to, staging_.data(), piece.bytes);
      });
      if (!good) return good.error();
    }
    return hash.value();
  }

 private:
  Sink source_;
  std::vector<std::byte> staging_;
};

class NetworkTransport final : public Transport {
 public:
  NetworkTransport(std::shared_ptr<Channel> channel, std::unique_ptr<DataLink> link, Memory memory,
                   bool is_near)
      : channel_(std::move(channel)),
        link_(std::move(link)),
        name_(name_of(link_.get(), memory, is_near)),
        memory_(memory),
        is_near_(is_near),
        staging_(kStaging) {}
  const char* name() const noexcept override { return name_.c_str(); }
  bool crosses_network() const noexcept override { return !is_near_; }
  Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink& sink, Checksum by) override {
    ByteWriter request;
    request.put(wire_of(memory_)).put(by).put(static_cast<std::uint32_t>(runs.size()));
    for (const Run& run : runs) request.put(run.from).put(run.bytes);
    if (is_broken_) return Error("this way has failed before");
    if (auto sent = channel_->send(kReadOp, request.take()); !sent) return sent.error();
    const auto answer = channel_->receive(within(std::chrono::seconds(60)));
    if (!answer) return answer.error();
    if (answer->op != kDoneOp)
      return Error(ByteReader(answer->body).text(4096)).while_doing("another node's shim");
    Result<void> come;
    if (sink.is_device() && link_ == nullptr) {
      come = sink.device().write(runs, [&](std::span<std::byte> piece) {
        return channel_->receive_bytes(piece.data(), piece.size(),
                                       within(std::chrono::seconds(60)));
      });
    } else {
      for (const Run& run : runs)
        if (come.ok()) come = take(run, sink);
    }
    if (come.ok() && link_ != nullptr) come = link_->flush();
    if (!come) {
      // No byte may be written any more: the memory may be given to another tensor.
      is_broken_ = true;
      link_.reset();
      return come.error();
    }
    std::uint64_t senders = 0;
    if (auto read =
            channel_->receive_bytes(&senders, sizeof senders, within(std::chrono::seconds(60)));
        !read)
      return read.error();
    return senders;
  }

 private:
  Result<void> take(const Run& run, const Sink& sink) {
    // Run by run, so that messages are cut like the sender's.
    if (sink.is_device())
      return sink.device().write({&run, 1}, [&](std::span<std::byte> piece) {
        auto come =
            in_messages(piece, [&](std::span<std::byte> one) { return link_->receive(one); });
        return come.ok() ? link_->flush() : come;
      });
    return in_pieces(run, [&](const Run& piece) -> Result<void> {
      std::byte* const direct = sink.direct(piece.to, piece.bytes);
      std::byte* const target = direct != nullptr ? direct : staging_.data();
      Result<void> come =
          link_ != nullptr
              ? link_->receive({target, piece.bytes})
              : channel_->receive_bytes(target, piece.bytes, within(std::chrono::seconds(60)));
      if (!come.ok() || direct != nullptr) return come;
      if (link_ != nullptr)
        if (come = link_->flush(); !come) return come;
      return sink.write(piece.to, staging_.data(), piece.bytes);
    });
  }

  std::shared_ptr<Channel> channel_;
  std::unique_ptr<DataLink> link_;
  const std::string name_;
  const Memory memory_;
  const bool is_near_;
  bool is_broken_ = false;
  std::vector<std::byte> staging_;
};

}  // namespace

Result<void> Sink::write(std::uint64_t at, const std::byte* bytes, std::size_t count) const {
  if (device_ != nullptr) return device_->write(at, bytes, count);
  if (arena_ == nullptr)
    return between(&process_vm_writev, "writing", pid_, at, const_cast<std::byte*>(bytes), count);
  if (!arena_->has(at, count))
    return Error(fmt::format("{} bytes at {} are outside of the arena", count, at));
  std::memcpy(arena_->data() + at, bytes, count);
  return {};
}

Result<void> Sink::read(std::uint64_t at, std::byte* bytes, std::size_t count) const {
  if (device_ != nullptr) return device_->read(at, bytes, count);
  if (arena_ == nullptr) return between(&process_vm_readv, "reading", pid_, at, bytes, count);
  if (!arena_->has(at, count))
    return Error(fmt::format("{} bytes at {} are outside of the arena", count, at));
  std::memcpy(bytes, arena_->data() + at, count);
  return {};
}

Result<std::uint64_t> Sink::hash_of(std::span<const Run> runs, Checksum by) const {
  if (device_ != nullptr && by == Checksum::words)
    if (auto made = device_->word_hash(runs)) return made;
  RunHash hash(by, runs);
  if (device_ != nullptr) {
    const auto good = device_->read(runs, [&](std::span<const std::byte> piece) -> Result<void> {
      hash.add(piece.data(), piece.size());
      return {};
    });
    if (!good) return good.error();
    return hash.value();
  }
  std::vector<std::byte> staging;
  for (const Run& run : runs) {
    if (const std::byte* bytes = direct(run.to, run.bytes)) {
      hash.add(bytes, run.bytes);
      continue;
    }
    staging.resize(std::max<std::size_t>(staging.size(),
                                         std::min<std::uint64_t>(Transport::kStaging, run.bytes)));
    const auto good = in_pieces(run, [&](const Run& piece) -> Result<void> {
      if (auto got = read(piece.to, staging.data(), piece.bytes); !got) return got;
      hash.add(staging.data(), piece.bytes);
      return {};
    });
    if (!good) return good.error();
  }
  return hash.value();
}

std::unique_ptr<Transport> from_mapped(std::shared_ptr<const Arena> arena) {
  return std::make_unique<MappedTransport>(std::move(arena));
}
std::unique_ptr<Transport> from_program(pid_t pid) {
  return std::make_unique<ProgramTransport>(pid);
}
std::unique_ptr<Transport> from_network(std::shared_ptr<Channel> channel, Memory memory,
                                        bool is_near) {
  return std::make_unique<NetworkTransport>(std::move(channel), nullptr, memory, is_near);
}
std::unique_ptr<Transport> from_link(std::shared_ptr<Channel> channel,
                                     std::unique_ptr<DataLink> link, Memory memory) {
  return std::make_unique<NetworkTransport>(std::move(channel), std::move(link), memory, false);
}

Memory wanted_memory(std::string_view request) noexcept {
  if (request.empty() || request.front() == 0) return Memory::arena;
  return request.front() == 1   ? Memory::program
         : request.front() == 2 ? Memory::device
                                : Memory::program_device;
}

Checksum wanted_checksum(std::uint8_t said) noexcept {
  return said == 0                                            ? Checksum::none
         : said == static_cast<std::uint8_t>(Checksum::words) ? Checksum::words
                                                              : Checksum::xxhash;
}

Result<void> serve_bytes(Channel& channel, std::string_view request, const Sink& source,
                         const std::function<bool(const Run&)>& allowed, DataLink* link) {
  ByteReader reader(request);
  reader.get<std::uint8_t>();
  const auto wanted = reader.get<std::uint8_t>();
  std::vector<Run> runs(reader.count(16));
  for (Run& run : runs) {
    run.from = run.to = reader.get<std::uint64_t>();
    run.bytes = reader.get<std::uint64_t>();
  }
  const auto refuse = [&](const std::string& why) {
    return channel.send(kRefusedOp, ByteWriter().text(why).take());
  };
  if (!reader.done()) return refuse("a request for bytes cannot be read");
  // Check everything that may be refused before the first byte leaves: bytes in a stream cannot be
  // taken back.
  std::uint64_t expected = 0;
  std::byte probe;
  // Either all of a GPU's memory exists or none of it, so two test reads of each run would not be
  // worth their time.
  const auto is_there = [&](std::uint64_t at) {
    return source.is_device() || source.read(at, &probe, 1).ok();
  };
  for (const Run& run : runs)
    if (run.bytes == 0 || !allowed(run) || !is_there(run.from) ||
        !is_there(run.from + run.bytes - 1))
      return refuse(fmt::format("{} bytes at {} are not of this state", run.bytes, run.from));
  if (const Checksum by = wanted_checksum(wanted); by != Checksum::none) {
    const auto hash = source.hash_of(runs, by);
    if (!hash) return refuse(hash.error().message());
    expected = *hash;
  }
  if (source.is_device() && link == nullptr && !runs.empty()) {
    // Answer only after the first piece: if the program is gone, the answer is a refusal with its
    // reason.
    bool has_begun = false;
    const auto send = [&](std::span<const std::byte> piece) -> Result<void> {
      if (!std::exchange(has_begun, true))
        if (auto sent = channel.send(kDoneOp, {}); !sent) return sent;
      return channel.send_bytes(piece.data(), piece.size());
    };
    if (auto sent = source.device().read(runs, send); !sent)
      return has_begun ? sent : refuse(sent.error().message());
    if (!has_begun)  // all runs are empty
      if (auto sent = channel.send(kDoneOp, {}); !sent) return sent;
    return channel.send_bytes(&expected, sizeof expected);
  }
  if (auto sent = channel.send(kDoneOp, {}); !sent) return sent;
  std::vector<std::byte> staging(source.is_device() ? 0 : Transport::kStaging);
  for (const Run& run : runs) {
    if (source.is_device()) {
      const auto send = [&](std::span<const std::byte> piece) {
        auto sent =
            in_messages(piece, [&](std::span<const std::byte> one) { return link->send(one); });
        return sent.ok() ? link->flush() : sent;
      };
      if (auto sent = source.device().read({&run, 1}, send); !sent) return sent;
      continue;
    }
    if (const std::byte* bytes = source.direct(run.from, run.bytes);
        bytes != nullptr && link == nullptr) {
      if (auto sent = channel.send_bytes(bytes, run.bytes); !sent) return sent;
      continue;
    }
    const auto good = in_pieces(run, [&](const Run& piece) -> Result<void> {
      if (const std::byte* bytes = source.direct(piece.from, piece.bytes))
        return link->send({bytes, piece.bytes});
      if (auto read = source.read(piece.from, staging.data(), piece.bytes); !read) return read;
      if (link == nullptr) return channel.send_bytes(staging.data(), piece.bytes);
      if (auto sent = link->send({staging.data(), piece.bytes}); !sent) return sent;
      return link->flush();
    });
    if (!good) return good;
  }
  if (link != nullptr)
    if (auto gone = link->flush(); !gone) return gone;
  return channel.send_bytes(&expected, sizeof expected);
}

}  // namespace swell::runtime
