#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The packages, on a Debian that has Slurm and nothing else of ours: installed, set up as README says, upgraded under a
# running job, removed.
#   SWELL_PACKAGES=DIR   where contrib/packaging shall build them, or has (a folder of the test's own)
#   SWELL_SLURM=24.11    packages for the Debian that has this Slurm (the one of this host)
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
PATH=$PATH:/usr/sbin:/sbin
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2> /dev/null || printf '%s' "${SWELL_MULTIARCH:-}")

# ---- outside: build, and a root to install in

if [[ -z ${SWELL_IN_ROOT:-} ]]; then
  # shellcheck source=tests/support/tap.sh
  source "$top/tests/support/tap.sh"
  skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
  for program in dpkg-buildpackage dh lintian; do
    command -v "$program" > /dev/null || skip "$program is not installed: run contrib/setup --packaging"
  done
  native=$("$top/contrib/slurm-version" native) || skip 'no Slurm is installed here: run contrib/setup'
  version=${SWELL_SLURM:-$native}
  # there COMMAND...: where the packages are built.
  there() { "$@"; }
  if [[ $version != "$native" ]]; then
    build_root=$("$top/contrib/slurm-version" build "$version" 2> >(tee "$check_log" >&2)) || skip "$(tail -n 1 "$check_log")"
    there() { SWELL_ROOT=$build_root SWELL_PYTHON=/nonexistent "$top/contrib/slurm-version" run "$version" "$@"; }
  fi
  lower=$("$top/contrib/slurm-version" stock "$version" 2> >(tee "$check_log" >&2)) || skip "$(tail -n 1 "$check_log")"
  scratch=$(mktemp -d /tmp/swell-test-XXXXXX) || exit 1
  chmod 755 "$scratch"
  trap 'rm -rf -- "$scratch"' EXIT
  trap 'exit 1' INT TERM HUP
  export SWELL_PACKAGES=${SWELL_PACKAGES:-$scratch/packages}
  # Packing symbols for a debugger takes minutes, and nobody reads them here.
  export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} noautodbgsym"
  # Their size does not matter either.
  export DPKG_DEB_COMPRESSOR_LEVEL=${DPKG_DEB_COMPRESSOR_LEVEL:-1}
  package() { find "$SWELL_PACKAGES" -maxdepth 1 -name "$1_*+slurm*-$2_*.deb" | head -n 1; } # NAME REVISION

  builds() { "$top/contrib/packaging" --slurm "$version" --out "$SWELL_PACKAGES" "$@"; }
  check 'the packages are built, and lintian has no complaint' builds
  ((failures == 0)) || finish_tests
  check 'another build of the same has a higher version' builds --revision 2 --no-lintian
  ((failures == 0)) || finish_tests

  contents() {
    local one
    for one in swell:/usr/bin/swell swell:/usr/bin/swellrun swell:/usr/libexec/swell/swell-worker \
      swell:/usr/share/man/man7/swell-admin.7.gz "swell-slurm-plugins:$libdir/slurm-wlm/sched_swell.so" \
      "swell-slurm-plugins:$libdir/swell/shadow/sched_backfill.so" "swell-slurm-plugins:$libdir/swell/select/select_cons_tres.so" \
      "libswell1:$libdir/libswell.so.1" libswell-dev:/usr/include/swell.h "libswell-dev:$libdir/pkgconfig/swell.pc" \
      "libswell-nccl-profiler:$libdir/libswell-nccl-profiler.so" python3-swell:/usr/lib/python3/dist-packages/swell/torch.py; do
      dpkg-deb -c "$(package "${one%%:*}" 1)" | awk -v file=".${one#*:}" '$6 == file { found = 1 } END { exit !found }' ||
        { printf '%s is not in %s\n' "${one#*:}" "${one%%:*}"; return 1; }
    done
  }
  check 'each package has what is its own' contents

  hardened() {
    local one bad=0 where=$scratch/hardened
    for one in swell swell-slurm-plugins libswell1 libswell-nccl-profiler; do dpkg-deb -x "$(package "$one" 1)" "$where" || return; done
    while IFS= read -r one; do
      readelf -lW "$one" | grep -q GNU_RELRO || { printf '%s: no RELRO\n' "$one"; bad=1; }
      # Only plugins look for a library of ours, in the package's own folder.
      readelf -dW "$one" | grep -E 'RPATH|RUNPATH' | grep -vF "[$libdir/swell]" && { printf '%s: an rpath\n' "$one"; bad=1; }
    done < <(find "$where" -type f \( -name '*.so*' -o -perm -u+x \))
    return $bad
  }
  check 'their binaries are hardened, and look for libraries in no folder but their own' hardened

  links() {
    local where=$scratch/dev
    dpkg-deb -x "$(package libswell1 1)" "$where" && dpkg-deb -x "$(package libswell-dev 1)" "$where" &&
      there env PKG_CONFIG_SYSROOT_DIR="$where" PKG_CONFIG_PATH="$where$libdir/pkgconfig" pkg-config --cflags --libs swell | tee flags &&
      printf '#include <swell.h>\nint main(void) { return swell_api_version() > 0 ? 0 : 1; }\n' > small.c || return
    # shellcheck disable=SC2046 # words
    there cc small.c $(cat flags) -o small && there env LD_LIBRARY_PATH="$where$libdir" ./small
  }
  cd "$scratch" || exit 1
  check 'a C program compiles and links by pkg-config' links

  refused_elsewhere() {
    local other root said kind
    for other in $("$top/contrib/slurm-version" list | awk -v own="$version" '$1 != own { print $1 }'); do
      kind=root
      [[ $other != "$native" ]] || kind=stock # as this test makes it
      root=$("$top/contrib/slurm-version" "$kind" "$other") || { printf 'no root of %s\n' "$other"; continue; }
      said=$(SWELL_ROOT=$root "$top/contrib/slurm-version" run "$other" apt-get install -s "$(package swell-slurm-plugins 1)" 2>&1) &&
        { printf '%s: taken in %s\n%s\n' "$other" "$root" "$said"; return 1; }
      printf '%s\n' "$said"
      grep -q 'Depends: slurm-wlm-basic-plugins' <<< "$said" || return
    done
  }
  check 'apt refuses the plugins where Slurm is another version' refused_elsewhere

  # A layer over the root takes what is installed, and is gone with this test.
  mkdir "$scratch"/{upper,work,root}
  SWELL_MULTIARCH=${libdir##*/}
  export SWELL_IN_ROOT=$count SWELL_MULTIARCH SWELL_ROOT=$scratch/root
  unshare --mount --propagation private bash -c '
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root" || exit 1
    shift 2
    "$@"' _ "$lower" "$scratch" env SWELL_BIND="$SWELL_PACKAGES" SWELL_PYTHON=/nonexistent \
    "$top/contrib/slurm-version" run "$version" "$top/tests/packaging/debian_test.sh"
  exit $((failures > 0 || $? != 0))
fi

# ---- inside

apt() { DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -y -o Dpkg::Use-Pty=0 "$@"; }
packages() { # REVISION: those that a cluster's hosts get
  local name
  for name in swell swell-slurm-plugins libswell1 libswell-nccl-profiler python3-swell; do
    printf '%s\n' "$SWELL_PACKAGES/${name}"_*+slurm*-"$1"_*.deb
  done
}
install_packages() {
  # shellcheck disable=SC2046 # paths without blanks
  apt install --no-install-recommends $(packages "$1")
}
first_log=$(mktemp)
[[ ! -e /usr/bin/swellrun ]] || { printf 'not ok 1 - the root has Swell already\n1..1\n'; exit 1; }
apt -o Acquire::Check-Valid-Until=false update > "$first_log" 2>&1
# As scripts of packages are told in a chroot: no daemon is started.
install_packages 1 >> "$first_log" 2>&1
first_status=$?
if ((first_status != 0)); then
  printf 'not ok %s - apt installs the packages\n' $((SWELL_IN_ROOT + 1))
  sed 's/^/# /' "$first_log"
  exit 1
fi

export SWELL_STAGE=/usr
# shellcheck source=tests/slurm/lib.sh
source "$top/tests/slurm/lib.sh"
# shellcheck disable=SC2034 # check counts on
count=$SWELL_IN_ROOT
keep_queue=yes
after_check() { [[ -n $keep_queue ]] || clear_queue; }
"$cluster" start --stock --nodes 2 --gpus-per-node 4 > "$TMPDIR/start.log" 2>&1 || { cat "$TMPDIR/start.log"; exit 1; }
eval "$("$cluster" env)"
cd "$work" || exit 1
etc=${SLURM_CONF%/*}

installed() {
  cat "$first_log" && [[ $(command -v swellrun) == /usr/bin/swellrun ]] && swell --version && swellrun --help > /dev/null &&
    python3 -c 'import swell' && [[ -f /usr/share/doc/swell/copyright ]]
}
check 'apt installs them, and what they need' installed

block() { # WORDS: the code block of README that has them
  awk -v words="$1" '
    /^```/ { if (inside && index(text, words)) printf "%s", text; inside = !inside; text = ""; next }
    inside { text = text $0 "\n" }' "$top/README.md" |
    sed "s|/usr/local/lib/swell|$libdir/swell|; s|/usr/lib/x86_64-linux-gnu|$libdir|; s/CLUSTER/$SWELL_CLUSTER_NAME/; s/ *#.*//; /^$/d"
}
take_in() { # the lines of README into the files
  local line
  while IFS= read -r line; do
    sed -i "/^${line%%=*}=/Id" "$SLURM_CONF" && sed -i "1i $line" "$SLURM_CONF" || return
  done < <(block '# slurm.conf')
  block '# plugstack.conf' > "$etc/plugstack.conf" && block '# swell.conf' > "$etc/swell.conf" || return
  printf 'ControlPort=%s\nGrowthInterval=1\n' $(($(sed -n 's/^SlurmctldPort=//p' "$SLURM_CONF") + 2)) >> "$etc/swell.conf"
}
take_out() { # [KEY...]: lines out of slurm.conf, PluginDir back to Slurm's own
  sed -i "/^JobSubmitPlugins=/Id; s|^PluginDir=.*|PluginDir=$libdir/slurm-wlm|I" "$SLURM_CONF"
}
sound() { swell doctor > after && grep -q '^no faults, no warnings' after; }

set_up() {
  cp "$SLURM_CONF" before.conf
  sbatch --parsable --gres=gpu:1 --wrap 'sleep 600' > plain_job || return
  within 10 in_state "$(cat plain_job)" RUNNING && block 'sacctmgr -i add qos' > lines && bash -e lines < /dev/null && take_in &&
    "$cluster" restart-ctld && for node in node1 node2; do "$cluster" kill-slurmd "$node" && "$cluster" start-slurmd "$node" || return; done &&
    within 20 sound || { cat after; return 1; }
  in_state "$(cat plain_job)" RUNNING
}
check 'set up as README says, a cluster with a job goes on, and swell doctor is content' set_up

grows() { submit --elastic=max=6,grace=10 --gres=gpu:2 && elastic_job=$job && within 60 grown "$job" 6 && settled; }
check 'an elastic job grows' grows

upgrade() {
  local before
  before=$(cat "$work/$elastic_job/step")
  install_packages 2 || return
  [[ $(dpkg-query -W -f '${Version}' swell-slurm-plugins) == *+slurm*-2 ]] && is_lent "$elastic_job" 4 && goes_on "$elastic_job" &&
    "$cluster" restart-ctld && within 30 sound && within 30 is_lent "$elastic_job" 4 && goes_on "$elastic_job" &&
    (($(cat "$work/$elastic_job/step") > before)) && in_state "$(cat plain_job)" RUNNING
}
check 'an upgrade, and a restart of slurmctld, cost no job a step and no lent GPU' upgrade

as_told() { # swell-admin(7), REMOVAL
  swell drain && is_lent "$elastic_job" 0 && sacctmgr -i modify qos where name=expansion set GrpSubmitJobs=0 && take_out &&
    "$cluster" restart-ctld && goes_on "$elastic_job" || return
  apt remove swell swell-slurm-plugins libswell1 libswell-nccl-profiler python3-swell 2>&1 | tee said
  [[ ${PIPESTATUS[0]} == 0 && ! -e /usr/bin/swellrun ]] && goes_on "$elastic_job" && in_state "$(cat plain_job)" RUNNING &&
    "$cluster" restart-ctld && goes_on "$elastic_job" && in_state "$(cat plain_job)" RUNNING && srun --gres=gpu:1 true
}
check 'removed as swell-admin(7) says, a stock Slurm goes on with the jobs it had' as_told

careless() {
  install_packages 2 && take_in && sacctmgr -i modify qos where name=expansion set GrpSubmitJobs=-1 &&
    "$cluster" restart-ctld && within 20 sound || { cat after; return 1; }
  # Where a site has it: what the package looks at.
  mkdir -p /etc/slurm && cp "$SLURM_CONF" /etc/slurm/slurm.conf
  apt remove swell-slurm-plugins 2>&1 | tee said
  [[ ${PIPESTATUS[0]} == 0 ]] && grep -q 'swell-slurm-plugins: /etc/slurm/slurm.conf still names swell' said || return
  # Clients read a PluginDir that names a folder of ours.
  squeue > /dev/null && srun --gres=gpu:1 true && in_state "$(cat plain_job)" RUNNING && goes_on "$elastic_job" || return
  sed -i '/^JobSubmitPlugins=/Id' "$SLURM_CONF" && "$cluster" restart-ctld && srun --gres=gpu:1 true && in_state "$(cat plain_job)" RUNNING
}
check 'removed without a word, jobs and clients go on, and what must be taken out is said' careless

purge() {
  take_out && "$cluster" restart-ctld && apt purge swell swell-slurm-plugins libswell1 libswell-nccl-profiler python3-swell || return
  local left
  left=$(find /usr /etc /var/lib/dpkg/info -xdev -name '*swell*')
  printf 'left: %s\n' "$left"
  [[ -z $left ]] && srun --gres=gpu:1 true && in_state "$(cat plain_job)" RUNNING
}
check 'purged, nothing of them is left' purge

keep_queue=''
clear_queue
finish_tests
