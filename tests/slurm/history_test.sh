#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Past events of jobs are kept in SQLite: over kill -9 of slurmctld, apart from who reads it, and anew where the file is damaged.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
after_check() { :; } # one job lives over several behaviours
cluster_up --nodes 2 --gpus-per-node 4 --users nobody
swell history 1 2>&1 | grep -q 'built without SQLite' && skip 'this Swell was built without SQLite'
file=$SWELL_CLUSTER_DIR/state/swell_history.sqlite

history() { swell history "${1:-$job}" --json; }
has() { history | jq -e "[.events[] | select($1)] | length >= ${2:-1}" > /dev/null; } # CONDITION [N]
# Slurm may be quicker than the controller; no other job waits, so that both know for whom it is.
taken_back='(.event == "reclaim" or .event == "companion-preempted") and .reason != null'
lent_and_returned() {
  submit --elastic=max=8 --gres=gpu:2 && within 60 grown "$job" 8 && rigid --gres=gpu:4 &&
    within 60 in_state "$rigid_job" RUNNING && within 60 has '.event == "companion-ended"' && within 60 has '.event == "pause" and .mode == "restart"' 2 || return
  has '.event == "grant" and .gpus == 4' && has '.event == "companion-started" and .companion > 0' &&
    has "$taken_back" && has '.event == "pause" and .stopped_s > 0' &&
    swell history "$job" | grep "needed by job $rigid_job"
}
check 'grants, reclaims and pauses of a job are kept, with their reasons' lent_and_returned

explains() { swell why "$job" > said && cat said && grep -qE "(was asked to give back|loses to Slurm) 4 GPUs .*: needed by job $rigid_job" said; }
check 'swell why says who took back what' explains
# 8 GPUs: it has 4 again, and a rigid job the others.
waits() { swell why "$job" | grep '^it takes no more now: no GPU that it could use is idle'; }
check 'swell why says that nothing is idle for it' within 30 waits
prices() { swell why "$job" | grep -E '^a change of its plan, by a restart, is expected to cost [0-9.]+ s of training, by its own last ones'; }
check 'swell why says how long the last changes of plan make it expect the next one to stop it' prices

others_are_refused() { # SUBCOMMAND [ARGUMENTS behind the job...]: to another user
  ! as nobody "$(command -v swell)" "$1" "$job" "${@:2}" > said 2>&1 && cat said && grep -q 'belongs to another user' said
}
owner_alone() {
  others_are_refused history && others_are_refused history --json && others_are_refused why &&
    ! swell history 99999 2> said && grep -q 'has no elastic job' said && [[ $(stat --format=%a "$file") == 600 ]]
}
check 'only its owner and the administrator see it' owner_alone

nobody_changes_it() {
  local before
  before=$(swell why "$job" --json | jq -c '[.paused, .own_max]') && [[ $before == '[false,0]' ]] && printf '{}' > plan && chmod 644 plan &&
    others_are_refused pause && others_are_refused resume && others_are_refused max 2 && others_are_refused replan --plan "$work/plan" &&
    [[ $(swell why "$job" --json | jq -c '[.paused, .own_max]') == "$before" ]]
}
check 'another user can neither pause nor resume nor limit it' nobody_changes_it

same_in_file() { diff <(history) <(swell history "$job" --json --file "$file"); }
check 'the file is read while slurmctld runs' within 20 same_in_file

ids() { jq -c '[.events[] | [.id, .event]]'; }
kept() {
  history | ids > before && "$cluster" kill-ctld -KILL && "$cluster" restart-ctld && within 60 has '.event == "decided-by"' 2 || return
  history | ids > after && jq -es '.[0] as $b | .[1] as $a | $a[:$b | length] == $b' before after > /dev/null &&
    has '.event == "job-started"' && ! has '.event == "job-started"' 2 && ! has '.event == "job-ended"'
}
check 'kill -9 of slurmctld loses nothing, and what it finds running is not kept twice' kept
check 'the costs of changes of its plan are known after that, too' within 30 prices

rebuilt() {
  "$cluster" kill-ctld -KILL && dd if=/dev/urandom of="$file" bs=4096 count=2 conv=notrunc status=none && "$cluster" restart-ctld &&
    within 60 has '.event == "job-started"' && logged 'the history cannot be used .*a new one is begun' && ls "$file".damaged-* &&
    within 60 in_state "$job" RUNNING
}
check 'a damaged file is set aside with a message, and a new one begun' rebuilt

ends() { scancel "$job" && within 60 ended "$job" && within 60 has '.event == "job-ended"'; }
check 'a job that has ended is there still' ends
finish_tests
