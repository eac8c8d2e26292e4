// SPDX-License-Identifier: GPL-2.0-or-later
// A library that says it is UCX of the version in SWELL_STAND_IN_UCX, and has nothing else.
#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) void ucp_get_version(unsigned* major,
                                                                       unsigned* minor,
                                                                       unsigned* release) {
  const char* set = std::getenv("SWELL_STAND_IN_UCX");
  if (set == nullptr || std::sscanf(set, "%u.%u.%u", major, minor, release) != 3)
    *major = *minor = *release = 0;
}
