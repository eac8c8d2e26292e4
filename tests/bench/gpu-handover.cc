// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how long a program takes to get the GPU memory that another one left, and how fast state
// is copied within a GPU in chunks, compared with one plain copy. Uses three processes: one
// allocates memory, marks it and is killed; this one, which never opens CUDA, holds the descriptors
// as a shim does; a third one imports and maps all of it. No copy is made: a second import sees the
// new process's writes, and the GPU's free memory does not change. Then the third process moves
// part of the state into its own memory, chunk by chunk, and releases each chunk of the source
// before it takes the next. It also computes the checksum of memory on the GPU. usage: gpu-handover
// [GIB [SLAB_MIB [GPU [COPY_GIB [HOLD_S]]]]] (40, 256, 0, 4, 0); for HOLD_S seconds no process has
// CUDA open, and only the descriptors hold the memory. Exits with 77 if there is no GPU. Last line:
// JSON.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/byte_message.h"
#include "gpu_bench.h"
#include "runtime/device/device_memory.h"
#include "runtime/transport/channel.h"
#include "runtime/wire/word_hash.h"

using namespace swell;
using namespace swell::runtime;
using namespace bench;

namespace {

constexpr std::uint16_t kSlab = 1, kReady = 2, kSkipped = 3;

struct Sizes {
  std::uint64_t bytes = std::uint64_t{40} << 30, slab_bytes = 256 * kMiB,
                copy_bytes = std::uint64_t{4} << 30;
  int gpu = 0;
  unsigned hold_s = 0;
  std::uint64_t slabs() const { return (bytes + slab_bytes - 1) / slab_bytes; }
};

template <typename Body>
pid_t start(Channel& channel, Body&& body) {
  int ends[2] = {};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) die("socketpair");
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    Channel own{Descriptor(ends[1])};
    body(own);
    std::fflush(nullptr);
    _exit(0);
  }
  close(ends[1]);
  channel = Channel(Descriptor(ends[0]));
  return pid;
}

/// Allocates the memory, marks each slab at its end, and passes it on.
void first_program(Channel& out, const Sizes& sizes) {
  auto device = Device::open(sizes.gpu);
  const auto shares = device ? (*device)->check_sharing() : Result<void>(device.error());
  if (!shares) {
    static_cast<void>(out.send(kSkipped, shares.error().message()));
    return;
  }
  std::vector<Slab> slabs;
  for (std::uint64_t i = 0; i < sizes.slabs(); ++i) {
    slabs.push_back(must(Slab::create(*device, sizes.slab_bytes)));
    const std::uint64_t mark = i + 1;
    must((*device)->to_device(slabs.back().address() + slabs.back().bytes() - sizeof mark, &mark,
                              sizeof mark));
    const Descriptor fd = must(slabs.back().share());
    must(out.send(kSlab, ByteWriter().put(slabs.back().bytes()).take(), fd.get()));
  }
  must(out.send(kReady, {}));
  pause();
}

struct Rate {
  double gb_s = 0;
  std::uint64_t extra_bytes = 0;
};

/// Copies memory to memory of this GPU once; returns the best rate of several runs.
double plain_rate(const std::shared_ptr<Device>& device, std::uint64_t bytes) {
  const Slab from = must(Slab::create(device, bytes)), to = must(Slab::create(device, bytes));
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const Run run{from.address(), to.address(), from.bytes()};
    const auto begin = Clock::now();
    must(device->copy({&run, 1}));
    best = std::max(best, static_cast<double>(from.bytes()) / since(begin) / 1e9);
  }
  return best;
}

struct HashRate {
  double load_s = 0, gb_s = 0;
  bool is_host_s = false;  ///< whether the GPU's checksum equals the host's
  std::string why_not;
};

/// Computes the checksum of memory on this GPU; returns the best rate of several runs.
HashRate hash_rate(const std::shared_ptr<Device>& device, std::uint64_t bytes) {
  HashRate rate;
  const auto begin = Clock::now();
  const auto hash = GpuHash::create(device);
  rate.load_s = since(begin);
  if (!hash) {
    rate.why_not = hash.error().message();
    return rate;
  }
  const Slab slab = must(Slab::create(device, bytes));
  std::vector<std::uint64_t> values(std::min<std::uint64_t>(bytes, 64 * kMiB) / 8);
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = WordHash::mixed(i, i);
  must(device->to_device(slab.address(), values.data(), values.size() * 8));
  // The bytes start at an odd address and end within a word.
  const Run odd{slab.address() + 3, 0, values.size() * 8 - 6};
  WordHash host({&odd, 1});
  host.add(reinterpret_cast<const char*>(values.data()) + 3, odd.bytes);
  rate.is_host_s = WordHash::finished(must((*hash)->sum({&odd, 1}, 0)), {&odd, 1}) == host.value();
  for (int i = 0; i < 5; ++i) {
    const Run run{slab.address(), 0, slab.bytes()};
    const auto start = Clock::now();
    must((*hash)->sum({&run, 1}, 0));
    rate.gb_s = std::max(rate.gb_s, static_cast<double>(slab.bytes()) / since(start) / 1e9);
  }
  return rate;
}

/// Copies slabs that another process left into new ones, one by one. Returns the rate.
Rate chunked_rate(const std::shared_ptr<Device>& device, std::vector<Descriptor>& from,
                  std::uint64_t slab_bytes, std::uint64_t bytes) {
  const std::uint64_t before = must(device->free_bytes());
  Rate rate;
  std::uint64_t done = 0;
  std::vector<Slab> copies;
  double copying_s = 0;
  for (Descriptor& fd : from) {
    if (done >= bytes) break;
    const auto begin = Clock::now();
    copies.push_back(must(Slab::create(device, slab_bytes, false)));
    {
      const Slab source = must(Slab::import(device, fd, slab_bytes));
      const Run run{source.address(), copies.back().address(), slab_bytes};
      must(device->copy({&run, 1}));
    }
    copying_s += since(begin);
    rate.extra_bytes =
        std::max(rate.extra_bytes, before - std::min(before, must(device->free_bytes())));
    fd = Descriptor();  // the last descriptor of the chunk: frees its memory
    done += slab_bytes;
  }
  rate.gb_s = static_cast<double>(done) / copying_s / 1e9;
  return rate;
}

/// Imports the memory that the first program left.
void second_program(Channel& in, const Sizes& sizes) {
  const auto begin = Clock::now();
  const auto device = must(Device::open(sizes.gpu));
  const double context_s = since(begin);
  const std::uint64_t free_before = must(device->free_bytes());
  must(in.send(kReady, {}));
  const auto asked = Clock::now();
  std::vector<Slab> slabs;
  std::vector<Descriptor> fds;
  std::uint64_t slab_bytes = 0;
  for (;;) {
    Message passed = must(in.receive());
    if (passed.op == kReady) break;
    slab_bytes = ByteReader(passed.body).get<std::uint64_t>();
    slabs.push_back(must(Slab::import(device, passed.fd, slab_bytes)));
    fds.push_back(std::move(passed.fd));
  }
  const double handover_s = since(asked);
  const std::uint64_t free_after = must(device->free_bytes());
  bool is_shared = true;
  for (std::uint64_t i = 0; i < slabs.size(); ++i) {
    const DeviceAddress last = slab_bytes - sizeof(std::uint64_t);
    std::uint64_t mark = 0;
    must(device->to_host(&mark, slabs[i].address() + last, sizeof mark));
    if (mark != i + 1) die("slab " + std::to_string(i) + " does not hold what was written");
    mark = ~mark;
    must(device->to_device(slabs[i].address() + last, &mark, sizeof mark));
    const Slab again = must(Slab::import(device, fds[i], slab_bytes));
    std::uint64_t seen = 0;
    must(device->to_host(&seen, again.address() + last, sizeof seen));
    is_shared = is_shared && seen == mark;
  }
  const std::uint64_t total = slab_bytes * slabs.size();
  const std::size_t count = slabs.size();
  slabs.clear();
  const double plain = plain_rate(device, std::min<std::uint64_t>(sizes.copy_bytes, total) / 2);
  const HashRate hash = hash_rate(device, std::min<std::uint64_t>(sizes.copy_bytes, total) / 2);
  must(in.send(kReady, {}));  // the shim releases the memory
  must(in.receive());
  const Rate chunked = chunked_rate(device, fds, slab_bytes, sizes.copy_bytes);
  std::printf("%s: %.1f GiB in %zu slabs handed over in %.1f ms; context %.0f ms\n",
              device->gpu().c_str(), static_cast<double>(total) / (1 << 30), count,
              handover_s * 1e3, context_s * 1e3);
  std::printf(
      "copy within the GPU: plain %.1f GB/s; %llu MiB at a time, with import and "
      "allocation, %.1f GB/s\n",
      plain, static_cast<unsigned long long>(slab_bytes / kMiB), chunked.gb_s);
  std::printf("checksum on the GPU: %.1f GB/s; loading its kernel %.1f ms%s%s\n", hash.gb_s,
              hash.load_s * 1e3,
              hash.why_not.empty() ? "" : "; not made there: ", hash.why_not.c_str());
  std::printf(
      "{\"bytes\": %llu, \"slabs\": %zu, \"handover_s\": %.6f, \"context_s\": %.3f, "
      "\"is_shared\": %s, \"bytes_taken_by_handover\": %lld, \"plain_gb_s\": %.2f, "
      "\"chunked_gb_s\": %.2f, \"ratio\": %.3f, \"chunk_bytes\": %llu, \"extra_bytes\": %llu, "
      "\"hash_load_s\": %.6f, \"hash_gb_s\": %.2f, \"hash_is_host_s\": %s}\n",
      static_cast<unsigned long long>(total), count, handover_s, context_s,
      is_shared ? "true" : "false",
      static_cast<long long>(free_before) - static_cast<long long>(free_after), plain, chunked.gb_s,
      chunked.gb_s / plain, static_cast<unsigned long long>(slab_bytes),
      static_cast<unsigned long long>(chunked.extra_bytes), hash.load_s, hash.gb_s,
      hash.is_host_s ? "true" : "false");
}

std::uint64_t number(const char* word, const char* what) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(word, &end, 10);
  if (*word == '\0' || *end != '\0')
    die(std::string(what) + " is \"" + word + "\"; it is a whole number");
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  if (argc > 1) sizes.bytes = number(argv[1], "GIB") << 30;
  if (argc > 2) sizes.slab_bytes = number(argv[2], "SLAB_MIB") * kMiB;
  if (argc > 3) sizes.gpu = static_cast<int>(number(argv[3], "GPU"));
  if (argc > 4) sizes.copy_bytes = number(argv[4], "COPY_GIB") << 30;
  if (argc > 5) sizes.hold_s = static_cast<unsigned>(number(argv[5], "HOLD_S"));
  if (sizes.bytes == 0 || sizes.slab_bytes == 0 || sizes.copy_bytes == 0)
    die("sizes are 1 or more");
  Channel old_one, new_one;
  std::vector<Message> kept;
  const pid_t first = start(old_one, [&](Channel& out) { first_program(out, sizes); });
  for (;;) {
    auto message = old_one.receive();
    if (!message) die("the first program ended: " + message.error().message());
    if (message->op == kSkipped) {
      std::printf("gpu-handover: skipped: %s\n", message->body.c_str());
      return 77;
    }
    if (message->op == kReady) break;
    kept.push_back(std::move(*message));
  }
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
  sleep(sizes.hold_s);
  const pid_t second = start(new_one, [&](Channel& in) { second_program(in, sizes); });
  int status = 0;
  if (new_one.receive().ok()) {
    for (const Message& each : kept) must(new_one.send(kSlab, each.body, each.fd.get()));
    must(new_one.send(kReady, {}));
    if (new_one.receive().ok()) {
      kept.clear();
      must(new_one.send(kReady, {}));
    }
  }
  waitpid(second, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
