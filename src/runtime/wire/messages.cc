// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/wire/messages.h"

#include <fmt/format.h>
#include <set>

#include "runtime/wire/tensor_wire.h"

namespace swell::runtime {

namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxDocument = std::size_t{16} << 20;
constexpr std::size_t kEntryBytes = 40;  // minimum size of an entry

void put(ByteWriter& writer, const Entry& entry) {
  put(writer, entry.tensor);
  put(writer, entry.part);
  writer.text(entry.alias_of)
      .put(static_cast<std::uint64_t>(entry.address))
      .put(static_cast<std::int32_t>(entry.device));
}

Entry get_entry(ByteReader& reader) {
  Entry entry;
  entry.tensor = get_tensor(reader);
  entry.part = get_part(reader);
  entry.alias_of = reader.text(kMaxName);
  entry.address = reader.get<std::uint64_t>();
  entry.device = reader.get<std::int32_t>();
  if (reader.good() && !check(entry.part, entry.tensor.shape)) reader.fail();
  return entry;
}

void put(ByteWriter& writer, const std::vector<Entry>& entries) {
  writer.put(static_cast<std::uint32_t>(entries.size()));
  for (const Entry& entry : entries) put(writer, entry);
}
std::vector<Entry> get_entries(ByteReader& reader) {
  std::vector<Entry> entries;
  for (auto left = reader.count(kEntryBytes); reader.good() && left > 0; --left)
    entries.push_back(get_entry(reader));
  return entries;
}

Memory get_memory(ByteReader& reader) {
  const auto memory = reader.get<std::uint8_t>();
  if (memory >= kMemories) reader.fail();
  return reader.good() ? static_cast<Memory>(memory) : Memory::program;
}

void put(ByteWriter& writer, const std::vector<Held>& table) {
  writer.put(static_cast<std::uint32_t>(table.size()));
  for (const Held& held : table) {
    put(writer, held.entry);
    writer.put(held.memory).put(held.at);
  }
}
std::vector<Held> get_table(ByteReader& reader) {
  std::vector<Held> table;
  for (auto left = reader.count(kEntryBytes); reader.good() && left > 0; --left) {
    Held held;
    held.entry = get_entry(reader);
    held.memory = get_memory(reader);
    held.at = reader.get<std::uint64_t>();
    table.push_back(std::move(held));
  }
  return table;
}

void put(ByteWriter& writer, const Endpoint& endpoint) {
  writer.text(endpoint.host)
      .text(endpoint.unix_socket)
      .text(endpoint.tcp)
      .put(endpoint.program_pid)
      .text(endpoint.processes);
}
Endpoint get_endpoint(ByteReader& reader) {
  Endpoint endpoint;
  endpoint.host = reader.text(kMaxText);
  endpoint.unix_socket = reader.text(kMaxText);
  endpoint.tcp = reader.text(kMaxText);
  endpoint.program_pid = reader.get<std::int32_t>();
  endpoint.processes = reader.text(kMaxText);
  return endpoint;
}

void put(ByteWriter& writer, const Snapshot& snapshot) {
  writer.put(snapshot.generation).put(snapshot.step).put(snapshot.rank).put(snapshot.ranks);
  writer.put<std::uint8_t>(snapshot.is_of_switch);
  put(writer, snapshot.table);
}
Snapshot get_snapshot(ByteReader& reader) {
  Snapshot snapshot;
  snapshot.generation = reader.get<std::uint64_t>();
  snapshot.step = reader.get<std::uint64_t>();
  snapshot.rank = reader.get<std::int32_t>();
  snapshot.ranks = reader.get<std::uint32_t>();
  if (snapshot.rank < 0 || static_cast<std::uint32_t>(snapshot.rank) >= snapshot.ranks)
    reader.fail();
  snapshot.is_of_switch = reader.get<std::uint8_t>() != 0;
  snapshot.table = get_table(reader);
  return snapshot;
}

void put(ByteWriter& writer, cluster::GpuRef gpu) {
  writer.put(static_cast<std::int32_t>(gpu.node)).put(static_cast<std::int32_t>(gpu.index));
}
cluster::GpuRef get_gpu(ByteReader& reader) {
  const int node = reader.get<std::int32_t>();
  return {node, reader.get<std::int32_t>()};
}

template <typename Value>
Result<Value> whole(const ByteReader& reader, Value value, const char* what) {
  if (!reader.done()) return Error(fmt::format("a message with {} cannot be read", what));
  return value;
}

}  // namespace

std::string write(const std::vector<Entry>& entries) {
  ByteWriter writer;
  put(writer, entries);
  return writer.take();
}
Result<std::vector<Entry>> read_entries(std::string_view body) {
  ByteReader reader(body);
  auto entries = get_entries(reader);
  return whole(reader, std::move(entries), "tensors");
}

std::string write(std::uint64_t generation, const std::vector<Held>& table) {
  ByteWriter writer;
  writer.put(generation);
  put(writer, table);
  return writer.take();
}
Result<std::pair<std::uint64_t, std::vector<Held>>> read_table(std::string_view body) {
  ByteReader reader(body);
  const auto generation = reader.get<std::uint64_t>();
  auto table = get_table(reader);
  return whole(reader, std::make_pair(generation, std::move(table)), "what a shim holds");
}

std::string write(const Status& status) {
  ByteWriter writer;
  writer.put(status.generation)
      .put(status.prepared)
      .put<std::uint8_t>(status.has_program)
      .put<std::uint8_t>(status.has_waiting);
  writer.put<std::uint8_t>(status.is_moved).put<std::uint8_t>(status.is_quiesced);
  writer.put<std::uint8_t>(status.stays).put(status.step);
  put(writer, status.endpoint);
  writer.put(status.progress.only_there).put(status.progress.rest).put(status.progress.come);
  return writer.take();
}
Result<Status> read_status(std::string_view body) {
  ByteReader reader(body);
  Status status;
  status.generation = reader.get<std::uint64_t>();
  status.prepared = reader.get<std::uint64_t>();
  status.has_program = reader.get<std::uint8_t>() != 0;
  status.has_waiting = reader.get<std::uint8_t>() != 0;
  status.is_moved = reader.get<std::uint8_t>() != 0;
  status.is_quiesced = reader.get<std::uint8_t>() != 0;
  status.stays = reader.get<std::uint8_t>() != 0;
  status.step = reader.get<std::uint64_t>();
  status.endpoint = get_endpoint(reader);
  status.progress.only_there = reader.get<std::uint64_t>();
  status.progress.rest = reader.get<std::uint64_t>();
  status.progress.come = reader.get<std::uint64_t>();
  return whole(reader, std::move(status), "a shim's status");
}

std::string write_common(const Prepare& prepare) {
  ByteWriter writer;
  writer.put(prepare.generation)
      .text(prepare.cluster)
      .put(prepare.verify)
      .put(prepare.max_extra_bytes);
  prepare.roster.write(writer);
  writer.put(static_cast<std::uint32_t>(prepare.from.size()));
  for (const OldRank& rank : prepare.from) {
    put(writer, rank.gpu);
    put(writer, rank.endpoint);
    writer.put(rank.table).put<std::uint8_t>(rank.leaves);
    put(writer, rank.memory);
  }
  writer.put(static_cast<std::uint32_t>(prepare.to.size()));
  for (const NewRank& rank : prepare.to) {
    put(writer, rank.gpu);
    writer.put(rank.old_rank).put(rank.table);
    put(writer, rank.memory);
  }
  return writer.take();
}
std::string write(const Prepare& prepare, std::string_view common) {
  return ByteWriter()
      .put(prepare.old_rank)
      .put(prepare.new_rank)
      .put<std::uint8_t>(prepare.in_chunks)
      .bytes(common)
      .take();
}
std::string write(const Prepare& prepare) { return write(prepare, write_common(prepare)); }

Result<Prepare> read_prepare(std::string_view body) {
  ByteReader reader(body);
  Prepare prepare;
  prepare.old_rank = reader.get<std::int32_t>();
  prepare.new_rank = reader.get<std::int32_t>();
  prepare.in_chunks = reader.get<std::uint8_t>() != 0;
  prepare.generation = reader.get<std::uint64_t>();
  prepare.cluster = reader.text(kMaxDocument);
  prepare.verify = reader.get<Verify>();
  if (prepare.verify > Verify::network) reader.fail();
  prepare.max_extra_bytes = reader.get<std::uint64_t>();
  prepare.roster = Roster::read(reader);
  const auto get_table_number = [&] {
    const auto table = reader.get<std::uint32_t>();
    if (table >= prepare.roster.tables()) reader.fail();
    return table;
  };
  for (auto left = reader.count(33); reader.good() && left > 0; --left) {
    const cluster::GpuRef gpu = get_gpu(reader);
    Endpoint endpoint = get_endpoint(reader);
    const std::uint32_t table = get_table_number();
    const bool leaves = reader.get<std::uint8_t>() != 0;
    prepare.from.push_back({gpu, std::move(endpoint), table, leaves, get_gpu_memory(reader)});
  }
  for (auto left = reader.count(16); reader.good() && left > 0; --left) {
    const cluster::GpuRef gpu = get_gpu(reader);
    const auto old_rank = reader.get<std::int32_t>();
    const std::uint32_t table = get_table_number();
    prepare.to.push_back({gpu, old_rank, table, get_gpu_memory(reader)});
  }
  const auto in = [](std::int32_t rank, std::size_t count) {
    return rank >= -1 && rank < static_cast<std::int64_t>(count);
  };
  if (!in(prepare.old_rank, prepare.from.size()) || !in(prepare.new_rank, prepare.to.size()))
    reader.fail();
  std::set<std::int32_t> seen;
  for (const NewRank& rank : prepare.to)
    if (!in(rank.old_rank, prepare.from.size()) ||
        (rank.old_rank >= 0 && !seen.insert(rank.old_rank).second))
      reader.fail();
  return whole(reader, std::move(prepare), "two plans");
}

std::string write(const Variables& variables) {
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(variables.size()));
  for (const auto& [name, value] : variables) writer.text(name).text(value);
  return writer.take();
}
Result<Variables> read_variables(std::string_view body) {
  ByteReader reader(body);
  Variables variables;
  for (auto left = reader.count(8); reader.good() && left > 0; --left) {
    std::string name = reader.text(kMaxText);
    variables.emplace_back(std::move(name), reader.text(kMaxDocument));
  }
  return whole(reader, std::move(variables), "variables");
}

std::string write(const Prepared& prepared) {
  return ByteWriter().put(prepared.digest).put(prepared.extra_bytes).put(prepared.chunks).take();
}
Result<Prepared> read_prepared(std::string_view body) {
  ByteReader reader(body);
  Prepared prepared;
  prepared.digest = reader.get<std::uint64_t>();
  prepared.extra_bytes = reader.get<std::uint64_t>();
  prepared.chunks = reader.get<std::uint32_t>();
  return whole(reader, prepared, "a plan's digest");
}

std::string write(const Moved& moved) {
  ByteWriter writer;
  writer.put(moved.move_s).put(static_cast<std::uint32_t>(moved.paths.size()));
  for (const PathBytes& path : moved.paths) writer.text(path.path).put(path.bytes);
  writer.put(static_cast<std::uint32_t>(moved.notes.size()));
  for (const std::string& note : moved.notes) writer.text(note);
  writer.put(moved.extra_bytes);
  return writer.take();
}
Result<Moved> read_moved(std::string_view body) {
  ByteReader reader(body);
  Moved moved;
  moved.move_s = reader.get<double>();
  for (auto left = reader.count(12); reader.good() && left > 0; --left) {
    std::string path = reader.text(kMaxText);
    moved.paths.push_back({std::move(path), reader.get<std::uint64_t>()});
  }
  for (auto left = reader.count(4); reader.good() && left > 0; --left)
    moved.notes.push_back(reader.text(kMaxText));
  moved.extra_bytes = reader.get<std::uint64_t>();
  return whole(reader, std::move(moved), "what was moved");
}

std::string write(const Adopted& adopted) {
  ByteWriter writer;
  writer.put(adopted.generation)
      .put(adopted.step)
      .put<std::uint8_t>(adopted.fresh)
      .put(static_cast<std::uint32_t>(adopted.places.size()));
  for (const auto& [memory, at] : adopted.places) writer.put(memory).put(at);
  return writer.take();
}
Result<Adopted> read_adopted(std::string_view body) {
  ByteReader reader(body);
  Adopted adopted;
  adopted.generation = reader.get<std::uint64_t>();
  adopted.step = reader.get<std::uint64_t>();
  adopted.fresh = reader.get<std::uint8_t>() != 0;
  for (auto left = reader.count(9); reader.good() && left > 0; --left) {
    const Memory memory = get_memory(reader);
    adopted.places.emplace_back(memory, reader.get<std::uint64_t>());
  }
  return whole(reader, std::move(adopted), "a generation's state");
}

std::string write(const std::vector<Snapshot>& snapshots) {
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(snapshots.size()));
  for (const Snapshot& snapshot : snapshots) put(writer, snapshot);
  return writer.take();
}
Result<std::vector<Snapshot>> read_snapshots(std::string_view body) {
  ByteReader reader(body);
  std::vector<Snapshot> snapshots;
  for (auto left = reader.count(28); reader.good() && left > 0; --left)
    snapshots.push_back(get_snapshot(reader));
  return whole(reader, std::move(snapshots), "snapshots");
}

std::string write(const Kept& kept) {
  ByteWriter writer;
  put(writer, kept.snapshot);
  put(writer, kept.source);
  return writer.take();
}
Result<Kept> read_kept(std::string_view body) {
  ByteReader reader(body);
  Kept kept;
  kept.snapshot = get_snapshot(reader);
  kept.source = get_endpoint(reader);
  return whole(reader, std::move(kept), "a snapshot");
}

std::string write(const Guard& guard) {
  ByteWriter writer;
  writer.put(guard.generation).put(guard.rank).put(guard.ranks);
  put(writer, guard.partner);
  return writer.take();
}
Result<Guard> read_guard(std::string_view body) {
  ByteReader reader(body);
  Guard guard;
  guard.generation = reader.get<std::uint64_t>();
  guard.rank = reader.get<std::int32_t>();
  guard.ranks = reader.get<std::uint32_t>();
  guard.partner = get_endpoint(reader);
  return whole(reader, std::move(guard), "who keeps snapshots");
}

ByteWriter& put_shortage(ByteWriter& writer, const std::optional<Shortage>& shortage) {
  return shortage ? writer.put(shortage->needed_bytes).put(shortage->free_bytes) : writer;
}

std::optional<Shortage> get_shortage(ByteReader& reader) {
  if (reader.done()) return {};
  Shortage shortage;
  shortage.needed_bytes = reader.get<std::uint64_t>();
  shortage.free_bytes = reader.get<std::uint64_t>();
  return shortage;
}

std::string write_refusal(const Error& error) {
  ByteWriter writer;
  writer.text(error.message());
  if (error.shortage()) return put_shortage(writer, error.shortage()).take();
  return error.code() == ErrorCode::failed ? writer.take() : writer.put(error.code()).take();
}

Error read_refusal(std::string_view body) {
  ByteReader reader(body);
  std::string why = reader.text(kMaxText);
  // A shim of an earlier version sends the sentence alone.
  if (reader.done() && why == called_off().message()) return called_off();
  if (ByteReader rest = reader; static_cast<void>(rest.get<std::uint8_t>()), rest.done()) {
    const auto code = reader.get<ErrorCode>();
    return code <= ErrorCode::not_asked ? Error(code, std::move(why)) : Error(std::move(why));
  }
  auto shortage = get_shortage(reader);
  return Error(std::move(why), reader.done() ? shortage : std::nullopt);
}

Result<Message> ask(Channel& channel, Op op, std::string_view body, Deadline deadline) {
  if (auto sent = channel.send(static_cast<std::uint16_t>(op), body); !sent) return sent.error();
  auto answer = channel.receive(deadline);
  if (!answer) return answer.error();
  if (answer->op == kDoneOp) return answer;
  if (answer->op == kRefusedOp) return read_refusal(answer->body);
  return Error(fmt::format("an answer of kind {} came; only done or refused is one", answer->op));
}

}  // namespace swell::runtime
