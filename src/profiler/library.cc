// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/library.h"

#include <cstring>
#include <dlfcn.h>

namespace swell::profiler {

namespace {

Result<void> open_as(const std::string& path, int flags, void** handle) {
  *handle = dlopen(path.c_str(), flags);
  if (*handle != nullptr) return {};
  const char* why = dlerror();
  return Error(why != nullptr ? std::string(why) : path + " is not loaded in this process");
}

}  // namespace

Result<void> Library::open(const std::string& path) {
  path_ = path;
  return open_as(path, RTLD_NOW | RTLD_LOCAL, &handle_);
}

Result<void> Library::open_again(const std::string& path) {
  path_ = path;
  return open_as(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, &handle_);
}

Result<void> Library::find(std::initializer_list<Function> functions) const {
  for (const Function& function : functions) {
    void* const found = dlsym(handle_, function.name);
    std::memcpy(function.where, &found, sizeof found);
    if (found == nullptr) return Error(path_ + " has no " + function.name);
  }
  return {};
}

}  // namespace swell::profiler
