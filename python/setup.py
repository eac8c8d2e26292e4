# SPDX-License-Identifier: BSD-3-Clause
"""A wheel with libswell in it, where contrib/wheel has put it into swell/lib, is one of this platform; else a pure one."""

import os
import platform

from setuptools import setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:     # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HAS_LIBRARY = os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "swell", "lib"))


class Wheel(bdist_wheel):
    """Any Python 3, as nothing is compiled against it; this glibc or a later one."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not HAS_LIBRARY

    def get_tag(self):
        if not HAS_LIBRARY:
            return super().get_tag()
        glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
        return "py3", "none", f"manylinux_{glibc}_{platform.machine()}"


setup(cmdclass={"bdist_wheel": Wheel})
