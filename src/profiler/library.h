// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <string>

#include "core/result.h"

namespace swell::profiler {

/// A shared library that is opened while the program runs. It stays open: what was found in it is
/// of use until the process ends.
class Library {
 public:
  struct Function {
    template <typename Pointer>
    Function(const char* called, Pointer* pointer) : name(called), where(pointer) {}
    const char* name;
    void* where;  ///< of the pointer
  };
  Result<void> open(const std::string& path);
  /// Only if the process has it open already.
  Result<void> open_again(const std::string& path);
  /// Sets every function, or names the first that is not there.
  Result<void> find(std::initializer_list<Function> functions) const;

 private:
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace swell::profiler
