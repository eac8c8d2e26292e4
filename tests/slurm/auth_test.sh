#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A cluster that authenticates with auth/slurm and has no munged: jobs run, and whatever of Swell needs munge says so.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
stock=$(dirname "$(find /usr/lib /usr/lib64 -name auth_slurm.so -path '*slurm*' 2> /dev/null | head -n 1)")
[[ -e $stock/auth_slurm.so ]] || skip 'this Slurm has no auth/slurm: newer versions do, SWELL_SLURM=26.05'
# Its sockets lie in /run for all of a host.
[[ -n ${SWELL_ROOT_VERSION:-} ]] || skip 'auth/slurm would put its sockets into /run of this host: run it in a root, SWELL_SLURM=26.05'
cluster_up --nodes 1 --gpus-per-node 4 --no-accounting
etc=${SLURM_CONF%/*}

# Changes over as an admin does.
change_over() {
  "$cluster" kill-slurmd node1 && "$cluster" kill-ctld && "$cluster" kill munged || return
  (umask 077 && head -c 1024 /dev/urandom > "$etc/slurm.key") && chown slurm: "$etc/slurm.key" || return
  mkdir -p /run/slurm /run/slurmctld && chown slurm: /run/slurmctld || return
  sed -i -e 's|^AuthType=.*|AuthType=auth/slurm|' -e 's|^CredType=.*|CredType=auth/slurm|' -e '/^AuthInfo=/d' "$SLURM_CONF" || return
  "$cluster" restart-ctld && "$cluster" start-slurmd node1 && [[ $(srun -n1 echo works) == works ]]
}
check 'stock Slurm runs a job without munged' change_over

controller_says() { grep 'swell: nobody can connect yet: .*Swell needs munge, also beside AuthType=auth/slurm' "$SWELL_CLUSTER_DIR/log/slurmctld.log"; }
check 'the controller says that it needs munge' within 20 controller_says

doctor_says() {
  ! swell doctor > doctor.txt 2>&1 || return
  cat doctor.txt
  grep -q '^FAULT *munge: .*Slurm does without (AuthType=auth/slurm)' doctor.txt && grep -q '^ok *slurmctld: .* answers' doctor.txt &&
    grep -q 'fix: apt-get install munge' doctor.txt
}
check 'swell doctor says so, and checks the rest' doctor_says

swellrun_says() {
  submit --gres=gpu:2 --elastic=max=4 && within 40 ended "$job" || return
  cat "$work/$job.out"
  grep -q 'swellrun: .*Swell needs munge, also beside AuthType=auth/slurm' "$work/$job.out"
}
check 'swellrun says so' swellrun_says

finish_tests
