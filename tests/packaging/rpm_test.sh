#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The RPM spec, as far as a host without Slurm's RPMs can look at it.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
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

prepares() {
  local version
  version=$(sed -n 's/^Version: *//p' "$spec")
  mkdir -p SOURCES "swell-$version" && printf 'int main;\n' > "swell-$version/a.c" && tar -cJf "SOURCES/swell-$version.tar.xz" "swell-$version" &&
    rpmbuild --nobuild --nodeps "${define[@]}" "$spec"
}
check 'rpmbuild takes it, and unpacks' prepares

# All that `make install` puts somewhere is in a package.
patterns() { rpmspec -P "${define[@]}" --define '_libdir /usr/lib64' "$spec" | awk '/^%files/ { inside = 1; next } /^%changelog/ { inside = 0 } inside && /^\// { print $1 }'; }
every_file() {
  local file where pattern found missing=0
  mapfile -t listed < <(patterns)
  ((${#listed[@]} > 10)) || { printf 'no list of files\n'; return 1; }
  while IFS= read -r file; do
    case $file in
      ./plugins/*) where=/usr/lib64/slurm/${file#./plugins/} ;;
      ./lib/*) where=/usr/lib64/${file#./lib/} ;;
      *) where=/usr/${file#./} ;;
    esac
    found=no
    # shellcheck disable=SC2053 # a pattern, or a folder
    for pattern in "${listed[@]}"; do [[ $where != $pattern && $where != $pattern/* ]] || found=yes; done
    [[ $found == yes ]] || { printf '%s is in no package\n' "$where"; missing=1; }
  done < <(cd "$SWELL_STAGE" && find . \( -type f -o -type l \) ! -name '*.la' ! -path './lib/swell/host/*')
  return $missing
}
[[ ! -x ${SWELL_STAGE:-}/bin/swellrun ]] || check 'each file that make install makes is in a package' every_file

finish_tests
