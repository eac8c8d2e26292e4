// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>

#include "core/result.h"
#include "runtime/api/swell.h"
#include "runtime/state/registry.h"

namespace swell::runtime {

/// Returns the value of a C program's enum as a number. It may be any number, and reading a value
/// outside the enum as an enum is undefined in C++.
template <typename Enum>
int number_of(const Enum& given) {
  static_assert(sizeof given == sizeof(int));
  int number = 0;
  std::memcpy(&number, &given, sizeof number);
  return number;
}

/// Reads a C program's tensor. The error names the tensor, the field and the allowed values.
Result<Entry> entry_of(const swell_tensor_t& tensor);

}  // namespace swell::runtime
