# SPDX-License-Identifier: GPL-2.0-or-later
# SWELL_CUDA, SWELL_NCCL: found, or left out. NAME_summary says which.
#   $1 name, $2 NAME, $3 header, $4 default prefixes
AC_DEFUN([SWELL_OPTIONAL_PREFIX], [
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1@<:@=PREFIX@:>@], [use $2 (default: where found)])],
    [], [with_$1=auto])
  have_$1=no
  $1_summary="left out (--without-$1)"
  AS_IF([test "$with_$1" != no], [
    AS_CASE([$with_$1], [auto|yes], [swell_prefixes="$4"], [swell_prefixes=$with_$1])
    $1_summary="left out ($3 not found)"
    for swell_dir in $swell_prefixes; do
      AS_IF([test "$have_$1" = no && test -f "$swell_dir/include/$3"], [
        have_$1=yes
        $2_CPPFLAGS="-I$swell_dir/include"
        $1_summary="$swell_dir"
        AC_DEFINE([HAVE_$2], [1], [$2 headers were found])
      ])
    done
    AS_CASE([$with_$1], [auto], [], [AS_IF([test "$have_$1" = no],
      [AC_MSG_ERROR([--with-$1=$with_$1: no include/$3 there])])])
  ])
  AC_SUBST([$2_CPPFLAGS])
  AM_CONDITIONAL([HAVE_$2], [test "$have_$1" = yes])
])
AC_DEFUN([SWELL_CUDA], [SWELL_OPTIONAL_PREFIX([cuda], [CUDA], [cuda.h], [$CUDA_HOME /usr/local/cuda /usr])])
AC_DEFUN([SWELL_NCCL], [SWELL_OPTIONAL_PREFIX([nccl], [NCCL], [nccl.h], [$NCCL_HOME /usr/local /usr /usr/local/cuda])])
