# SPDX-License-Identifier: GPL-2.0-or-later
# How a Slurm plugin is linked: no version in its name, only the plugin's symbols exported, lazily
# bound, since Slurm's own symbols are the host program's.
AM_CPPFLAGS += $(SLURM_CPPFLAGS)
PLUGIN_LDFLAGS = -module -avoid-version -shared -Wl,-z,lazy

# Slurm opens every file of its plugin folder by name; libtool's archives are no use there.
install-data-hook:
	rm -f $(DESTDIR)$(plugindir)/*_swell.la $(DESTDIR)$(pkglibdir)/shadow/*.la $(DESTDIR)$(pkglibdir)/select/*.la
uninstall-hook:
	rm -f $(DESTDIR)$(plugindir)/*_swell.so $(DESTDIR)$(pkglibdir)/shadow/*.so $(DESTDIR)$(pkglibdir)/select/*.so
