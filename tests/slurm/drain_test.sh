#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# An admin takes Swell out of service with jobs running: drained in order, then removed and put back as swell-admin(7) says.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 4 --gpus-per-node 4
after_check() { :; } # the jobs go on from one behaviour to the next

agent_of() { grep -q "\"agent-connected\".*\"job\": *$1[,}]\|\"job\": *$1,.*\"agent-connected\"" "$events"; }

# all_left JOB GENERATION: every worker of that generation wrote its checkpoint and left; none was killed.
all_left() {
  local file rank
  for file in "$work/$1/start.$2."*; do
    rank=${file##*.}
    [[ -e $work/$1/left.$2.$rank ]] || { printf 'rank %s of generation %s of job %s was killed\n' "$rank" "$2" "$1"; return 1; }
  done
}

drains_in_order() {
  submit --elastic=max=8,grace=20 --gres=gpu:2 && a=$job && submit --elastic=max=8,grace=20 --gres=gpu:2 && b=$job || return
  within 60 grown "$a" 8 && within 60 grown "$b" 8 && settled || return
  local generation_a generation_b step_a
  generation_a=$(word_of "$a" generation) generation_b=$(word_of "$b" generation) step_a=$(cat "$work/$a/step")
  swell drain > drained 2>&1 || { cat drained; return 1; }
  cat drained
  grep -q '^nothing is lent' drained && has_no_companions "$a" && has_no_companions "$b" || return
  all_left "$a" "$generation_a" && all_left "$b" "$generation_b" || return
  within 20 grown "$a" 2 && within 20 grown "$b" 2 && goes_on "$a" && goes_on "$b" || return
  (($(step_of "$a") >= step_a)) && settled
}
check 'swell drain takes everything back within the grace, and no step is lost' drains_in_order

lends_no_more() {
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=max=8 --gres=gpu:2 "$work/trainer_job.sh" 2> said) || return
  grep -q 'nothing is lent for now' said || { cat said; return 1; }
  within 30 agent_of "$job" && goes_on "$job" || return
  # GrowthInterval is a second: without the drain all three would have grown long ago
  rigid --gres=gpu:4 && within 20 in_state "$rigid_job" RUNNING && scancel "$rigid_job" && within 30 ended "$rigid_job" || return
  is_lent "$job" 0 && is_lent "$a" 0 && is_lent "$b" 0 || return
  # It has started while the site is drained: how it is decided is known all the same.
  swell why "$job" > said && cat said && grep -q 'decision: worker by worker' said && grep -q '^it takes no more now: the administrator drains Swell' said || return
  swell doctor > doctor.txt
  grep -q '^warn .*swell drain --undo\|^warn *swell.conf' doctor.txt || { cat doctor.txt; return 1; }
}
check 'a drained site lends no more, says so to who submits, and the doctor warns' lends_no_more

stays_drained() {
  "$cluster" restart-ctld && goes_on "$a" && within 30 agent_reconnected "$a" && is_lent "$a" 0
}
agent_reconnected() { (($(grep -c "agent-connected.*job.*$1" "$events") >= 2)); }
check 'a restart of slurmctld does not end the drain' stays_drained

undone() { swell drain --undo > said && cat said && grep -qx 'GPUs are lent again' said && within 60 something_lent "$a" && settled; }
something_lent() { (($(lent "$1") > 0)); }
check 'swell drain --undo lends again, without a restart' undone

not_by_everybody() {
  local said
  [[ $(id -u) == 0 ]] || return 0
  said=$(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups -- swell drain 2>&1) && return 1
  printf '%s\n' "$said"
  [[ $said == *'run this as root on'* ]] && (($(lent "$a") > 0))
}
check 'an ordinary user cannot drain the site' not_by_everybody

# As written under REMOVAL in swell-admin(7).
removal() {
  local before
  swell drain || return
  before=$(cat "$work/$a/step")
  sacctmgr -i modify qos where name=expansion set GrpSubmitJobs=0 > /dev/null && cp "$SLURM_CONF" "$work/with.conf" || return
  sed -i 's/^SchedulerType=.*/SchedulerType=sched\/backfill/; /^JobSubmitPlugins=swell$/d; s|^PluginDir=[^:]*/swell/shadow:|PluginDir=|' "$SLURM_CONF" &&
    "$cluster" restart-ctld || return
  swell drain --undo > said && cat said && grep -q "once Swell's controller runs, which does not answer now: swell doctor" said && ! grep -q '^GPUs' said && swell drain || return
  goes_on "$a" && goes_on "$b" && (($(cat "$work/$a/step") >= before)) && in_state "$a" RUNNING || return
  ! swell why "$a" 2> said && cat said && grep -q "Connection refused; Swell's controller does not run.*swell doctor" said || return
  { printf '#!/bin/bash\n#SBATCH --elastic=max=8\n#SBATCH --gres=gpu:1\n'; echo 'exit 0'; } > still.sh
  job=$(sbatch --parsable --output="$work/%j.out" still.sh) || return
  within 30 ended "$job" && [[ $(scontrol -o show job "$job") == *JobState=COMPLETED* ]] || return
  touch "$work/$b/finish" && within 30 ended "$b" && [[ $(cat "$work/$b/status") == 0 ]]
}
check 'removed as written, running jobs lose no step and #SBATCH --elastic still parses' removal

# As written there and in docs/admin-guide.md: the lines, the restart, the QOS, the drain.
comes_back() {
  local before
  before=$(cat "$work/$a/step")
  cp "$work/with.conf" "$SLURM_CONF" && "$cluster" restart-ctld && is_lent "$a" 0 || return
  # Each is needed: drained and closed, nothing is lent.
  swell doctor > doctor.txt
  grep -q '^warn *swell.conf: Elasticity=drain' doctor.txt && grep -q '^FAULT *limits: .*GrpSubmitJobs=0' doctor.txt || { cat doctor.txt; return 1; }
  sacctmgr -i modify qos where name=expansion set GrpSubmitJobs=-1 > /dev/null && swell drain --undo && within 60 something_lent "$a" || return
  # Its workers leave with a checkpoint only when those on the lent GPUs are up.
  goes_on "$a" && within 60 checkpoint_from "$a" "$before" && within 15 no_faults || { cat doctor.txt; return 1; }
  touch "$work/$a/finish" && within 30 ended "$a" && [[ $(cat "$work/$a/status") == 0 ]]
}
checkpoint_from() { (($(step_of "$1") >= $2)); }
no_faults() { swell doctor > doctor.txt && ! grep '^FAULT' doctor.txt; }
check 'put back as written, a job that ran all the while is lent GPUs again' comes_back

# The admin's guide says what the test has done: plugstack.conf stays as it is.
the_guide_agrees() {
  local rolls
  rolls=$(sed -n '/^- Rolling back:/,/^- StateSaveLocation/p' "$top/docs/admin-guide.md" | tr '\n' ' ')
  [[ $rolls == *'swell/shadow and swell/select out of PluginDir and swell out of JobSubmitPlugins'* && $rolls == *'spank_swell.so stays in plugstack.conf'* &&
    $rolls == *'GrpSubmitJobs=-1'*'swell drain --undo'* ]]
}
check 'the guide of admins says so' the_guide_agrees

finish_tests
