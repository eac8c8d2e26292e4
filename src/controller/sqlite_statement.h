// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <sqlite3.h>
#include <string>

#include "core/json.h"

/// Statements of SQLite and what their rows hold, for history_store.cc.
namespace swell::controller::sqlite {

/// One SQL statement and its parameters, in order. A bind or step after a failure does nothing.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    code_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& with(std::int64_t value) {
    return bound(sqlite3_bind_int64(statement_, ++last_, value));
  }
  Statement& with(double value) { return bound(sqlite3_bind_double(statement_, ++last_, value)); }
  /// Empty: NULL.
  Statement& with(const std::string& value) {
    if (value.empty()) return nothing();
    return bound(sqlite3_bind_text(statement_, ++last_, value.data(),
                                   static_cast<int>(value.size()), SQLITE_TRANSIENT));
  }
  Statement& nothing() { return bound(sqlite3_bind_null(statement_, ++last_)); }
  /// 0: NULL.
  Statement& unless_0(double value) { return value != 0 ? with(value) : nothing(); }
  Statement& unless_0(std::int64_t value) { return value != 0 ? with(value) : nothing(); }

  /// Whether there is another row.
  bool next() {
    if (code_ == SQLITE_OK || code_ == SQLITE_ROW) code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  /// Runs it to its end. Returns whether nothing failed.
  bool done() {
    while (next()) {}
    return code_ == SQLITE_DONE;
  }
  /// Whether it could not be run to its end, or to the last row of next().
  bool has_failed() const noexcept {
    return code_ != SQLITE_OK && code_ != SQLITE_ROW && code_ != SQLITE_DONE;
  }
  sqlite3_stmt* row() const noexcept { return statement_; }

 private:
  Statement& bound(int code) {
    if (code_ == SQLITE_OK) code_ = code;
    return *this;
  }
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK, last_ = 0;
};

/// A column's text; empty where it is NULL.
std::string text_of(sqlite3_stmt* row, int column);
/// Sets `key` to a column's number; leaves it out where the column holds none.
void set_number(Json& json, const char* key, sqlite3_stmt* row, int column);
/// Sets `key` to a column's text; leaves it out where that is empty.
void set_text(Json& json, const char* key, sqlite3_stmt* row, int column);
/// Sets `key` to what a column holds as JSON; leaves it out where that cannot be read.
void set_document(Json& json, const char* key, sqlite3_stmt* row, int column);

}  // namespace swell::controller::sqlite
