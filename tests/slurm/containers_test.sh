#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Jobs whose programs run in containers: by a SPANK plugin that behaves as pyxis does (container_spank.c), and behind Charliecloud's
# ch-run. The images are made of files of this machine, and have neither libfmt nor munge, nor anything of Swell.
programs=(regression in_step.so) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/live_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/live_lib.sh"
((EUID == 0)) || skip 'the plugin of containers mounts file systems: root is needed'
unshare --mount true 2> /dev/null || skip 'this root may not make mount namespaces'
command -v cc > /dev/null || skip 'no C compiler: run contrib/setup'
cluster_up --nodes 2 --gpus-per-node 4
cc -O1 -Wall -shared -fPIC -o pyxis.so "$here/container_spank.c" || exit 1
printf 'required %s/pyxis.so\n' "$work" >> "${SLURM_CONF%/*}/plugstack.conf"

# image FOLDER PROGRAM...: with these programs, and the libraries that they need.
image() {
  local root=$1 program file
  shift
  mkdir -p "$root"/{dev,proc,sys,run,etc,usr/bin,usr/lib,usr/lib64,home,mnt,opt,srv} && mkdir -m 1777 -p "$root/tmp" "$root/var/tmp" && ln -s usr/bin usr/lib usr/lib64 "$root" || return
  printf 'root:x:0:0:root:/root:/bin/bash\n' > "$root/etc/passwd" && printf 'root:x:0:\n' > "$root/etc/group" && : > "$root/etc/resolv.conf" && : > "$root/etc/hosts"
  for program; do
    program=$(type -P "$program") && cp -L "$program" "$root/usr/bin" || return
    for file in $(ldd "$program" | grep -o '/[^ ]*'); do
      mkdir -p "$root${file%/*}" && cp -Ln "$file" "$root$file" || return
    done
  done
}
image "$work/small" bash cat mv true sleep env sh && image "$work/trains" bash cat mv true sleep env sh "$work/regression" || exit 1
export SMALL=$work/small
has_nothing() { ! find "$SMALL" -name '*libfmt*' -o -name '*munge*' -o -name '*swell*' -o -name '*libstdc*' | grep .; }
check 'the image has nothing that Swell needs' has_nothing

# No worker may run outside of its container.
cat > contained.sh << 'END'
#!/bin/bash
[[ ! -e /usr/share/doc && ! -e /usr/bin/srun ]] || { echo 'not in the container' >&2; exit 9; }
exec "$1"
END
chmod +x contained.sh
grows_and_gives_back() {
  within 40 grown "$job" 8 && settled && rigid --gres=gpu:4 -w node2 && within 60 in_state "$rigid_job" RUNNING && within 40 grown "$job" 4 &&
    touch "$work/$job/finish" && within 30 ended "$job" && [[ $(cat "$work/$job/status") == 0 ]] && within 20 has_no_companions "$job" &&
    [[ $(cat "$work/$job/checkpoint") -gt 0 ]]
}
said() { local result=$?; cat "$work/$job.out"; return $result; }
by_options() {
  TRAINER_RUN="--container-image=$SMALL --container-mounts=$work:$work ./contained.sh" submit --elastic=max=8 --gres=gpu:2 -w node1 && grows_and_gives_back
  said
}
check 'a job grows and gives back in containers of pyxis' by_options

by_sbatch() {
  TRAINER_RUN=./contained.sh submit --container-image="$SMALL" --container-mounts="$work:$work" --elastic=max=8 --gres=gpu:2 -w node1 && grows_and_gives_back
  said
}
check 'the same where sbatch was given the options' by_sbatch

live_in() { # [options of swellrun]
  export PLANS='2=2,1,1,0 4=1,2,2,0 8=2,2,2,1' IN="$*"
  live --elastic=mode=live,max=8 --gres=gpu:2 -w node1 && within 120 live_grown 8 && rigid --gres=gpu:4 -w node2 &&
    within 120 live_grown 4 && within 120 in_state "$rigid_job" RUNNING && goes_on_live && well_ended
  local result=$?
  unset PLANS IN
  cat "$work/$job.out"
  return $result
}
sed -i 's|"${PROGRAM|$IN &|' live_job.sh
apart='do not see each other.s TMPDIR'
by_pyxis=(--container-image="$work/trains" "--container-mounts=$TMPDIR:$TMPDIR")
live_by_pyxis() { live_in "${by_pyxis[@]}" && ! grep "$apart" "$work/$job.out"; }
check 'a live job in containers that share a folder grows and shrinks' live_by_pyxis

# Shims make their folders in /tmp where there is no TMPDIR.
live_apart() { live_in "${by_pyxis[0]}" "--container-mounts=$work:$work" && grep "$apart" "$work/$job.out"; }
check 'without a common folder state goes by TCP, and one line says so' live_apart

[[ -x $(command -v ch-run) ]] || lacks ch-run
# ch-run asks for USER, and mounts TMPDIR as the container's /tmp.
export USER=root
ch_run="env TMPDIR=/tmp ch-run"
behind_ch_run() {
  TRAINER_RUN="$ch_run --cd=$work $SMALL -- ./contained.sh" submit --elastic=max=8 --gres=gpu:2 -w node1 && grows_and_gives_back
  said
}
check 'a job grows and gives back behind ch-run' behind_ch_run

live_by_ch_run() { live_in "$ch_run" --cd="$work" "$work/trains" -- && ! grep "$apart" "$work/$job.out"; }
check 'a live job behind ch-run grows and shrinks' live_by_ch_run

no_folder() {
  export IN="env OUT=/mnt ch-run --private-tmp --bind=$work:/mnt --cd=/mnt $work/trains --"
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=mode=live,max=8 --gres=gpu:2 -w node1 live_job.sh) && within 60 ended "$job"
  local result=$?
  unset IN
  cat "$work/$job.out"
  ((result == 0)) && grep 'No such file or directory; in a container, mount /tmp/.* of the host at the same place' "$work/$job.out"
}
check 'a live job whose container has not the folder of the socket says so in one line' no_folder

finish_tests
