#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The RPM spec, as far as a host without Slurm's RPMs can look at it.
#   SWELL_RPM=build   compile, too, from what `make dist` makes, with CXXFLAGS where that is set; else the packages are filled with
#                     what is in SWELL_STAGE
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
# shellcheck source=contrib/lib/build.sh
source "$top/contrib/lib/build.sh"
PATH=$PATH:/usr/sbin
skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
for program in rpmbuild rpmspec rpmlint; do command -v "$program" > /dev/null || skip "$program is not installed: run contrib/setup --packaging"; done
spec=$top/contrib/rpm/swell.spec
scratch=$(mktemp -d) || exit 1
trap 'rm -rf -- "$scratch"' EXIT
define=(--define 'slurm_version 24.11.5' --define "_topdir $scratch" --define 'python3_sitelib /usr/lib/python3/site-packages')

the_version() {
  rpmspec -q "${define[@]}" --queryformat '%{NAME} %{RELEASE}\n' "$spec" | tee found
  [[ $(wc -l < found) == 5 && $(grep -c ' 1\.slurm24\.11\.5$' found) == 5 ]] &&
    rpmspec -q "${define[@]}" --requires "$spec" | tee needs && grep -qx 'slurm >= 24.11.5' needs && grep -qx 'slurm < 24.11.6' needs || return
  [[ $(sed -n 's/^Version: *//p' "$spec") == "$(sed -n 's/^AC_INIT(\[swell\], \[\(.*\)\])$/\1/p' "$top/configure.ac")" ]]
}
cd "$scratch" || exit 1
check "each package's release has the version of Slurm, and the plugins need it exactly" the_version

without() { ! rpmspec -q --define "_topdir $scratch" "$spec" 2> said && cat said && grep -q 'slurm-devel is not installed' said; }
command -v rpm > /dev/null && rpm -q slurm-devel > /dev/null 2>&1 || check 'without slurm-devel the version must be said' without

lint() {
  local file=$scratch/swell.spec
  # rpmlint evaluates the spec without our definitions.
  { printf '%%global slurm_version 24.11.5\n' && cat "$spec"; } > "$file"
  rpmlint --config "$top/contrib/rpm/rpmlint.toml" "$file" | tee said
  grep -q '0 errors, 0 warnings' said
}
check 'rpmlint has no complaint' lint

version=$(sed -n 's/^Version: *//p' "$spec")
prepares() {
  mkdir -p SOURCES "swell-$version" && printf 'int main;\n' > "swell-$version/a.c" && tar -cJf "SOURCES/swell-$version.tar.xz" "swell-$version" &&
    rpmbuild --nobuild --nodeps "${define[@]}" "$spec"
}
check 'rpmbuild takes it, and unpacks' prepares

# ---- rpmbuild. Debian's packages, which the build needs, have other names, so nothing is asked for.

[[ -x ${SWELL_STAGE:-}/bin/swellrun ]] || finish_tests
slurm=$(slurmctld -V | cut -d' ' -f2)
define=(--define "slurm_version $slurm" --define "_topdir $scratch" --define 'python3_sitelib /usr/lib/python3/site-packages'
  --define '_binary_payload w1.gzdio')
rpmbuild_says_why() { env "${flags[@]}" rpmbuild --nodeps "${define[@]}" "$@" > built 2>&1 || { grep -E -B 2 -A 20 'error:|Error' built | tail -n 60; return 1; }; }

# The spec, but that what is installed in SWELL_STAGE is taken in place of compiling it once more.
with_what_is_built() {
  local flags=()
  awk -v from="$SWELL_STAGE" '
    /^%build$/ { skip = 1 }
    /^find %{buildroot}/ { skip = 0 }
    !skip
    /^%install$/ {
      print "%install\nmkdir -p %{buildroot}%{_prefix} %{buildroot}%{_libdir}/slurm"
      print "for one in bin include libexec share; do cp -r " from "/$one %{buildroot}%{_prefix}/; done"
      print "cp -r " from "/lib/. %{buildroot}%{_libdir}/\nrm -rf %{buildroot}%{_libdir}/swell/host"
      print "cp " from "/plugins/*.so %{buildroot}%{_libdir}/slurm/"
    }' "$spec" > swell.spec
  tar -C "$top" --transform "s,^,swell-$version/," --exclude=__pycache__ -cJf "SOURCES/swell-$version.tar.xz" COPYING COPYING.BSD README.md docs examples python &&
    rpmbuild_says_why -ba swell.spec
}
# Builds as an administrator does: make dist, rpmbuild -ta.
from_nothing() {
  local tree=$scratch/BUILD/swell-$version flags
  make -s -C "$SWELL_STAGE/.." dist && mv "$SWELL_STAGE/../swell-$version.tar.xz" . && mkdir -p "$tree" || return
  # With the flags of contrib/check's build, or those of the environment.
  if [[ -n ${CXXFLAGS:-} ]]; then flags=("CXXFLAGS=$CXXFLAGS"); else mapfile -t flags < <(package_flags "$tree"); fi
  if command -v ccache > /dev/null; then flags+=('CXX=ccache g++' CCACHE_NOHASHDIR=1 "CCACHE_BASEDIR=$tree"); fi
  if command -v ld.gold > /dev/null; then flags+=(LDFLAGS=-fuse-ld=gold); fi
  rpmbuild_says_why -ta "swell-$version.tar.xz"
}
if [[ ${SWELL_RPM:-} == build ]]; then
  check 'rpmbuild builds all packages, source and binary, from what make dist makes' from_nothing
else
  check 'rpmbuild makes all packages, source and binary, of what is built' with_what_is_built
fi
((failures == 0)) || finish_tests

rpm_of() { find "$scratch/RPMS" -name "$1-$version-1.slurm$slurm*.rpm" | grep .; } # NAME
# What is installed and in no package has failed the build.
contents() {
  local one name file
  [[ $(find SRPMS -name "swell-$version-1.slurm$slurm*.src.rpm" | wc -l) == 1 ]] || { ls -R SRPMS RPMS; return 1; }
  for one in swell:bin/{swell,swellrun} swell:share/man/man7/swell-admin.7 swell-slurm-plugins:lib64/slurm/{sched,job_submit,spank}_swell.so \
    swell-slurm-plugins:lib64/swell/{shadow/sched_backfill,select/select_cons_tres,libswell-controller}.so swell-libs:lib64/libswell.so.1 \
    swell-libs:lib64/libswell-nccl-profiler.so swell-devel:include/swell.h swell-devel:lib64/pkgconfig/swell.pc \
    python3-swell:lib/python3/site-packages/swell/torch.py; do
    name=${one%%:*} file=/usr/${one#*:}
    rpm -qlp "$(rpm_of "$name")" > files && grep -qxE "$file(\.gz)?" files || { printf '%s is not in %s\n' "$file" "$name"; return 1; }
  done
}
check 'each has what is its own' contents

needs() {
  rpm -qp --requires "$(rpm_of swell-slurm-plugins)" > said && cat said && grep -qx "slurm >= $slurm" said && grep -qE "^slurm < ${slurm%.*}\.[0-9]+$" said &&
    grep -qF 'libsqlite3.so.0()' said && ! rpm -qp --provides "$(rpm_of swell-slurm-plugins)" | grep 'backfill\|cons_tres'
}
check 'the plugins need that Slurm and their libraries, and offer nobody what is Slurm'"'"'s' needs

# As they lie: where they look for what is Swell's, and when they bind.
unpacked() {
  local one bad=0
  mkdir installed && for one in swell swell-slurm-plugins; do (cd installed && rpm2cpio "$(rpm_of "$one")" | cpio -idm --quiet) || return; done
  while IFS= read -r one; do
    readelf -dW "$one" | grep -E 'RPATH|RUNPATH' | grep -vF '[/usr/lib64/swell]' && { printf '%s: an rpath\n' "$one"; bad=1; }
    [[ $one != */lib64/slurm/* ]] || ! readelf -dW "$one" | grep BIND_NOW || { printf '%s binds at once\n' "$one"; bad=1; }
  done < <(find installed -type f \( -name '*.so*' -o -path '*/bin/*' \))
  return $bad
}
[[ ${SWELL_RPM:-} != build ]] || check 'they look for libraries in no folder but their own, and plugins bind lazily' unpacked

finish_tests
