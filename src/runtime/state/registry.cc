// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/registry.h"

#include <fmt/format.h>

#include "runtime/state/region.h"

namespace swell::runtime {

namespace {

bool share_elements(const Part& a, const Part& b) {
  for (const Box& one : boxes_of(a))
    for (const Box& other : boxes_of(b))
      if (common(one, other)) return true;
  return false;
}

const std::string& root_of(const Entry& entry) {
  return entry.alias_of.empty() ? entry.tensor.name : entry.alias_of;
}

std::string different(const TensorInfo& a, const TensorInfo& b) {
  if (a.shape != b.shape) return "shape";
  if (a.dtype != b.dtype) return "dtype";
  if (a.kind != b.kind) return "kind";
  if (a.layer != b.layer) return "layer";
  return a.optional != b.optional ? "word on whether it is optional" : "";
}

}  // namespace

Result<void> Registry::add(Entry entry) {
  const std::string& name = entry.tensor.name;
  if (name.empty() || name.size() > kMaxName)
    return Error(
        fmt::format("a tensor's name has {} bytes; 1 to {} are possible", name.size(), kMaxName));
  const std::string what = fmt::format("tensor {}", name);
  if (auto good = element_count(entry.tensor.shape); !good) return good.error().while_doing(what);
  if (auto good = check(entry.part, entry.tensor.shape); !good)
    return good.error().while_doing(what);
  if (entry.address == 0) return Error(what + " has no address");
  for (const Entry& other : entries_) {
    if (other.tensor.name != name) continue;
    if (const std::string field = different(other.tensor, entry.tensor); !field.empty())
      return Error(fmt::format(
          "{}: its {} differs from that of a part registered before; all parts of one tensor agree",
          what, field));
    if (other.alias_of != entry.alias_of)
      return Error(what +
                   ": an earlier part is not an alias of the same tensor; all parts are, or none");
    if (share_elements(other.part, entry.part))
      return Error(what + ": this rank holds some of these elements already, in an earlier part");
  }
  if (auto good = check_alias(entry); !good) return good.error().while_doing(what);
  if (auto good = check_memory(entry); !good) return good.error().while_doing(what);
  entries_.push_back(std::move(entry));
  return {};
}

Result<void> Registry::check_alias(const Entry& entry) const {
  if (entry.alias_of == entry.tensor.name) return Error("it is an alias of itself");
  for (const Entry& other : entries_) {
    if (!entry.alias_of.empty() && other.tensor.name == entry.alias_of && !other.alias_of.empty())
      return Error(fmt::format("it is an alias of {}, which is an alias itself; name {}",
                               entry.alias_of, other.alias_of));
    if (other.alias_of == entry.tensor.name && !entry.alias_of.empty())
      return Error(fmt::format("it is an alias, and {} is an alias of it; name {} there",
                               other.tensor.name, entry.alias_of));
    if (other.tensor.name == entry.tensor.name || root_of(other) != root_of(entry)) continue;
    if (other.tensor.shape != entry.tensor.shape || other.tensor.dtype != entry.tensor.dtype)
      return Error(
          fmt::format("{} has another shape or dtype; aliases have the same", other.tensor.name));
    if (share_elements(other.part, entry.part) &&
        (other.part != entry.part || other.address != entry.address ||
         other.device != entry.device))
      return Error(
          fmt::format("the same elements stand elsewhere for {}; aliases on one rank share memory",
                      other.tensor.name));
  }
  return {};
}

Result<void> Registry::check_memory(const Entry& entry) const {
  const auto size = static_cast<std::uintptr_t>(entry.bytes());
  if (entry.address + size < entry.address)
    return Error(fmt::format("{} bytes from its address are more than there are", size));
  for (const Entry& other : entries_) {
    if (other.device != entry.device) continue;
    const auto others = static_cast<std::uintptr_t>(other.bytes());
    if (other.address >= entry.address + size || entry.address >= other.address + others) continue;
    const bool alias = root_of(other) == root_of(entry) && other.tensor.name != entry.tensor.name;
    if (!alias)
      return Error(fmt::format(
          "its memory overlaps that of {}; say so with an alias if they are the same values",
          other.tensor.name));
  }
  return {};
}

bool Registry::remove(std::string_view name) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.tensor.name == name; }) > 0;
}

std::int64_t Registry::bytes() const noexcept {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) {
    bool counted = false;
    for (const Entry& earlier : entries_) {
      if (&earlier == &entry) break;
      counted = counted || (earlier.device == entry.device && earlier.address == entry.address &&
                            root_of(earlier) == root_of(entry));
    }
    if (!counted) sum += entry.bytes();
  }
  return sum;
}

}  // namespace swell::runtime
