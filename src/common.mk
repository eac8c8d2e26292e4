# SPDX-License-Identifier: GPL-2.0-or-later
# What every folder compiles with. Symbols are hidden unless a file says otherwise.
AM_CPPFLAGS = -I$(top_srcdir)/src -I$(top_builddir) -DSWELL_PKGLIBDIR='"$(pkglibdir)"' \
  -DSWELL_PKGLIBEXECDIR='"$(pkglibexecdir)"'
AM_CXXFLAGS = $(SWELL_WARNINGS) -fvisibility=hidden -fvisibility-inlines-hidden $(JANSSON_CFLAGS) $(FMT_CFLAGS)
