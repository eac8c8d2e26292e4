# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/slurm-version and slurm_packages.sh assign version, suite, cache and top
#
# Part of contrib/slurm-version: a Debian root with Slurm in it, and commands run there.

root_packages=(
  slurmctld slurmd slurm-client slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins munge mariadb-server-core
  mariadb-client-core
  libslurm-dev
  # what tests and the host's Python use
  procps util-linux binutils libssl3 libffi8 libexpat1 zlib1g jq curl iperf3 ucx-utils
)

# Packages of a root in which Swell's packages are installed: Slurm, and nothing that they must bring along.
stock_packages=(
  slurmctld slurmd slurm-client slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins munge mariadb-server-core
  mariadb-client-core procps util-linux
)

# Packages of a root in which Swell's packages are built: those that contrib/packaging needs there.
packages_to_build() { "$top/contrib/setup" --packaging --list && printf 'ccache\n'; }

# Libraries that Swell's programs and plugins, built on the host, load: those of each package that they are built with,
# whatever the library is called in the release.
packages_to_link() { "$top/contrib/setup" --build --list | sed -n 's/-dev$/-dev:library/p'; }

# find_root [KIND]: sets root; makes it where it is not there yet. KIND: root, stock or build.
find_root() {
  kind=${1:-root}
  root=${SWELL_ROOT:-$cache/$kind-$version}
  ((EUID == 0)) || unavailable 'a root of Debian takes root; run this as root'
  [[ -z ${SWELL_ROOT:-} ]] || { [[ -d $root/usr/lib ]] && return || die "SWELL_ROOT='$root' is not a Debian root"; }
  case $kind in
    root) mapfile -t -O "${#root_packages[@]}" root_packages < <(packages_to_link) ;;
    stock) root_packages=("${stock_packages[@]}") ;;
    build) mapfile -t root_packages < <(packages_to_build) ;;
  esac
  lock_cache "$kind-$version"
  has_packages || make_root
  exec {cache_lock}>&-
}

# has_packages: root is whole, and has all of root_packages.
has_packages() {
  local one
  [[ -f $root/.swell-complete ]] || return
  for one in "${root_packages[@]}"; do [[ " $(< "$root/.swell-complete") " == *" $one "* ]] || return; done
}

make_root() {
  local mirror script log=$cache/$kind-$version.log making=$cache/making-$kind-$version
  command -v debootstrap > /dev/null || unavailable 'debootstrap is not installed; run contrib/setup'
  unshare --mount true 2> "$log" || unavailable "no mount namespace of its own: $(tail -n 1 "$log")"
  mirror=$(debian_mirror) || exit
  script=/usr/share/debootstrap/scripts/$suite
  # A release newer than this debootstrap is made as sid is.
  [[ -e $script ]] || script=/usr/share/debootstrap/scripts/sid
  printf 'slurm-version: making a root of Debian %s for Slurm %s, once (1 to 3 minutes)\n' "$suite" "$version" >&2
  rm -rf -- "$root" "$making"
  # All of it ends with this process, even if that is killed, and its mounts with it.
  local apart=(setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child)
  export -f install_in_root library_of
  if ! "${apart[@]}" debootstrap --variant=minbase "$suite" "$making" "$mirror" "$script" > "$log" 2>&1 ||
    ! "${apart[@]}" bash -c 'install_in_root "$@"' _ "$making" "${root_packages[@]}" >> "$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -rf -- "$making"
    unavailable "debootstrap $suite from $mirror failed; all of it is in $log"
  fi
  [[ $(chroot "$making" dpkg-query -W -f '${Version}' slurm-wlm-basic-plugins) == "$version."* ]] || {
    rm -rf -- "$making"
    unavailable "Debian's $suite has another version of Slurm by now"
  }
  add_older_libmariadb "$making" || die "cannot write to $cache"
  printf '%s\n' "${root_packages[*]}" > "$making/.swell-complete" && mv -- "$making" "$root" || die "cannot write to $cache"
}

# add_older_libmariadb ROOT: with libmariadb3 11.8.9 of Debian's forky slurmdbd ends at its first query ("Number of
# columns in result (=1) set execeeds maxmimum allowed number of columns (=0)"); with this host's it does not.
add_older_libmariadb() {
  local library
  library=$(ldconfig -p | sed -n 's/.*libmariadb\.so\.3.* => //p' | head -n 1)
  [[ $suite == forky && -n $library ]] || return 0
  cp -L -- "$library" "$1/usr/local/lib/" && chroot "$1" ldconfig
}

# library_of ROOT PACKAGE: prints, for a package of headers, the package with the library, which it needs in its own version.
library_of() {
  chroot "$1" apt-cache show --no-all-versions "$2" | sed -n 's/^Depends: //p' | tr ',' '\n' | sed -n 's/^ *\(lib[^ ]*\) (= .*/\1/p'
}

install_in_root() {
  local into=$1 one names=()
  shift
  cp /etc/resolv.conf "$into/etc/resolv.conf" && mount -t proc proc "$into/proc" && mount --rbind /dev "$into/dev" &&
    mount -t tmpfs run "$into/run" && printf '#!/bin/sh\nexit 101\n' > "$into/usr/sbin/policy-rc.d" &&
    chmod 755 "$into/usr/sbin/policy-rc.d" || return
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C
  chroot "$into" apt-get -o Acquire::Check-Valid-Until=false update -q || return
  for one; do
    if [[ $one == *:library ]]; then mapfile -t -O "${#names[@]}" names < <(library_of "$into" "${one%:library}"); else names+=("$one"); fi
  done
  chroot "$into" apt-get install -q -y --no-install-recommends "${names[@]}" && chroot "$into" apt-get clean
}

# run_in_root COMMAND...: sees the host's processes, devices, network, users and the folders that it works in.
run_in_root() {
  local shown=() one
  for one in "$top" /tmp "${TMPDIR:-/tmp}" "$PWD" "${SWELL_STAGE:-}"; do show "$one"; done
  while read -r -d : one; do show "$one"; done <<< "${SWELL_BIND:-}:"
  show_python
  # They need the C library alone.
  for one in /usr/bin/prom{etheus,tool}; do show "$one"; done
  export -f enter_root
  exec env "SWELL_ROOT_VERSION=$version" "PATH=$PATH:/usr/sbin:/sbin" unshare --mount --propagation private \
    bash -c 'enter_root "$@"' _ "$root" "$PWD" "${#shown[@]}" ${shown[@]+"${shown[@]}"} "$@"
}

# show FOLDER: unless it, or one above it, is shown already.
show() {
  local one
  [[ $1 == /?* && -e $1 ]] || return 0
  for one in ${shown[@]+"${shown[@]}"}; do [[ $1/ != "$one"/* ]] || return 0; done
  shown+=("$1")
}

# The Python that the tests' environment is made of, with its library: the root's own is another version.
show_python() {
  local python=${SWELL_PYTHON:-$top/.venv/bin/python} real
  real=$(readlink -f -- "$python" 2> /dev/null) && [[ -f $real && -x $real ]] || return 0
  show "${python%/bin/*}"
  # One that does not come from Debian has its library and modules in a folder of its own.
  if [[ $real == /usr/* ]]; then show "$real"; else show "${real%/bin/*}"; fi
  show "/usr/lib/${real##*/}"
  show "/usr/bin/python3"
}

enter_root() {
  local root=$1 folder=$2 count=$3 one
  shift 3
  mount --bind "$root" "$root" || exit 1
  for one in /proc /sys /dev; do mount --rbind "$one" "$root$one" || exit 1; done
  mount -t tmpfs -o mode=755 run "$root/run" && mkdir "$root/run/host" || exit 1
  for one in /etc/passwd /etc/group /etc/hosts /etc/resolv.conf "${@:1:count}"; do
    if [[ -d $one ]]; then mkdir -p "$root$one"; else mkdir -p "$root${one%/*}" && { [[ -e $root$one ]] || : > "$root$one"; }; fi
    mount --rbind "$one" "$(readlink -f "$root$one")" || exit 1
  done
  shift "$count"
  # It becomes the root of these mounts, not of processes alone: a process that makes mounts of its own out of them, as Slurm
  # does for a job's /tmp, stays in there. By its own env: the folder is known in there alone.
  pivot_root "$root" "$root/run/host" && cd / && umount -l /run/host && rmdir /run/host && exec env --chdir="$folder" "$@"
  exit 1
}
