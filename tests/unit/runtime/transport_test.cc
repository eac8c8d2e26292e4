// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/transport/transport.h"

#include <chrono>
#include <criterion/criterion.h>
#include <filesystem>
#include <random>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime/keeper/keeper.h"
#include "support/tcp_peer.h"

using namespace swell::runtime;
using namespace std::chrono_literals;

namespace {

const std::string kKey = "a key of one job";

/// A folder of this test's own.
struct Folder {
  std::string path;
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "swell-transport-XXXXXX";
    cr_assert_not_null(mkdtemp(pattern.data()));
    path = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

Arena filled(std::uint64_t bytes, unsigned seed) {
  Arena arena = Arena::create(bytes).value();
  std::mt19937 random(seed);
  for (std::uint64_t i = 0; i < bytes; ++i) arena.data()[i] = static_cast<std::byte>(random());
  return arena;
}

/// Small and large runs, in no order.
const std::vector<Run> kRuns{{100, 3'000'000, 1}, {7, 0, 2'500'000}, {3'000'001, 2'700'000, 4097}};

void check_copies(Transport& transport, const Arena& source, std::uint64_t base, const char* name) {
  cr_assert_str_eq(transport.name(), name);
  std::vector<Run> runs = kRuns;
  for (Run& run : runs) run.from += base;
  const Arena target = Arena::create(4 << 20).value();
  const auto hash = transport.fetch(runs, Sink::arena(target), Checksum::xxhash);
  cr_assert(hash.ok(), "%s", hash.ok() ? "" : hash.error().message().c_str());
  for (const Run& run : kRuns)
    cr_assert_eq(std::memcmp(target.data() + run.to, source.data() + run.from, run.bytes), 0);
  cr_assert_eq(*hash, Sink::arena(target).hash_of(runs, Checksum::xxhash).value());
  target.data()[3'000'000] ^= std::byte{1};
  cr_assert_neq(*hash, Sink::arena(target).hash_of(runs, Checksum::xxhash).value(),
                "one wrong bit is found");
  // The same into a program's memory: this one's.
  std::vector<std::byte> memory(4 << 20);
  for (Run& run : runs) run.to += reinterpret_cast<std::uint64_t>(memory.data());
  cr_assert_eq(transport.fetch(runs, Sink::program(getpid()), Checksum::xxhash).value(), *hash);
  for (const Run& run : kRuns)
    cr_assert_eq(std::memcmp(memory.data() + run.to, source.data() + run.from, run.bytes), 0);
}

struct Pair {
  Channel one, other;
  Pair() {
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    one = Channel(swell::Descriptor(fds[0]));
    other = Channel(swell::Descriptor(fds[1]));
  }
};

}  // namespace

Test(transport, each_way_copies_the_same_bytes_and_knows_their_checksum) {
  const auto source = std::make_shared<const Arena>(filled(4 << 20, 1));
  check_copies(*from_mapped(source), *source, 0, "mapped arena");
  check_copies(*from_program(getpid()), *source, reinterpret_cast<std::uint64_t>(source->data()),
               "process_vm_readv");

  const swell::Descriptor listening = listen_tcp("127.0.0.1").value();
  std::thread server([&] {
    Channel channel = support::accept_with(listening.get(), kKey).value();
    while (const auto message = channel.receive())
      if (!serve_bytes(channel, message->body, Sink::arena(*source),
                       [](const Run&) { return true; }))
        return;
  });
  {
    const auto channel = std::make_shared<Channel>(
        Channel::connect_tcp(address_of(listening.get()), kKey, within(10s)).value());
    check_copies(*from_network(channel, Memory::arena), *source, 0, "tcp");
    cr_assert(from_network(channel, Memory::arena)->crosses_network());
    cr_assert_not(from_network(channel, Memory::arena, true)->crosses_network());
    const std::vector<Run> outside{{4 << 20, 0, 1}};
    const Arena target = Arena::create(4096).value();
    cr_assert_eq(from_network(channel, Memory::arena)
                     ->fetch(outside, Sink::arena(target), Checksum::xxhash)
                     .error()
                     .message(),
                 "another node's shim: 1 bytes at 4194304 are not of this state");
  }
  server.join();
}

Test(transport, nothing_outside_of_an_arena_is_read_or_written) {
  const auto source = std::make_shared<const Arena>(Arena::create(4096).value());
  const Arena target = Arena::create(4096).value();
  for (const Run run : {Run{4096, 0, 1}, Run{0, 4096, 1}, Run{UINT64_MAX, 0, 8},
                        Run{0, UINT64_MAX - 3, 8}, Run{1, 0, UINT64_MAX}})
    cr_assert_not(
        from_mapped(source)->fetch(std::span(&run, 1), Sink::arena(target), Checksum::xxhash).ok());
}

Test(channel, a_peer_without_the_jobs_key_is_refused_on_both_sides) {
  const swell::Descriptor listening = listen_tcp("127.0.0.1").value();
  std::string seen;
  std::thread server([&] {
    const auto channel = support::accept_with(listening.get(), kKey);
    if (!channel) seen = channel.error().message();
  });
  const auto client =
      Channel::connect_tcp(address_of(listening.get()), "another job's key", within(10s));
  cr_assert_not(client.ok());
  server.join();
  cr_assert_eq(seen, "a peer does not hold this job's key");

  // A server that does not know the key cannot show it either.
  std::thread impostor([&] {
    Channel channel(support::accept_one(listening.get()));
    char bytes[64] = {};
    static_cast<void>(channel.send_bytes(bytes, 32));
    static_cast<void>(channel.receive_bytes(bytes, 64));
    static_cast<void>(channel.send_bytes(bytes, 32));
    static_cast<void>(channel.receive());
  });
  const auto fooled = Channel::connect_tcp(address_of(listening.get()), kKey, within(10s));
  cr_assert_not(fooled.ok());
  cr_assert_neq(fooled.error().message().find("does not hold this job's key"), std::string::npos);
  impostor.join();
  cr_assert_eq(Channel::connect_tcp("127.0.0.1:1", "short", within(1s)).error().message(),
               "the job's key has 5 bytes; at least 16 are needed");
}

Test(channel, a_peer_that_takes_no_connections_is_given_up_at_the_deadline, .timeout = 60) {
  const swell::Descriptor listening = listen_tcp("127.0.0.1").value();
  cr_assert_eq(listen(listening.get(), 0), 0);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  cr_assert_eq(getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  // Nobody accepts: what comes after these gets no answer, as from a node that is gone.
  std::vector<swell::Descriptor> before;
  for (int i = 0; i < 4; ++i) {
    before.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    static_cast<void>(connect(before.back().get(), reinterpret_cast<sockaddr*>(&address), size));
  }
  const auto start = std::chrono::steady_clock::now();
  const auto found = Channel::connect_tcp(address_of(listening.get()), kKey, within(300ms));
  cr_assert_lt(std::chrono::steady_clock::now() - start, 10s);
  cr_assert_not(found.ok());
  cr_assert_neq(found.error().message().find("Connection timed out"), std::string::npos, "%s",
                found.error().message().c_str());
}

Test(channel, a_socket_stands_in_a_folder_of_its_owner_alone) {
  const Folder folder;
  cr_assert(listen_unix(folder.path + "/own/socket").ok());
  cr_assert_eq(chmod((folder.path + "/own").c_str(), 0750), 0);
  const auto open = listen_unix(folder.path + "/own/other");
  cr_assert_not(open.ok());
  cr_assert_neq(open.error().message().find("mode 0700; it is user"), std::string::npos, "%s",
                open.error().message().c_str());
}

Test(channel, garbage_and_long_messages_are_refused_before_memory_is_taken) {
  Pair pair;
  const std::uint32_t huge[2] = {0xffffffff, 0x57530001};
  cr_assert(pair.one.send_bytes(huge, sizeof huge).ok());
  cr_assert_eq(pair.other.receive(within(1s)).error().message(),
               "a message of 4294967295 bytes was announced; at most 67108864 are possible");
  const std::uint32_t foreign[2] = {4, 0x20544547};
  cr_assert(pair.one.send_bytes(foreign, sizeof foreign).ok());
  cr_assert_eq(pair.other.receive(within(1s)).error().message(),
               "the data received is not a message of Swell's runtime");
  cr_assert_eq(pair.other.receive(within(1ms)).error().message(),
               "no answer within the time limit");
}

Test(messages, survive_any_cut_and_any_changed_byte) {
  Prepare prepare;
  prepare.cluster = "{}";
  Entry entry{{"w", 1, Kind::moment, DType::f32, {4, 6}, false},
              Part::range({0, 0}, {4, 6}, 20, 28),
              "tied",
              4096,
              0};
  const std::vector<Held> table{{entry, Memory::arena, 64}};
  prepare.from.push_back({{1, 2},
                          {"host", "/socket", "127.0.0.1:1", 7},
                          prepare.roster.add(table),
                          false,
                          {"", 0, 0, {{3, 64, "GPU-a"}, {4, 128, "GPU-b"}}}});
  prepare.to.push_back(
      {{0, 1}, 0, prepare.roster.add(std::vector<Entry>{entry, entry}), {"GPU-a", 32, 128, {}}});
  prepare.new_rank = 0;
  const std::string good = write(prepare);
  cr_assert_eq(write(read_prepare(good).value()), good);
  for (std::size_t size = 0; size < good.size(); ++size)
    cr_assert_not(read_prepare(good.substr(0, size)).ok());
  cr_assert_not(read_prepare(good + "x").ok());
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    if (const auto read =
            read_prepare(bad))  // whatever is read obeys the bounds that later arithmetic needs
      for (const NewRank& rank : read->to)
        for (const Entry& one : read->roster.entries(rank.table))
          cr_assert(check(one.part, one.tensor.shape).ok());
  }
}

Test(keeper, answers_or_refuses_whatever_it_is_sent, .timeout = 60) {
  const Folder folder;
  Keeper::Options options;
  options.unix_socket = folder.path + "/own/socket";
  options.arena_bytes = 1 << 20;
  const auto keeper = Keeper::start(std::move(options)).value();
  std::mt19937 random(4);
  std::string declared = write(std::vector<Entry>{
      {{"w", 0, Kind::parameter, DType::f32, {4}, false}, Part::whole({4}), "", 0, -1}});
  for (int i = 0; i < 3000; ++i) {
    auto channel = Channel::connect_unix(keeper->unix_socket()).value();
    for (int k = 0; k < 3; ++k) {
      std::uint16_t op = static_cast<std::uint16_t>(random() % 24);
      // These wait for something that does not come here.
      if (op == static_cast<std::uint16_t>(Op::wait_ready) ||
          op == static_cast<std::uint16_t>(Op::adopt))
        op = static_cast<std::uint16_t>(Op::declare);
      std::string body = declared;
      if (random() % 3) body[random() % body.size()] = static_cast<char>(random());
      body.resize(random() % (body.size() + 1));
      cr_assert(channel.send(op, body).ok());
      const auto answer = channel.receive(within(10s));
      cr_assert(answer.ok(), "op %d: %s", op, answer.ok() ? "" : answer.error().message().c_str());
      cr_assert(answer->op == kDoneOp || answer->op == kRefusedOp);
    }
  }
  auto channel = Channel::connect_unix(keeper->unix_socket()).value();
  cr_assert_eq(read_status(ask(channel, Op::status, {}).value().body).value().generation, 0,
               "it lives, and nothing has begun");
}
