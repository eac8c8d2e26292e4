#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# GPU types of jobs that have a table of their speeds (--elastic=types=A/B,table=FILE): chosen at submission, and again while
# they wait. Node1 has GPUs of one type, node2 of another.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 2 --gpus-per-node 4 --gpu-type h100,a100 --swell-conf TypeInterval=2
ready() { "$cluster" logs slurmctld | grep 'the controller is ready' > /dev/null; }
within 20 ready || exit 1

cat > "$work/gpt.json" << 'EOJ'
{"model": "gpt", "samples_per_step": 10, "source": "one-device", "rows": [
 {"type": "h100", "gpus": 4, "samples_per_s": 20}, {"type": "a100", "gpus": 4, "samples_per_s": 10},
 {"type": "h100", "gpus": 2, "samples_per_s": 11}, {"type": "a100", "gpus": 2, "samples_per_s": 5.5}]}
EOJ
table=types=h100/a100,table=$work/gpt.json

asks_for() { scontrol -o show job "$1" | grep -qE "gres.gpu:$2:"; }
runs_on() { in_state "$1" RUNNING && [[ $(squeue -h -j "$1" -o %N) == "$2" ]]; }
# Slurm may start what it likes before the controller has seen the nodes.
sees_types() { sbatch --hold --elastic="$table" --gres=gpu:a100:4 --time=1:00:00 --wrap true > said 2>&1; grep -q 'idle now' said; }
within 10 sees_types && scancel --user=root && within 20 queue_is_empty || { cat said; show_state; exit 1; }

why_says() { swell why "$1" > why 2>&1; cat why; grep -q -- "$2" why; }
# submit_saying WORDS OPTIONS...: submits a job to which sbatch says that. The controller knows what ran before a second later.
submit_saying() { within 20 says_so "$@" || { cat said; return 1; }; }
says_so() {
  submit "${@:2}" 2> said || return
  grep -q "$1" said || { scancel "$job"; return 1; }
}
better_type() {
  submit_saying '4 h100: idle now, done in 30 min; 4 a100: idle now, done in 1 h: starts on h100' --elastic="$table,steps=3600" --gres=gpu:a100:4 --time=2:00:00 &&
    within 30 runs_on "$job" node1 &&
    within 20 why_says "$job" 'its GPU type: 4 h100: idle now, done in 30 min'
}
check 'a job with a table starts on the better type, though it asked for the other' better_type

waits_for_better() {
  rigid --gres=gpu:h100:4 --time=0:10:00 && within 20 in_state "$rigid_job" RUNNING || return
  submit_saying '4 h100: starts in 10 min, done in 5.1. h; 4 a100: idle now, done in 10 h: waits on h100' --elastic="$table,steps=36000" --gres=gpu:4 --time=20:00:00 &&
    in_state "$job" PENDING && within 20 why_says "$job" 'it asks for h100, by its table: 4 h100: starts in'
}
check 'where waiting for the better type pays it waits for that, and swell why says so' waits_for_better

# Slurm before 24.11 would hold a job whose type is changed.
changes_types() { [[ $(printf '%s\n' 24.11 "$(sinfo -V | grep -o '[0-9.]*$')" | sort -V | head -n 1) == 24.11 ]]; }
stays_as_it_is() {
  rigid --gres=gpu:h100:4 --time=1:00:00 && rigid --gres=gpu:a100:4 --time=9:00:00 && local longer=$rigid_job && within 20 in_state "$longer" RUNNING || return
  submit_saying 'waits on h100' --elastic="$table,steps=3600" --gres=gpu:4 --time=2:00:00 && asks_for "$job" h100 &&
    within 20 why_says "$job" 'this version of Slurm does not let it change its type' || return
  swell doctor > doctor
  cat doctor
  grep 'does not change the GPU type of jobs that wait' doctor && scancel "$longer" && scancel "$rigid_job" && in_state "$job" PENDING && asks_for "$job" h100
}
if ! changes_types; then check 'where Slurm changes no type of a job that waits it stays, and all say so' stays_as_it_is; fi

# Both nodes are taken, node1 for shorter; then node2 comes free.
moved_while_it_waits() {
  rigid --gres=gpu:h100:4 --time=1:00:00 && rigid --gres=gpu:a100:4 --time=9:00:00 && local longer=$rigid_job && within 20 in_state "$longer" RUNNING || return
  submit_saying 'waits on h100' --elastic="$table,steps=3600" --gres=gpu:4 --time=2:00:00 || return
  local priority
  priority=$(squeue -h -j "$job" -o %Q)
  asks_for "$job" h100 && scancel "$longer" && within 60 runs_on "$job" node2 && asks_for "$job" a100 && [[ $(squeue -h -j "$job" -o %Q) == "$priority" ]] &&
    grep "\"event\":\"type-chosen\".*\"job\":$job" "$events" && within 20 why_says "$job" 'its GPU type: 4 a100: .*moved to a100'
}
! changes_types || check 'a job that waits is moved to the other type where it ends sooner there' moved_while_it_waits

# Slurm's list by task would keep its type: with another one beside, no node has both. Another job is moved at the same look.
stays_by_task() {
  rigid --gres=gpu:h100:4 --time=1:00:00 && local own=$rigid_job && rigid --gres=gpu:a100:4 --time=9:00:00 && local longer=$rigid_job && within 20 in_state "$longer" RUNNING || return
  submit_saying 'its type stays as it is: it asks for GPUs of each task or socket' --elastic="$table,steps=3600" --ntasks=4 --gpus=h100:4 --gpus-per-task=h100:1 --time=2:00:00 || return
  local by_task=$job lists
  lists=$(lists_of "$by_task")
  submit_saying 'waits on h100' --elastic="$table,steps=3600" --gres=gpu:4 --time=2:00:00 && scancel "$longer" && within 60 runs_on "$job" node2 &&
    why_says "$by_task" 'its type stays as it is: it asks for GPUs of each task or socket' && [[ $(lists_of "$by_task") == "$lists" ]] &&
    scancel "$own" && within 60 runs_on "$by_task" node1
}
lists_of() { scontrol -o show job "$1" | grep -o 'TresPer[A-Za-z]*=[^ ]*'; }
! changes_types || check 'one that asks for GPUs by task is left alone' stays_by_task

# slurmctld dies right after the change; what it had not written yet is decided again.
kill_loses_nothing() {
  rigid --gres=gpu:h100:4 --time=1:00:00 && rigid --gres=gpu:a100:4 --time=9:00:00 && local longer=$rigid_job && within 20 in_state "$longer" RUNNING || return
  submit_saying 'waits on h100' --elastic="$table,steps=3600" --gres=gpu:4 --time=2:00:00 && asks_for "$job" h100 || return
  touch mark && within 20 is_saved || return # what Slurm itself loses in a crash, the last seconds, is not ours to test
  scontrol update "JobId=$longer" TimeLimit=10 && within 60 asks_for "$job" a100 && "$cluster" kill-ctld -KILL && "$cluster" restart-ctld || return
  within 20 scontrol update "JobId=$longer" TimeLimit=10 # which may be lost, too
  within 60 asks_for "$job" a100 && scancel "$longer" && within 60 runs_on "$job" node2 && within 20 why_says "$job" 'its GPU type: 4 a100:' &&
    word_of "$job" speeds | grep '^gpt;10;'
}
is_saved() { [[ $SWELL_CLUSTER_DIR/state/job_state -nt mark ]]; }
! changes_types || check 'kill -9 of slurmctld after a move loses neither type nor table' kill_loses_nothing

refused() { # WORDS sbatch options
  ! sbatch "${@:2}" "$work/trainer_job.sh" > said 2>&1 && cat said && grep -q -- "$1" said
}
what_cannot_be() {
  refused 'table=nowhere.json cannot be read: nowhere.json: No such file or directory; name a file' --elastic=types=h100/a100,table=nowhere.json --gres=gpu:4 || return
  printf '{"swell_table": 1}' > units.json && refused 'swell plan --model MODEL --cluster CLUSTER --table FILE --grid --json' --elastic=table=units.json --gres=gpu:4 || return
  awk 'BEGIN { printf "{\"model\": \"m\", \"samples_per_step\": 1, \"rows\": ["
    for (i = 1; i < 700; ++i) printf "%s{\"type\": \"h100\", \"gpus\": %d, \"samples_per_s\": %d.5}", (i > 1 ? ", " : ""), i, i
    printf "]}" }' > large.json && refused 'at most 4096 are sent' --elastic=table=large.json --gres=gpu:4 || return
  SWELL_ELASTIC=table=gpt.json refused 'table=gpt.json was not read' --gres=gpu:4 || return
  sbatch --parsable --hold --elastic="types=v100,table=$work/gpt.json" --gres=gpu:h100:4 --wrap true > said 2>&1 && grep 'types=v100: no node has GPUs of that type; there are a100/h100' said
}
check 'what cannot be is said in one sentence' what_cannot_be

deadlines() {
  refused 'cannot be kept: 4 h100 take 30 min, so that it ends at .* at the earliest' --elastic="$table,max=4,steps=3600,deadline=20m" --gres=gpu:4 &&
    sbatch --parsable --hold --elastic="$table,max=4,steps=3600,deadline=40m" --gres=gpu:4 --wrap true
}
check 'a deadline that its table rules out is refused with the earliest possible end' deadlines

finish_tests
