// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/roster.h"

#include <utility>

#include "runtime/state/arena.h"
#include "runtime/wire/tensor_wire.h"

namespace swell::runtime {

namespace {

constexpr std::size_t kRowBytes = 4, kTableBytes = 4, kNameBytes = 4;  // minimum sizes of an item
// Flags in a row's first byte; the other bits are the row's Memory.
constexpr std::uint8_t kIsAlias = 0x40, kOtherDevice = 0x80;

/// The most likely next row: that of the next tensor, right behind the previous one.
struct Guess {
  std::uint32_t tensor = 0;
  std::uint64_t at = 0;
  std::int32_t device = -1;
  void learn(const Row& row, std::uint64_t bytes) noexcept {
    tensor = row.tensor + 1;
    at = row.at + Extents::rounded(bytes);
    device = row.device;
  }
};

}  // namespace

std::uint32_t Roster::number_of(const TensorInfo& info) {
  if (last_tensor_ + 1 < tensors_.size() && tensors_[last_tensor_ + 1] == info)
    return ++last_tensor_;
  // If ranks disagree on a tensor, there are two of its name; World reports that.
  const auto [first, last] = tensor_numbers_.equal_range(info.name);
  for (auto at = first; at != last; ++at)
    if (tensors_[at->second] == info) return last_tensor_ = at->second;
  last_tensor_ = static_cast<std::uint32_t>(tensors_.size());
  tensor_numbers_.emplace(info.name, last_tensor_);
  tensors_.push_back(info);
  return last_tensor_;
}

Row Roster::row_of(const Entry& entry) {
  Row row{number_of(entry.tensor), 0, 0, entry.device, own_place_of(entry), memory_of(entry)};
  const auto [part, is_new_part] =
      part_numbers_.try_emplace(entry.part, static_cast<std::uint32_t>(parts_.size()));
  if (is_new_part) parts_.push_back(entry.part);
  row.part = part->second;
  if (entry.alias_of.empty()) return row;
  const auto [name, is_new_name] =
      name_numbers_.try_emplace(entry.alias_of, static_cast<std::uint32_t>(names_.size()));
  if (is_new_name) names_.push_back(entry.alias_of);
  row.alias = name->second + 1;
  return row;
}

std::uint32_t Roster::add(const std::vector<Held>& table) {
  std::vector<Row> rows;
  rows.reserve(table.size());
  for (const Held& held : table) {
    rows.push_back(row_of(held.entry));
    rows.back().memory = held.memory;
    rows.back().at = held.at;
  }
  return add_rows(std::move(rows));
}

std::uint32_t Roster::add(const std::vector<Entry>& entries) {
  std::vector<Row> rows;
  rows.reserve(entries.size());
  for (const Entry& entry : entries) rows.push_back(row_of(entry));
  return add_rows(std::move(rows));
}

std::uint32_t Roster::add_rows(std::vector<Row> rows) {
  const auto [at, is_new] =
      table_numbers_.try_emplace(text_of(rows), static_cast<std::uint32_t>(tables_.size()));
  if (is_new) tables_.push_back(std::move(rows));
  return at->second;
}

std::uint64_t Roster::bytes_of(const Row& row) const noexcept {
  return static_cast<std::uint64_t>(parts_[row.part].elements() *
                                    runtime::bytes_of(tensors_[row.tensor].dtype));
}

Entry Roster::entry_of(const Row& row) const {
  std::uint64_t address = 0;
  if (row.memory == Memory::program) address = row.at;
  else if (row.memory == Memory::program_device) address = DevicePlace::address(row.at);
  return {tensors_[row.tensor], parts_[row.part],
          row.alias == 0 ? std::string() : names_[row.alias - 1], address, row.device};
}

std::vector<Held> Roster::held(std::uint32_t table) const {
  std::vector<Held> made;
  made.reserve(tables_[table].size());
  for (const Row& row : tables_[table]) made.push_back({entry_of(row), row.memory, row.at});
  return made;
}

std::vector<Entry> Roster::entries(std::uint32_t table) const {
  std::vector<Entry> made;
  made.reserve(tables_[table].size());
  for (const Row& row : tables_[table]) made.push_back(entry_of(row));
  return made;
}

/// Writes numbers as their difference from a guess, so that most rows take four bytes.
std::string Roster::text_of(const std::vector<Row>& rows) const {
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(rows.size()));
  Guess guess;
  for (const Row& row : rows) {
    const bool is_alias = row.alias != 0, other_device = row.device != guess.device;
    writer.put(static_cast<std::uint8_t>(static_cast<std::uint8_t>(row.memory) |
                                         (is_alias ? kIsAlias : 0) |
                                         (other_device ? kOtherDevice : 0)));
    writer.signed_short(static_cast<std::int64_t>(row.tensor) - guess.tensor)
        .unsigned_short(row.part)
        .signed_short(static_cast<std::int64_t>(row.at - guess.at));
    if (is_alias) writer.unsigned_short(row.alias);
    if (other_device) writer.put(row.device);
    guess.learn(row, bytes_of(row));
  }
  return writer.take();
}

std::vector<Row> Roster::read_rows(ByteReader& reader) const {
  std::vector<Row> rows;
  Guess guess;
  auto left = reader.count(kRowBytes);
  for (rows.reserve(left); reader.good() && left > 0; --left) {
    const auto head = reader.get<std::uint8_t>();
    const std::uint8_t memory = head & static_cast<std::uint8_t>(~(kIsAlias | kOtherDevice));
    const std::uint64_t tensor = guess.tensor + static_cast<std::uint64_t>(reader.signed_short());
    const std::uint64_t part = reader.unsigned_short();
    const std::uint64_t at = guess.at + static_cast<std::uint64_t>(reader.signed_short());
    const std::uint64_t alias = (head & kIsAlias) != 0 ? reader.unsigned_short() : 0;
    const auto device = (head & kOtherDevice) != 0 ? reader.get<std::int32_t>() : guess.device;
    if (memory >= kMemories || tensor >= tensors_.size() || part >= parts_.size() ||
        alias > names_.size() || !check(parts_[part], tensors_[tensor].shape))
      reader.fail();
    if (!reader.good()) break;
    rows.push_back({static_cast<std::uint32_t>(tensor), static_cast<std::uint32_t>(part),
                    static_cast<std::uint32_t>(alias), device, at, static_cast<Memory>(memory)});
    guess.learn(rows.back(), bytes_of(rows.back()));
  }
  return rows;
}

void Roster::write(ByteWriter& writer) const {
  writer.put(static_cast<std::uint32_t>(tensors_.size()));
  for (const TensorInfo& info : tensors_) put(writer, info);
  writer.put(static_cast<std::uint32_t>(parts_.size()));
  for (const Part& part : parts_) put(writer, part);
  writer.put(static_cast<std::uint32_t>(names_.size()));
  for (const std::string& name : names_) writer.text(name);
  writer.put(static_cast<std::uint32_t>(tables_.size()));
  for (const std::vector<Row>& rows : tables_) writer.bytes(text_of(rows));
}

Roster Roster::read(ByteReader& reader) {
  Roster made;
  for (auto left = reader.count(kTensorBytes); reader.good() && left > 0; --left)
    made.tensors_.push_back(get_tensor(reader));
  for (auto left = reader.count(kPartBytes); reader.good() && left > 0; --left)
    made.parts_.push_back(get_part(reader));
  for (auto left = reader.count(kNameBytes); reader.good() && left > 0; --left)
    made.names_.push_back(reader.text(kMaxName));
  for (auto left = reader.count(kTableBytes); reader.good() && left > 0; --left)
    made.tables_.push_back(made.read_rows(reader));
  return made;
}

}  // namespace swell::runtime
