#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# contrib/cluster, against real Slurm. Exit 0: passed; 77: cannot run here; else failed.
set -u -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
cluster=$top/contrib/cluster
for one in munged slurmctld slurmd slurmdbd mariadbd; do
  PATH=$PATH:/usr/sbin command -v "$one" > /dev/null && continue
  printf '1..0 # SKIP %s is not installed: run contrib/setup\n' "$one"
  exit 77
done

# A base folder of our own: the clusters of whoever else works here are not touched.
TMPDIR=$(mktemp -d /tmp/swell-test-XXXXXX) || exit 1
export TMPDIR
chmod 755 "$TMPDIR"
finish() {
  for one in a b c; do "$cluster" stop --name "$one"; done
  rm -rf "$TMPDIR"
} > /dev/null 2>&1
trap finish EXIT
trap 'exit 1' INT TERM HUP

count=0 failures=0
ok() { # ok NAME COMMAND...: one check; what the command prints is shown when it fails
  local name=$1 output
  shift
  count=$((count + 1))
  if output=$("$@" 2>&1); then
    printf 'ok %s - %s\n' "$count" "$name"
  else
    failures=$((failures + 1))
    printf 'not ok %s - %s\n' "$count" "$name"
    printf '%s\n' "$output" | sed 's/^/# /'
  fi
}

# within SECONDS COMMAND...: until it is true; prints the queue when it does not become so.
within() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    if ((SECONDS > deadline)); then
      printf 'not within the time: %s\n' "$*"
      squeue --all
      return 1
    fi
    sleep 0.05
  done
}

use() { # CLUSTER: its clients from here on
  local settings
  settings=$("$cluster" env --name "$1") && eval "$settings" && cd "$TMPDIR" || return 1
}
in_state() { [[ $(squeue --all -h -j "$1" -o %T 2> /dev/null) == "$2" ]]; }
not_running() { ! in_state "$1" RUNNING; }

# Its name is known beforehand, and /tmp is everybody's.
a_base_of_others_is_refused() {
  local base=$TMPDIR/swell-cluster-$UID
  mkdir "$TMPDIR/mine" && ln -s "$TMPDIR/mine" "$base" && base_is_refused && rm "$base" || return
  [[ $UID != 0 ]] || { mkdir "$base" && chown nobody "$base" && base_is_refused && rmdir "$base"; }
}
base_is_refused() {
  local said
  said=$("$cluster" start --name a --nodes 1 2>&1) && { "$cluster" stop --name a; return 1; }
  printf '%s\n' "$said"
  [[ $said == *'belongs to another user'* ]]
}

two_start_side_by_side() {
  local first second
  "$cluster" start --name a --nodes 2 --grace 2 &
  first=$!
  "$cluster" start --name b --nodes 2 --gpu-type a100,h100 --gpus-per-node 4 &
  second=$!
  wait "$first" && wait "$second"
}

gpu_job_sees() { # CLUSTER GPUS EXPECTED
  local seen
  use "$1" || return 1
  # shellcheck disable=SC2016
  seen=$(srun -N2 --ntasks-per-node=1 "--gres=gpu:$2" bash -c 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"' | sort)
  printf '%s\n' "$seen"
  [[ $seen == "node1 $3"$'\n'"node2 $3" ]]
}

nodes_differ_in_type() {
  use b || return 1
  sinfo -h -N -o '%N %G' | sort -u | tee "$TMPDIR/types" && [[ $(cat "$TMPDIR/types") == $'node1 gpu:a100:4\nnode2 gpu:h100:4' ]] &&
    [[ $(srun -N1 --gres=gpu:h100:1 printenv SLURMD_NODENAME) == node2 ]]
}

steps_of_one_job_see_different_gpus() {
  local seen
  use a || return 1
  # shellcheck disable=SC2016
  seen=$(salloc -Q -N1 -n2 --gres=gpu:2 bash -c '
    for i in 1 2; do srun -n1 --exact --gres=gpu:1 bash -c "echo \$CUDA_VISIBLE_DEVICES; sleep 0.5" & done; wait' | sort)
  printf '%s\n' "$seen"
  [[ $seen == $'0\n1' ]]
}

starting_a_running_one_is_an_error() {
  local output
  output=$("$cluster" start --name a 2>&1) && return 1
  printf '%s\n' "$output"
  [[ $output == *"'a' runs already"* ]]
}

# An expansion job on every GPU, then a job of basic demand: the first must go, the second must run.
basic_demand_preempts() { # CLUSTER SBATCH-OPTION
  local low high
  use "$1" || return 1
  low=$(sbatch --parsable -o /dev/null "$2" -N2 --exclusive --gres=gpu:8 --wrap 'srun sleep 600') || return 1
  within 20 in_state "$low" RUNNING || return 1
  high=$(sbatch --parsable -o /dev/null -N2 --gres=gpu:8 --wrap 'srun sleep 600') || return 1
  within 40 in_state "$high" RUNNING && within 10 not_running "$low" || return 1
  scontrol show job "$low" | grep -i PreemptTime
  grep -h 'Preempt\|CANCELLED' "$SWELL_CLUSTER_DIR"/log/slurmd.node*.log | grep "$low" > /dev/null
}

accounting_shows_the_jobs() {
  use a || return 1
  within 20 recorded 'expansion|research'
}
recorded() { sacct -a -X -n -P -o qos,account | grep -xF "$1" > /dev/null; }

# processes_of FOLDER: what names it in its command line, or in its environment as a daemon or a job does.
# The pattern comes from a file, or grep would find itself.
processes_of() {
  grep -lszF -f <(printf '%s' "$1") /proc/[0-9]*/cmdline
  grep -lszF -f <(printf '%s' "$1") /proc/[0-9]*/environ | xargs -r grep -lsz '^SWELL_CLUSTER_DAEMON=\|^SLURM_JOB_ID='
}

stop_after_every_daemon_was_killed() {
  local folder job pid
  use b || return 1
  folder=$SWELL_CLUSTER_DIR
  job=$(sbatch --parsable -o /dev/null -N2 --wrap 'setsid sleep 600 & srun sleep 600') || return 1
  within 20 in_state "$job" RUNNING || return 1
  within 20 has_step "$job.0" || return 1
  "$cluster" status --name b | while read -r _ pid _; do
    [[ ! $pid =~ ^[0-9]+$ ]] || printf '%s\n' "$pid"
  done | xargs kill -KILL
  unset SLURM_CONF SWELL_CLUSTER_DIR
  [[ -n $(processes_of "$folder") ]] || { echo 'the job left nothing to find, so this shows nothing' && return 1; }
  "$cluster" stop --name b || return 1
  processes_of "$folder"
  [[ ! -e $folder && -z $(processes_of "$folder") ]]
}

has_step() { squeue -h -s -o %i | grep -xF "$1" > /dev/null; }

a_killed_controller_comes_back_with_its_job() {
  local job
  use a || return 1
  job=$(squeue -h -t RUNNING -o %i | head -n 1)
  # Slurm saves its state some seconds after a change; the comment is a change that can be recognised.
  scontrol update "jobid=$job" comment=saved-with-comment || return 1
  within 20 grep -aqs saved-with-comment "$SWELL_CLUSTER_DIR/state/job_state" || return 1
  "$cluster" kill-ctld -9 --name a && ! "$cluster" pid slurmctld --name a && "$cluster" restart-ctld --name a &&
    within 10 in_state "$job" RUNNING
}

stop_leaves_nothing() {
  local folder=$TMPDIR/swell-cluster-$UID one
  unset SLURM_CONF SWELL_CLUSTER_DIR
  for one in a c; do "$cluster" stop --name "$one" || return 1; done
  processes_of "$folder"
  ls -A "$TMPDIR"
  [[ -z $(processes_of "$folder") && ! -e $folder ]]
}

one_line_error() { # WORDS OPTION...
  local words=$1 output
  shift
  output=$("$cluster" start --name c "$@" 2>&1) && return 1
  printf '%s\n' "$output"
  [[ $output == *"$words"* && $output != *$'\n'* && ! -e $TMPDIR/swell-cluster-$UID/c ]]
}

ok 'a bad number is one line with the value' one_line_error "--nodes 'many'" --nodes many
ok 'more types of GPU than nodes is one line' one_line_error "'h100,a100,l40'" --nodes 2 --gpu-type h100,a100,l40
ok 'an unknown option is one line' one_line_error "'--frobnicate'" --frobnicate
ok 'a folder without plugins is one line' one_line_error 'sched_swell.so' --plugins "$TMPDIR"
ok 'a base folder that is a link, or of another user, is refused' a_base_of_others_is_refused
ok 'two clusters start side by side' two_start_side_by_side
ok 'a 2-node job sees its GPUs on the first' gpu_job_sees a 3 0,1,2
ok 'a 2-node job sees its GPUs on the second' gpu_job_sees b 2 0,1
ok 'nodes of one cluster differ in the type of their GPUs' nodes_differ_in_type
ok 'steps of one job see different GPUs' steps_of_one_job_see_different_gpus
ok 'starting a running cluster is an error' starting_a_running_one_is_an_error
ok 'basic demand preempts the expansion QOS' basic_demand_preempts a --qos=expansion
ok 'sacct shows the jobs' accounting_shows_the_jobs
ok 'a killed slurmctld comes back with its job' a_killed_controller_comes_back_with_its_job
ok 'stop after kill -9 of every daemon leaves nothing' stop_after_every_daemon_was_killed
ok 'a cluster without accounting starts' "$cluster" start --name c --nodes 2 --no-accounting --grace 2 --credential-life 9
credentials_live_as_long_as_asked() { use c && [[ $(scontrol show config) =~ AuthInfo\ +=\ socket=[^,]+,cred_expire=9 ]]; }
ok 'credentials live as long as was asked for' credentials_live_as_long_as_asked
ok 'basic demand preempts the expansion partition' basic_demand_preempts c --partition=expansion
ok 'stop leaves nothing' stop_leaves_nothing
printf '1..%s\n' "$count"
((failures == 0))
