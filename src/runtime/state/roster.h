// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/byte_message.h"
#include "runtime/state/registry.h"
#include "runtime/state/slabs.h"
#include "runtime/state/tensor.h"
#include "runtime/transport/transport.h"

namespace swell::runtime {

/// Returns the kind of memory in which a declared tensor will stand.
inline Memory memory_of(const Entry& entry) noexcept {
  if (entry.address != 0) return entry.device >= 0 ? Memory::program_device : Memory::program;
  return entry.device >= 0 ? Memory::device : Memory::arena;
}
/// Returns the place of a declared tensor in the program's own memory; 0 if the tensor has no place
/// yet.
inline std::uint64_t own_place_of(const Entry& entry) noexcept {
  return entry.address != 0 && entry.device >= 0 ? DevicePlace::own(entry.address) : entry.address;
}

/// A part with its place: an offset in the arena, an address in the program, or a DevicePlace on a
/// GPU.
struct Held {
  Entry entry;
  Memory memory = Memory::arena;
  std::uint64_t at = 0;
  std::uint64_t bytes() const noexcept { return static_cast<std::uint64_t>(entry.bytes()); }
  /// Returns whether the part has the source of `run`.
  bool covers(const Run& run) const noexcept {
    return run.from >= at && run.from - at <= bytes() && run.bytes <= bytes() - (run.from - at);
  }
};

/// A Held whose fields are numbers in a Roster. Its entry's address is given by `memory` and `at`.
struct Row {
  std::uint32_t tensor = 0, part = 0;
  std::uint32_t alias = 0;  ///< number in Roster::names(), plus 1; 0: not an alias
  std::int32_t device = -1;
  std::uint64_t at = 0;
  Memory memory = Memory::arena;
};

/// Tables of rows for what ranks hold, or will hold. Tensors, parts and whole tables that ranks
/// have in common are stored, sent and read once, so that a job of a thousand ranks is small. A
/// roster is either built by add() or read from a message. One thread at a time.
class Roster {
 public:
  /// Adds a rank's table and returns its number; equal tables have the same.
  std::uint32_t add(const std::vector<Held>& table);
  /// Adds the table of the entries that a program declared, and returns its number.
  std::uint32_t add(const std::vector<Entry>& entries);

  std::size_t tables() const noexcept { return tables_.size(); }
  const std::vector<Row>& rows(std::uint32_t table) const { return tables_[table]; }
  const std::vector<TensorInfo>& tensors() const noexcept { return tensors_; }
  const std::vector<Part>& parts() const noexcept { return parts_; }
  /// Returns the names of the tensors that aliases refer to.
  const std::vector<std::string>& names() const noexcept { return names_; }
  std::uint64_t bytes_of(const Row& row) const noexcept;
  /// Returns the table as it was added.
  std::vector<Held> held(std::uint32_t table) const;
  std::vector<Entry> entries(std::uint32_t table) const;

  void write(ByteWriter& writer) const;
  /// Reads a roster. Fails the reader if the message is cut short, a number is not in the roster,
  /// or a part does not fit its tensor's shape.
  static Roster read(ByteReader& reader);

 private:
  Row row_of(const Entry& entry);
  Entry entry_of(const Row& row) const;
  std::uint32_t add_rows(std::vector<Row> rows);
  std::uint32_t number_of(const TensorInfo& info);
  std::string text_of(const std::vector<Row>& rows) const;
  std::vector<Row> read_rows(ByteReader& reader) const;

  std::vector<TensorInfo> tensors_;
  std::vector<Part> parts_;
  std::vector<std::string> names_;
  std::vector<std::vector<Row>> tables_;
  // Numbers of the added items, by their content; empty after read().
  std::unordered_multimap<std::string, std::uint32_t> tensor_numbers_;  ///< by name
  std::unordered_map<Part, std::uint32_t, PartHash> part_numbers_;
  std::unordered_map<std::string, std::uint32_t> name_numbers_;
  std::unordered_map<std::string, std::uint32_t> table_numbers_;  ///< by text_of()
  /// Number of the last tensor: most ranks have the same tensors in the same order.
  std::uint32_t last_tensor_ = 0;
};

}  // namespace swell::runtime
