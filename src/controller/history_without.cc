// SPDX-License-Identifier: GPL-2.0-or-later
// The history of a build without SQLite: there is none, and each caller is told so.
#include "controller/history_store.h"

namespace swell::controller {

namespace {

Error none() {
  return Error("this Swell was built without SQLite: install libsqlite3-dev and build it again");
}

}  // namespace

bool history_is_built_in() noexcept { return false; }

void HistoryStore::Close::operator()(sqlite3*) const noexcept {}
Result<HistoryStore> HistoryStore::open(const std::string&, Access, int) { return none(); }
HistoryStore::Opening HistoryStore::open_or_rebuild(const std::string&, int) {
  return {.store = {}, .problem = none().message()};
}
Result<void> HistoryStore::write(const std::vector<history::Stamped>&) { return none(); }
Result<void> HistoryStore::only_these_run(double, const std::vector<control::JobId>&) {
  return none();
}
Result<void> HistoryStore::forget_before(double) { return none(); }
Result<void> HistoryStore::keep_within(std::int64_t, std::int64_t) { return none(); }
Result<Json> HistoryStore::of_job(control::JobId, std::optional<uid_t>, std::int64_t, std::size_t,
                                  bool) const {
  return none();
}
Result<Json> HistoryStore::last_changes(control::JobId, std::optional<uid_t>, int,
                                        std::size_t) const {
  return none();
}
std::vector<history::Scale> HistoryStore::scales_of(const std::vector<control::JobId>&) const {
  return {};
}

}  // namespace swell::controller
