// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/grant_book.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/mutex.h"

namespace swell::controller {

namespace {
/// A companion that was admitted shows in the queue long before this; one that was not allocated
/// after all, and whose agent died before it could say so, is forgotten then.
constexpr double kUsedGrantKept_s = 30;
}  // namespace

void GrantBook::add(LiveGrant grant) {
  Lock lock(mutex_);
  grants_[grant.offer.nonce] = std::move(grant);
}

void GrantBook::withdraw(const std::string& nonce) {
  Lock lock(mutex_);
  grants_.erase(nonce);
}

void GrantBook::withdraw_all(JobId parent) {
  Lock lock(mutex_);
  std::erase_if(grants_, [&](const auto& entry) { return entry.second.parent == parent; });
}

std::vector<LiveGrant> GrantBook::take_expired(double now) {
  Lock lock(mutex_);
  std::vector<LiveGrant> expired;
  for (auto it = grants_.begin(); it != grants_.end();) {
    const bool is_admitted = it->second.used && !it->second.refused;
    const double stands_until = it->second.expires + (is_admitted ? kUsedGrantKept_s : 0);
    if (stands_until <= now) {
      expired.push_back(std::move(it->second));
      it = grants_.erase(it);
    } else {
      ++it;
    }
  }
  return expired;
}

Result<LiveGrant> GrantBook::use(const std::string& nonce, uid_t uid, double now) {
  Lock lock(mutex_);
  const auto found = grants_.find(nonce);
  // The same words for an unknown nonce and for another user's: nothing is learnt by guessing.
  if (found == grants_.end() || found->second.uid != uid)
    return Error(
        "there is no live grant with this nonce for this user; companions are created by swellrun only");
  LiveGrant& grant = found->second;
  if (grant.refused)
    return Error(fmt::format("the grant for job {} was refused already", grant.parent));
  if (grant.used) return Error(fmt::format("the grant for job {} was used already", grant.parent));
  if (grant.expires <= now)
    return Error(fmt::format("the grant for job {} has expired", grant.parent));
  grant.used = true;
  return grant;
}

void GrantBook::refuse(const std::string& nonce) {
  Lock lock(mutex_);
  if (const auto found = grants_.find(nonce); found != grants_.end()) found->second.refused = true;
}

void GrantBook::name_companion(const std::string& nonce, JobId parent, JobId companion) {
  Lock lock(mutex_);
  const auto found = grants_.find(nonce);
  if (found == grants_.end() || found->second.parent != parent || !found->second.used) return;
  if (!found->second.companion) found->second.companion = companion;
}

std::optional<LiveGrant> GrantBook::take_named(JobId parent, JobId companion) {
  Lock lock(mutex_);
  for (auto& [nonce, grant] : grants_)
    if (grant.parent == parent && companion != 0 && grant.companion == companion) {
      grant.companion = 0;
      return grant;
    }
  return std::nullopt;
}

std::vector<LiveGrant> GrantBook::outstanding() const {
  Lock lock(mutex_);
  std::vector<LiveGrant> all;
  for (const auto& [nonce, grant] : grants_)
    if (!grant.refused) all.push_back(grant);
  return all;
}

std::optional<LiveGrant> GrantBook::find(const std::string& nonce) const {
  Lock lock(mutex_);
  const auto found = grants_.find(nonce);
  return found != grants_.end() ? std::optional<LiveGrant>(found->second) : std::nullopt;
}

bool GrantBook::has_grant_of(JobId parent) const {
  Lock lock(mutex_);
  return std::any_of(grants_.begin(), grants_.end(),
                     [&](const auto& entry) { return entry.second.parent == parent; });
}

bool GrantBook::has_unseen_companion_of(uid_t uid) const {
  Lock lock(mutex_);
  return std::any_of(grants_.begin(), grants_.end(), [&](const auto& entry) {
    return entry.second.used && !entry.second.refused && entry.second.uid == uid;
  });
}

}  // namespace swell::controller
