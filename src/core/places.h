// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace swell {

/// Places for peers that have not proved yet who they are: few in all, and fewer for one address. A
/// newcomer takes the place of the oldest peer, so that silent peers lock nobody out.
class Places {
 public:
  /// Numbers of peers rise, so the oldest peer has the smallest one.
  using Id = std::uint64_t;

  /// Makes `all` places, at most `of_one_address` of them for one address. REQUIRES: both are at
  /// least 1.
  Places(std::size_t all, std::size_t of_one_address) noexcept
      : all_(all), of_one_address_(of_one_address) {}

  /// Returns the peer that must leave before another one of `address` may come: the oldest of this
  /// address if it has all its places, else the oldest of the address with most places.
  std::optional<Id> in_the_way_of(const std::string& address) const {
    const auto own = by_address_.find(address);
    if (own != by_address_.end() && own->second.size() >= of_one_address_)
      return *own->second.begin();
    if (address_of_.size() < all_) return std::nullopt;
    const auto crowd = std::max_element(
        by_address_.begin(), by_address_.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    return *crowd->second.begin();
  }

  void take(Id id, const std::string& address) {
    address_of_.emplace(id, address);
    by_address_[address].insert(id);
  }

  /// Frees the place of `id`, if it has one.
  void leave(Id id) {
    const auto found = address_of_.find(id);
    if (found == address_of_.end()) return;
    const auto own = by_address_.find(found->second);
    own->second.erase(id);
    if (own->second.empty()) by_address_.erase(own);
    address_of_.erase(found);
  }

  std::optional<Id> oldest() const {
    if (address_of_.empty()) return std::nullopt;
    return address_of_.begin()->first;
  }

 private:
  std::size_t all_, of_one_address_;
  std::map<Id, std::string> address_of_;
  std::map<std::string, std::set<Id>> by_address_;
};

}  // namespace swell
