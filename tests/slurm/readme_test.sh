#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# README.md, followed line by line by an admin and a researcher who know no more: on a stock cluster without
# DefCpuPerGPU, to a job that has grown and shrunk. The lines are taken out of README.md. Replaced by values of this machine:
# the prefix and Slurm's plugin folder, CLUSTER, `systemctl restart slurmctld` and slurmd, and train.py.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
stock=$(dirname "$(find /usr/lib /usr/lib64 -name sched_backfill.so -path '*slurm*' 2> /dev/null | head -n 1)")
[[ -e $stock/sched_backfill.so ]] || skip 'no sched_backfill.so of Slurm was found'

# Where `make install` has put the plugins here is no folder that Slurm knows by itself.
"$cluster" start --stock --nodes 4 --gpus-per-node 4 --conf "PluginDir=$SWELL_STAGE/plugins:$stock" > "$TMPDIR/start.log" 2>&1 || {
  cat "$TMPDIR/start.log"
  exit 1
}
eval "$("$cluster" env)"
cd "$work" || exit 1
etc=${SLURM_CONF%/*}

# block WORDS: the lines of README's code block whose text has the words; one of them only.
block() {
  awk -v words="$1" '
    /^```/ { if (inside && index(text, words)) { printf "%s", text; found++ } inside = !inside; text = ""; next }
    inside { text = text $0 "\n" }
    END { exit found != 1 }' "$top/README.md" | sed "s|/usr/local/lib/swell|$SWELL_STAGE/lib/swell|g; s|/usr/lib/x86_64-linux-gnu/slurm-wlm|$SWELL_STAGE/plugins:$stock|; s/CLUSTER/$(scontrol show config | sed -n 's/^ClusterName *= //p')/"
}
conf_lines() { block "$1" | sed 's/ *#.*//; /^$/d'; } # a file's lines without comments

it_is_stock() {
  ! grep -qiE '^(SchedulerType|JobSubmitPlugins|Preempt|DefCpuPerGPU|AccountingStorageEnforce)' "$SLURM_CONF" &&
    [[ $(sacctmgr -nP show qos format=Name) == normal ]]
}
check 'the cluster has nothing that Swell wants' it_is_stock

builds_as_written() {
  block 'autoreconf -fi' | tee lines
  [[ $(cat lines) == 'contrib/setup --build'$'\n''autoreconf -fi && ./configure && make -j"$(nproc)" && make install' ]] &&
    "$top/contrib/setup" --help | grep -q -- --build && [[ -e $top/configure.ac ]] || return
  # what README says that make install writes is there
  local each
  for each in bin/swell bin/swellrun libexec/swell lib/swell share/man plugins/{sched,job_submit,spank}_swell.so; do
    [[ -e $SWELL_STAGE/$each ]] || { printf 'not installed: %s\n' "$each"; return 1; }
  done
}
check 'the lines to build are what contrib knows, and install what README says' builds_as_written

qos_as_written() { block 'sacctmgr -i add qos' > lines && cat lines && bash -e lines < /dev/null; }
check 'the lines of sacctmgr are taken' qos_as_written

files_as_written() {
  local line
  while IFS= read -r line; do
    sed -i "/^${line%%=*}=/Id" "$SLURM_CONF" && sed -i "1i $line" "$SLURM_CONF" || return
  done < <(conf_lines '# slurm.conf')
  conf_lines '# plugstack.conf' > "$etc/plugstack.conf" && conf_lines '# swell.conf' > "$etc/swell.conf" || return
  # The port that contrib/cluster keeps for it, as other clusters may run here; and no minute of waiting between two growths.
  printf 'ControlPort=%s\nGrowthInterval=1\n' $(($(sed -n 's/^SlurmctldPort=//p' "$SLURM_CONF") + 2)) >> "$etc/swell.conf"
  cat "$SLURM_CONF" "$etc/plugstack.conf" "$etc/swell.conf"
  grep -q '^SchedulerType=sched/backfill$' "$SLURM_CONF" && grep -q '^optional spank_swell.so$' "$etc/plugstack.conf"
}
check 'the files are written' files_as_written

restart_as_written() {
  block 'swell doctor  ' | sed 's/ *#.*//' > lines && cat lines
  [[ $(cat lines) == $'swell doctor\nsystemctl restart slurmctld\nsystemctl restart slurmd\nswell doctor' ]] || return
  swell doctor | tee before
  [[ $(grep -c '^FAULT' before) == 1 ]] && grep -q '^FAULT *restart' before || return
  "$cluster" restart-ctld || return
  # Until slurmd is restarted no node publishes, and the doctor says what is missing.
  within 20 asks_for_slurmd || { cat after; return 1; }
  local node
  for node in node{1..4}; do "$cluster" kill-slurmd "$node" && "$cluster" start-slurmd "$node" || return; done
  within 20 no_faults || { cat after; return 1; }
}
asks_for_slurmd() { swell doctor > after && [[ $(grep -cE '^(FAULT|warn)' after) == 1 ]] && grep -q '^warn *topology: no node ' after && grep -q 'fix: systemctl restart slurmd' after; }
no_faults() { swell doctor > after && grep -q '^no faults, no warnings' after; }
check 'swell doctor wants nothing but the restart before it, and nothing after it' restart_as_written

# A small train.py as a researcher writes it: it checkpoints on USR1 and goes on from there.
printf '#!/bin/sh\nexport TRAINER_WORK=%s/$SLURM_JOB_ID\nmkdir -p "$TRAINER_WORK" && exec %s\n' "$work" "$TRAINER" > python
chmod +x python
the_job_runs() {
  block 'swellrun python train.py' | sed 's/ *#[^!S].*//; s|swellrun python|swellrun ./python|' > job.sh && cat job.sh
  job=$(sbatch --parsable --output="$work/%j.out" job.sh) || return
  within 60 grown "$job" 16 && settled || { cat "$work/$job.out"; return 1; }
}
keep_queue=yes
after_check() { [[ -n ${keep_queue:-} ]] || clear_queue; }
check 'the job script of README grows over all idle GPUs, 1 CPU for all workers or not' the_job_runs

it_shrinks() {
  local before
  before=$(cat "$work/$job/step")
  rigid --gres=gpu:4 -N 2 && within 70 in_state "$rigid_job" RUNNING && within 30 grown "$job" 8 && goes_on "$job" &&
    (($(cat "$work/$job/step") >= before)) && settled
}
check 'another job gets its GPUs, and the training goes on with the rest' it_shrinks

het_jobs_run() {
  clear_queue
  rigid --gres=gpu:1 : --gres=gpu:1 && within 60 in_state "$rigid_job" RUNNING
}
check 'heterogeneous jobs of the site run as before' het_jobs_run

keep_queue=''
clear_queue
finish_tests
