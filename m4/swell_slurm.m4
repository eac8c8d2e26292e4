# SPDX-License-Identifier: GPL-2.0-or-later
# SWELL_SLURM: find Slurm's public headers, library, version and plugin folder.
#   --with-slurm=PREFIX      where slurm/slurm.h and libslurm stand
#   --disable-slurm-rpath    libslurm will be where the system looks, not in PREFIX
#   --with-plugindir=DIR     where Swell's plugins go (default: Slurm's own folder)
# Sets SLURM_CPPFLAGS, SLURM_LIBS, plugindir, slurm_version, slurm_where.
AC_DEFUN([SWELL_SLURM], [
  AC_ARG_WITH([slurm],
    [AS_HELP_STRING([--with-slurm=PREFIX], [Slurm's installation (default: the system's)])],
    [], [with_slurm=system])
  AC_ARG_WITH([plugindir],
    [AS_HELP_STRING([--with-plugindir=DIR], [where plugins are installed (default: Slurm's plugin folder)])],
    [], [with_plugindir=])

  AC_ARG_ENABLE([slurm-rpath],
    [AS_HELP_STRING([--disable-slurm-rpath], [what is built for another host: do not look for libslurm in PREFIX there])],
    [], [enable_slurm_rpath=yes])

  slurm_where=system slurm_library= slurm_rpath=
  swell_libdirs="/usr/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib"
  AS_CASE([$with_slurm],
    [system|yes], [],
    [no], [AC_MSG_ERROR([Swell is a plugin suite for Slurm and cannot be built --without-slurm])],
    [slurm_where=$with_slurm
     AS_IF([test ! -f "$with_slurm/include/slurm/slurm.h"],
       [AC_MSG_ERROR([--with-slurm=$with_slurm: there is no include/slurm/slurm.h there.
  Slurm's public headers are in the package libslurm-dev (Debian, Ubuntu) or slurm-devel (RPM); or name another prefix])])
     SLURM_CPPFLAGS="-isystem $with_slurm/include"
     swell_libdirs="$with_slurm/lib64 $with_slurm/lib $with_slurm/lib/x86_64-linux-gnu $with_slurm/lib/aarch64-linux-gnu"
     for dir in $swell_libdirs; do
       AS_IF([test -e "$dir/libslurm.so"], [SLURM_LDFLAGS="-L$dir"
         slurm_library=$dir/libslurm.so
         AS_IF([test "$enable_slurm_rpath" = yes], [slurm_rpath="-Wl,-rpath,$dir"])
         break])
     done])

  save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
  AC_CHECK_HEADERS([slurm/slurm.h slurm/slurmdb.h slurm/spank.h slurm/slurm_errno.h slurm/slurm_version.h], [],
    [AC_MSG_ERROR([Slurm's public headers were not found (looked for $ac_header in: $slurm_where).
  Install them: libslurm-dev (Debian, Ubuntu) or slurm-devel (RPM), or name Slurm's prefix: --with-slurm=PREFIX])],
    [#include <stdint.h>
     #include <sys/types.h>
     #include <slurm/slurm.h>])
  AC_COMPUTE_INT([swell_slurm_number], [SLURM_VERSION_NUMBER], [#include <slurm/slurm_version.h>],
    [AC_MSG_ERROR([slurm/slurm_version.h does not define SLURM_VERSION_NUMBER])])
  dnl Newer versions have no such error.
  AC_CHECK_DECLS([ESLURM_JOB_SETTING_DB_INX], [], [], [[#include <slurm/slurm_errno.h>]])
  CPPFLAGS=$save_CPPFLAGS
  slurm_version=`printf '%d.%02d.%d' $((swell_slurm_number >> 16)) $((swell_slurm_number >> 8 & 255)) $((swell_slurm_number & 255))`
  AS_IF([test "$swell_slurm_number" -lt $(((22 << 16) + (5 << 8)))],
    [AC_MSG_ERROR([Slurm $slurm_version is too old: 22.05 or later is needed])])

  save_LIBS=$LIBS; save_LDFLAGS=$LDFLAGS; LDFLAGS="$LDFLAGS $SLURM_LDFLAGS $slurm_rpath"
  dnl By its file, out of libtool's sight: where the system has a libslurm.la of another version, libtool links that,
  dnl whatever -L says.
  AC_CHECK_LIB([slurm], [slurm_load_jobs],
    [AS_IF([test -n "$slurm_library"],
      [SLURM_LIBS="-Wl,--push-state,--no-as-needed,$slurm_library,--pop-state $slurm_rpath"], [SLURM_LIBS=-lslurm])],
    [AC_MSG_ERROR([libslurm was not found. Install it: libslurm-dev (Debian, Ubuntu) or slurm-devel (RPM), or name Slurm's prefix: --with-slurm=PREFIX])])
  LIBS=$save_LIBS; LDFLAGS=$save_LDFLAGS

  slurm_plugindir=
  for dir in $swell_libdirs; do
    for sub in slurm-wlm slurm; do
      AS_IF([test -z "$slurm_plugindir" && test -e "$dir/$sub/sched_backfill.so"], [slurm_plugindir=$dir/$sub])
    done
  done
  AS_IF([test -n "$with_plugindir"], [plugindir=$with_plugindir],
        [test -n "$slurm_plugindir"], [plugindir=$slurm_plugindir],
        [plugindir='${libdir}/slurm'])
  AC_SUBST([SLURM_CPPFLAGS])
  AC_SUBST([SLURM_LIBS])
  AC_SUBST([plugindir])
  AC_SUBST([slurm_plugindir])
])
