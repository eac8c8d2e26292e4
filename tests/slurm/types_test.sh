#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# GPU types of jobs that have a table of their speeds (--elastic=types=A/B,table=FILE): chosen at submission, and again while
# they wait. Node1 has GPUs of one type, node2 of another.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 2 --gpus-per-node 4 --gpu-type h100,a100 --credential-life 20 --swell-conf TypeInterval=2
ready() { "$cluster" logs slurmctld | grep 'the controller is ready' > /dev/null; }
within 20 ready || exit 1

cat > "$work/gpt.json" << 'EOJ'
{"model": "gpt", "samples_per_step": 10, "source": "one-device", "rows": [
 {"type": "h100", "gpus": 4, "samples_per_s": 20}, {"type": "a100", "gpus": 4, "samples_per_s": 10},
 {"type": "h100", "gpus": 2, "samples_per_s": 18}, {"type": "a100", "gpus": 2, "samples_per_s": 5.5}]}
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

# ---- switch=requeue: a job that runs is moved

switches=$table,switch=requeue
events_of() { grep "\"event\":\"$1\".*\"job\":$2\b" "$events" > /dev/null; }
in_leaving() { events_of type-move-begun "$job" && grep 'the job moves to h100: the workers save and leave' "$job.out"; }
# began_on_a100: a job with steps for ten hours, on node2, since `long` holds node1; where that ends, it pays to move.
began_on_a100() { # [keys of --elastic]
  rigid --gres=gpu:h100:4 --time=30:00:00 && long=$rigid_job && within 20 in_state "$long" RUNNING || return
  submit_saying 'starts on a100' --requeue --open-mode=append --elastic="$switches,steps=36000,grace=30,${1:-max=4}" --gres=gpu:4 --time=20:00:00 &&
    within 30 runs_on "$job" node2 && within 30 word_is "$job" state ACTIVE && goes_on "$job"
}
moves() { within 60 runs_on "$job" node1 && asks_for "$job" h100 && within 30 goes_on "$job"; }
moved_while_it_runs() {
  local before
  began_on_a100 && scancel "$long" && moves || { cat "$job.out"; return 1; }
  before=$(step_of "$job")
  events_of type-move-begun "$job" && within 20 events_of type-moved "$job" && within 20 why_says "$job" 'its GPU type: moved from a100 to h100 while it ran: 4 h100 are 2.00 times' &&
    ((before > 0)) && grep 'the job moves to h100: the workers save and leave' "$job.out" && settled || return
  # From its checkpoint, and no sooner than in an hour again.
  within 20 further_than "$job" "$before" && why_says "$job" 'it was moved .* ago, and is moved once in 1 h (SwitchInterval)'
}
! changes_types || check 'a job that runs is moved to the better type by checkpoint and requeue, once an hour' moved_while_it_runs

cannot_switch() {
  submit_saying 'switch=requeue is not used: this version of Slurm does not let a waiting job change its GPU type' --requeue --elastic="$switches,steps=3600" --gres=gpu:4 --time=2:00:00 &&
    within 30 in_state "$job" RUNNING && within 20 why_says "$job" 'it stays on h100: this version of Slurm does not let' || return
  swell doctor | grep 'switch=requeue is not used'
}
if ! changes_types; then check 'where Slurm changes no type of a job that waits none is moved, and all say so' cannot_switch; fi

lent_leave_first() {
  began_on_a100 max=8 && scancel "$long" && within 60 runs_on "$job" node1 && within 20 events_of type-moved "$job" && within 30 goes_on "$job" && settled || return
  within 30 is_lent "$job" 4
}
! changes_types || check 'lent GPUs go back first, and it is lent others after the move' lent_leave_first

# A job that comes while the workers leave is served first: the other trains on where it was.
others_come_first() {
  local generation
  began_on_a100 && generation=$(newest_generation "$job") && : > "$work/$job/slow_leave" && scancel "$long" && within 20 in_leaving &&
    rigid --gres=gpu:h100:4 --time=9:00:00 && within 20 in_state "$rigid_job" RUNNING && rm "$work/$job/slow_leave" || return
  within 30 events_of type-move-called-off "$job" && within 20 why_says "$job" 'its last move was called off .* ago: the h100 are needed by others' &&
    runs_on "$job" node2 && within 20 newer_than "$generation" && goes_on "$job" && settled
}
newer_than() { (($(newest_generation "$job") > $1)); }
! changes_types || check 'a job that needs the GPUs meanwhile gets them, and the other trains on' others_come_first

# at_phase PHASE ACTION: an elastic job that moves; ACTION is done in PHASE. Then it trains, on either type, once.
at_phase() {
  began_on_a100 && touch mark && within 20 is_saved || return
  { [[ $1 != leaving ]] || : > "$work/$job/slow_leave"; } && scancel "$long" && within 20 "in_$1" && "${@:2}" && rm -f "$work/$job/slow_leave" || return
  within 120 in_state "$job" RUNNING && within 60 goes_on "$job" && within 30 trains_once && settled
}
trains_once() { (($(live_workers) == 4)); } # no worker of an earlier run is alive
live_workers() {
  local file pid live=0
  for file in "$work/$job"/start.*; do
    read -r pid _ < "$file"
    ! kill -0 "$pid" 2> /dev/null || live=$((live + 1))
  done
  printf '%s\n' "$live"
}
kills_ctld() { "$cluster" kill-ctld -KILL && "$cluster" restart-ctld && within 20 ready; }
kills_swellrun() { kill -9 "$(cat "$work/$job/swellrun.pid")"; }
! changes_types || check 'kill -9 of slurmctld while the workers leave leaves one run of the job' at_phase leaving kills_ctld
! changes_types || check 'kill -9 of swellrun while its workers leave leaves the requeued run' at_phase leaving kills_swellrun

# The job has two of the four GPUs of its node, and is lent the others. slurmctld dies before they are back.
killed_before_lent_are_back() {
  rigid --gres=gpu:h100:4 --time=30:00:00 && long=$rigid_job && within 20 in_state "$long" RUNNING &&
    submit_saying 'starts on a100' --requeue --open-mode=append --elastic="$switches,steps=36000,grace=30,max=4" --gres=gpu:2 --time=20:00:00 &&
    within 60 grown "$job" 4 && touch mark && within 20 is_saved || return
  : > "$work/$job/slow_leave" && scancel "$long" && within 20 why_says "$job" 'and its lent GPUs go back first' && kills_ctld && rm "$work/$job/slow_leave" || return
  # It moves now, or stays with what it has.
  within 60 in_state "$job" RUNNING && within 90 has_all_that_it_is_lent && goes_on "$job" && settled
}
has_all_that_it_is_lent() {
  local total
  total=$((2 + $(lent "$job"))) && grown "$job" "$total" && (($(live_workers) == total))
}
! changes_types || check 'kill -9 of slurmctld before lent GPUs are back leaves one run of the job' killed_before_lent_are_back

cannot_be_requeued() {
  refused 'switch=requeue needs a job that Slurm may requeue; leave --no-requeue out' --no-requeue --elastic="$switches" --gres=gpu:4 &&
    refused 'switch=requeue needs the GPU types that the job may move to; add types=A/B' --elastic="table=$work/gpt.json,switch=requeue" --gres=gpu:4 &&
    refused 'switch=live is not valid; switch must be requeue' --elastic="$table,switch=live" --gres=gpu:4 || return
  ! salloc --elastic="$switches" --gres=gpu:4 true > said 2>&1 && grep 'switch=requeue is for jobs of sbatch' said
}

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
check 'a job that Slurm cannot requeue is refused with the remedy' cannot_be_requeued

deadlines() {
  refused 'cannot be kept: 4 h100 take 30 min, so that it ends at .* at the earliest' --elastic="$table,max=4,steps=3600,deadline=20m" --gres=gpu:4 &&
    sbatch --parsable --hold --elastic="$table,max=4,steps=3600,deadline=40m" --gres=gpu:4 --wrap true
}
check 'a deadline that its table rules out is refused with the earliest possible end' deadlines

finish_tests
