// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/slabs.h"

#include "runtime/state/arena.h"

namespace swell::runtime {

std::uint64_t Slabs::take(const std::string& gpu, std::uint64_t bytes, std::uint64_t slab_bytes) {
  bytes = Extents::rounded(bytes);
  if (open_.empty() || all_[open_.back()].gpu != gpu ||
      !fits_in_slab(all_[open_.back()].bytes, bytes, slab_bytes)) {
    open_.push_back(next_number());
    all_[open_.back()].gpu = gpu;
  }
  Slab& slab = all_[open_.back()];
  const std::uint64_t at = DevicePlace::of(open_.back(), slab.bytes);
  slab.bytes += bytes;
  return at;
}

std::vector<SlabSize> Slabs::seal(std::uint64_t granularity) {
  std::vector<SlabSize> sealed;
  for (const std::uint64_t number : open_) {
    Slab& slab = all_[number];
    slab.bytes = (slab.bytes + granularity - 1) / granularity * granularity;
    sealed.push_back({number, slab.bytes});
  }
  open_.clear();
  return sealed;
}

void Slabs::set(std::uint64_t slab, Descriptor fd) {
  if (const auto at = all_.find(slab); at != all_.end())
    at->second.fd = std::make_shared<const Descriptor>(std::move(fd));
}

void Slabs::release(std::uint64_t slab) {
  if (const auto at = all_.find(slab); at != all_.end()) at->second.fd.reset();
}

std::vector<SlabOf> Slabs::held() const {
  std::vector<SlabOf> held;
  for (const auto& [number, slab] : all_)
    if (slab.fd != nullptr) held.push_back({number, slab.bytes, slab.gpu});
  return held;
}

std::uint64_t Slabs::held_bytes(const std::string& gpu) const {
  std::uint64_t sum = 0;
  for (const auto& [number, slab] : all_)
    if (slab.fd != nullptr && slab.gpu == gpu) sum += slab.bytes;
  return sum;
}

const Slabs::Slab* Slabs::find(std::uint64_t slab) const {
  const auto at = all_.find(slab);
  return at != all_.end() ? &at->second : nullptr;
}

void Slabs::use(std::uint64_t at) { ++all_[DevicePlace::slab(at)].uses; }

void Slabs::drop(std::uint64_t at) {
  const auto slab = all_.find(DevicePlace::slab(at));
  if (slab != all_.end() && --slab->second.uses == 0) all_.erase(slab);
}

void Slabs::sweep() {
  open_.clear();
  std::erase_if(all_, [](const auto& each) { return each.second.uses == 0; });
}

}  // namespace swell::runtime
