# SPDX-License-Identifier: GPL-2.0-or-later
# What every folder compiles with. Symbols are hidden unless a file says otherwise. Folders of the installation are known to the
# objects alone that name them: ccache takes all others from a build with another prefix.
AM_CPPFLAGS = -I$(top_srcdir)/src -I$(top_builddir)
SWELL_CXXFLAGS = $(SWELL_WARNINGS) -pthread -fvisibility=hidden -fvisibility-inlines-hidden $(JANSSON_CFLAGS) $(FMT_CFLAGS)
AM_CXXFLAGS = $(SWELL_CXXFLAGS)
if PCH
SWELL_PCH = -fpch-preprocess -include $(top_builddir)/src/pch/standard.h
AM_CXXFLAGS += $(SWELL_PCH)
endif
