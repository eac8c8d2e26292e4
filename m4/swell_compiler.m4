# SPDX-License-Identifier: GPL-2.0-or-later
# SWELL_CXX20: turn C++20 on, and say which compiler is too old.
AC_DEFUN([SWELL_CXX20], [
  CXXFLAGS="$CXXFLAGS -std=c++20"
  AC_CACHE_CHECK([whether $CXX has the C++20 that swell needs], [swell_cv_cxx20],
    [AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
      #include <compare>
      #include <span>
      struct point { int x; auto operator<=>(const point&) const = default; };
      template <typename T> concept small = sizeof(T) <= 8;
      template <small T> T twice(T t) { return t + t; }
      int main() { return twice(point{.x = 0} < point{.x = -1} ? 1 : 0); }
    ]])], [swell_cv_cxx20=yes], [swell_cv_cxx20=no])])
  AS_IF([test "$swell_cv_cxx20" = no],
    [AC_MSG_ERROR([$CXX does not compile C++20: g++ 12 or clang++ 15 is needed])])
  AC_SUBST([SWELL_WARNINGS], ["-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers"])
])

# SWELL_SANITIZERS: --enable-sanitizers[=LIST], address,undefined by default.
AC_DEFUN([SWELL_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
      [build with sanitizers (address,undefined; or e.g. thread)])],
    [], [enable_sanitizers=no])
  AS_CASE([$enable_sanitizers],
    [no], [],
    [yes], [enable_sanitizers=address,undefined])
  AS_IF([test "$enable_sanitizers" != no], [
    CXXFLAGS="$CXXFLAGS -fsanitize=$enable_sanitizers -fno-omit-frame-pointer"
    LDFLAGS="$LDFLAGS -fsanitize=$enable_sanitizers"
  ])
])
