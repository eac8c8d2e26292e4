# SPDX-License-Identifier: GPL-2.0-or-later
# How a Slurm plugin is linked: its name has no version, only the plugin's symbols are exported, and
# binding is lazy, because the host program has Slurm's own symbols.
AM_CPPFLAGS += $(SLURM_CPPFLAGS)
PLUGIN_LDFLAGS = -module -avoid-version -shared -Wl,-z,lazy

# Slurm opens every file of its plugin folder by name, so libtool's archives are removed there.
install-data-hook:
	rm -f $(DESTDIR)$(plugindir)/*_swell.la $(DESTDIR)$(pkglibdir)/shadow/*.la $(DESTDIR)$(pkglibdir)/select/*.la
uninstall-hook:
	rm -f $(DESTDIR)$(plugindir)/*_swell.so $(DESTDIR)$(pkglibdir)/shadow/*.so $(DESTDIR)$(pkglibdir)/select/*.so
