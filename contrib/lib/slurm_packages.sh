# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154  # contrib/slurm-version assigns version, suite and top
#
# Part of contrib/slurm-version: which release of Debian has which Slurm, and its packages, fetched without touching what
# apt knows of this host.

slurm_releases() {
  cat << 'LIST'
22.05 bookworm
24.11 trixie
26.05 forky
LIST
}

suite_of() { slurm_releases | awk -v version="$1" '$1 == version { print $2; found = 1 } END { exit !found }'; }

# native_version: prints the version of the slurmctld that is installed here.
native_version() {
  local said
  said=$(PATH=$PATH:/usr/sbin slurmctld -V 2> /dev/null) && [[ $said =~ ([0-9]+\.[0-9]+)\.[0-9]+ ]] &&
    printf '%s\n' "${BASH_REMATCH[1]}"
}

cache=${SWELL_CACHE:-/var/tmp/swell-cache-$UID}

# open_cache: makes the folder, ours alone, as what lies in it is run.
open_cache() {
  mkdir -p -m 755 -- "$cache" || die "cannot make the folder $cache: set SWELL_CACHE"
  [[ -O $cache && ! -L $cache ]] || die "$cache belongs to another user: set SWELL_CACHE"
}

# lock_cache NAME: locks it until this process ends; waits while another process makes it.
lock_cache() {
  open_cache
  exec {cache_lock}> "$cache/$1.lock" || die "cannot write to $cache"
  flock -w 1200 "$cache_lock" || die "another process holds $cache/$1.lock"
}

# debian_mirror: where apt gets Debian's own packages from.
debian_mirror() {
  local mirror=${SWELL_DEBIAN_MIRROR:-}
  command -v apt-get > /dev/null || unavailable 'no apt-get here; install that Slurm by other means and name it with --with-slurm'
  [[ -n $mirror ]] || mirror=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)' 2> /dev/null |
    awk '$1 == "Debian" && $2 == "main" && $3 !~ /-/ { print $4; exit }')
  [[ -n $mirror ]] || unavailable "apt has no mirror of Debian (run apt-get update), and SWELL_DEBIAN_MIRROR is not set"
  printf '%s\n' "$mirror"
}

# apt_apart FOLDER ARGUMENTS...: apt for the release alone, with its own lists and caches below the folder. Signatures
# are checked; a mirror that is some days behind will do.
apt_apart() {
  local folder=$1
  shift
  apt-get -q -o Dir::State="$folder/state" -o Dir::State::status="$folder/status" -o Dir::Cache="$folder/cache" \
    -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=- \
    -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false "$@"
}

# find_headers: sets prefix to a folder with include/slurm and lib/.../libslurm.so of the version.
find_headers() {
  local folder mirror where=$cache/headers-$version
  if [[ $(native_version) == "$version" && -f /usr/include/slurm/slurm_version.h ]]; then
    prefix=/usr
    return 0
  fi
  prefix=$where/usr
  lock_cache "headers-$version"
  [[ ! -f $where/complete ]] || return 0
  rm -rf -- "$where"
  mirror=$(debian_mirror) || exit
  folder=$(mktemp -d "$cache/fetch-XXXXXX") || die "cannot write to $cache"
  fetch_headers > "$folder/log" 2>&1 || {
    tail -n 5 "$folder/log" >&2
    rm -rf -- "$folder" "$where"
    unavailable "libslurm-dev of Debian's $suite could not be fetched from $mirror; see above"
  }
  rm -rf -- "$folder"
  headers_are "$where" || {
    rm -rf -- "$where"
    unavailable "Debian's $suite has another version of Slurm by now"
  }
  touch "$where/complete"
}

fetch_headers() {
  local package
  printf 'deb %s %s main\n' "$mirror" "$suite" > "$folder/sources.list"
  mkdir -p "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/deb" && : > "$folder/status" &&
    apt_apart "$folder" update || return
  # libslurm-dev's link names the library; the stock plugins say which symbols a select plugin passes on.
  for package in libslurm-dev slurm-wlm-basic-plugins $(libslurm_package); do
    (cd "$folder/deb" && apt_apart "$folder" download "$package") || return
  done
  for package in "$folder"/deb/*.deb; do dpkg-deb -x "$package" "$where" || return; done
}

# libslurm_package: the library's package has its number in its name.
libslurm_package() {
  apt-cache -o Dir::State="$folder/state" -o Dir::State::status="$folder/status" -o Dir::Cache="$folder/cache" \
    -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- depends libslurm-dev |
    sed -n 's/.*Depends: \(libslurm[0-9][0-9a-z]*\)$/\1/p' | head -n 1
}

headers_are() {
  local number
  number=$(sed -n 's/^#define SLURM_VERSION_NUMBER 0x\([0-9a-f]*\)$/\1/p' "$1/usr/include/slurm/slurm_version.h") &&
    [[ $(printf '%d.%02d' $((16#$number >> 16)) $((16#$number >> 8 & 255))) == "$version" ]]
}
