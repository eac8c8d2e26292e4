// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <string>

#include "core/result.h"

namespace swell::profiler {

/// A shared library that is opened while the program runs. It is never closed, so the functions
/// found in it stay valid until the process ends.
class Library {
 public:
  struct Function {
    template <typename Pointer>
    Function(const char* called, Pointer* pointer) : name(called), where(pointer) {}
    const char* name;
    void* where;  ///< address of the pointer that is set
  };
  Result<void> open(const std::string& path);
  /// Opens the library only if the process has already loaded it.
  Result<void> open_again(const std::string& path);
  /// Sets every function pointer; the error names the first function that is missing.
  Result<void> find(std::initializer_list<Function> functions) const;

 private:
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace swell::profiler
