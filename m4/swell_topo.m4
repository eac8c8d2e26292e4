# SPDX-License-Identifier: GPL-2.0-or-later
# SWELL_PKG_OPTIONAL(name, NAME, pkg-config module): found, or left out, or an error where it was asked for.
# NAME_CFLAGS, NAME_LIBS, HAVE_NAME; name_summary says which.
AC_DEFUN([SWELL_PKG_OPTIONAL], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1], [use $3 (default: where found)])], [], [with_$1=auto])
  have_$1=no
  $1_summary="left out (--without-$1)"
  AS_IF([test "$with_$1" != no], [
    PKG_CHECK_MODULES([$2], [$3], [have_$1=yes; $1_summary="yes"], [have_$1=no; $1_summary="left out ($3 not found)"])
    AS_IF([test "$with_$1:$have_$1" = yes:no], [AC_MSG_ERROR([--with-$1: $3 was not found by pkg-config])])
  ])
  AS_IF([test "$have_$1" = yes], [AC_DEFINE([HAVE_$2], [1], [$3 was found])])
  AM_CONDITIONAL([HAVE_$2], [test "$have_$1" = yes])
])
# SWELL_TOPO: what `swell topo` looks with, and measures with.
AC_DEFUN([SWELL_TOPO], [
  SWELL_PKG_OPTIONAL([hwloc], [HWLOC], [hwloc >= 2.5])
  SWELL_PKG_OPTIONAL([verbs], [VERBS], [libibverbs])
  SWELL_PKG_OPTIONAL([ucx], [UCX], [ucx])
])
