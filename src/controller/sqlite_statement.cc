// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/sqlite_statement.h"

namespace swell::controller::sqlite {

std::string text_of(sqlite3_stmt* row, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
  return text != nullptr
             ? std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(row, column)))
             : std::string();
}

void set_number(Json& json, const char* key, sqlite3_stmt* row, int column) {
  if (sqlite3_column_type(row, column) == SQLITE_INTEGER)
    json.set(key, static_cast<std::int64_t>(sqlite3_column_int64(row, column)));
  if (sqlite3_column_type(row, column) == SQLITE_FLOAT)
    json.set(key, sqlite3_column_double(row, column));
}

void set_text(Json& json, const char* key, sqlite3_stmt* row, int column) {
  if (const std::string text = text_of(row, column); !text.empty()) json.set(key, text);
}

void set_document(Json& json, const char* key, sqlite3_stmt* row, int column) {
  if (auto read = Json::parse(text_of(row, column))) json.set(key, std::move(*read));
}

}  // namespace swell::controller::sqlite
