#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Agents that somebody wrote: mute ones, and ones that say what they should not. And an outage of munge, which is nobody's fault.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
[[ $(id -u) == 0 ]] || skip 'another user is needed: run as root'
expiry=4 # seconds that an offer stands; for who takes it up, as long as it does by default
prolog=$TMPDIR/prolog
printf '#!/bin/bash\n[[ ! -e %q ]] || sleep 10\nexit 0\n' "$TMPDIR/slow" > "$prolog" && chmod 755 "$prolog"
cluster_up --nodes 2 --gpus-per-node 4 --users games,backup --swell-conf GrantExpiry=$expiry --conf "Prolog=$prolog" --conf PrologFlags=Alloc

events_of_job() { grep "\"event\":\"$1\"" "$events" | grep -c "\"job\":$2\b"; } # EVENT JOB: how many
at_least() { (($("${@:2}") >= $1)); }                                          # N COMMAND...
times_of_grants() { # JOB: when it was offered GPUs; offers of one moment count once
  grep '"event":"grant"' "$events" | grep "\"job\":$1\b" | sed 's/.*"time":\([0-9]*\).*/\1/' | sort -nu |
    awk 'NR == 1 || $1 > last + 1 { print } { last = $1 }'
}
offers_to() { times_of_grants "$1" | wc -l; }

mute_agent() {
  attackers_job backup && hostile_link || return
  hello_of "$mine" 2 >&"$in"
  within 60 at_least 4 offers_to "$mine" && within 60 at_least 8 events_of_job grant-expired "$mine" || return
  local -a at
  mapfile -t at < <(times_of_grants "$mine")
  printf 'offered at %s\n' "${at[*]}"
  # 1, 2 and 4 s are waited after an expiry; times are cut to seconds
  ((at[1] - at[0] >= expiry && at[2] - at[1] >= expiry + 1 && at[3] - at[2] >= expiry + 3)) || return
  swell jobs > jobs.txt
  grep -E "^ *$mine .* [1-9][0-9]* \(expired\)" jobs.txt || { cat jobs.txt; return 1; }
  # and the GPUs are there for who takes them
  games_job && within 40 grown "$job" 6
  local status=$?
  hang_up
  return $status
}
check 'an agent that takes nothing up is offered ever less, and swell jobs says it' mute_agent

# A Prolog of 10 s, and offers that stand for 4 s.
slow_prolog() {
  lends_nothing && submit --elastic=max=8 --gres=gpu:4 && within 30 in_state "$job" RUNNING && within 30 workers_run "$job" 4 || return
  touch "$TMPDIR/slow"
  swell drain --undo && within 60 grown "$job" 8
  local status=$?
  rm -f "$TMPDIR/slow"
  ((status == 0)) && (($(events_of_job grant "$job") == 1 && $(events_of_job grant-expired "$job") + $(events_of_job grant-refused "$job") == 0))
}
check 'a companion whose Prolog takes longer than an offer stands is waited for' slow_prolog
cluster_down
rm -rf "$work"/[0-9]* # ids begin anew
cluster_up --nodes 2 --gpus-per-node 4 --users games,backup

# is_lent_to_hostile: `mine` holds a companion, made on a grant as swellrun would; its agent is connected.
is_lent_to_hostile() {
  local nonce node account gpus cpus memory
  attackers_job backup && offers_to_mine || return
  IFS=' ' read -r nonce node account gpus cpus memory < offers
  salloc_with "$nonce" "$node" "$gpus" "$cpus" "$memory" > salloc.txt 2>&1 || { cat salloc.txt; return 1; }
  printf '{"type":"grow-done","results":[{"nonce":"%s","companion":%s,"reason":""}]}\n' "$nonce" "$(companions "$mine")" >&"$in"
  within 10 is_lent "$mine" "$gpus"
}
says_and_is_gone() { # FUNCTION: prints what an agent must not say; it counts as gone from then on
  is_lent_to_hostile || return
  "$1" >&"$in"
  within 10 at_least 1 events_of_job agent-lost "$mine" && within 20 has_no_companions "$mine" && in_state "$mine" RUNNING
  local status=$?
  hang_up
  return $status
}
wrong_message() { printf '{"type":"worker-hello","generation":0,"group":0,"local_rank":0,"host":"x","port":1,"step":0}\n'; }
check 'an agent that says what is not for the controller counts as gone' says_and_is_gone wrong_message
second_hello() { hello_of "$mine" 2; }
check 'an agent that says hello twice counts as gone' says_and_is_gone second_hello

forged_host() {
  attackers_job backup && hostile_link || return
  hello_of "$mine" 2 'x\nforged by an agent\u001b[2J' >&"$in"
  within 10 at_least 1 events_of_job agent-connected "$mine" || return
  hang_up
  "$cluster" logs slurmctld > log
  grep -q '^forged' log && return 1
  grep -F 'x\x0aforged by an agent\x1b[2J' log
}
check 'the host that an agent names cannot begin a line in the log of slurmctld' forged_host

status_flood() {
  local i begin=$SECONDS kept
  attackers_job backup && hostile_link || return
  hello_of "$mine" 2 >&"$in"
  for ((i = 1; i <= 400; i++)); do
    printf '{"type":"status","state":"ACTIVE","generation":%s,"workers":2,"stopped_s":0}\n' "$i"
  done >&"$in"
  within 120 word_is "$mine" generation 400 || return
  kept=$(events_of_job status "$mine")
  hang_up
  printf '%s of 400 were kept in %s s\n' "$kept" $((SECONDS - begin))
  ((kept <= 100 + SECONDS - begin + 1))
}
check 'a flood of states does not fill the event log' status_flood

hostile_numbers() {
  local workers pid
  attackers_job backup && pid=$("$cluster" pid slurmctld) || return
  for workers in 2147483647 1073741825 65537; do
    { printf '{"type":"hello","job":%s,"version":2,"host":"x","workers":%s,"gpus_per_worker":%s,"companions":[]}\n' "$mine" "$workers" "$workers"
      printf 'wait refused\n'; } | hostile backup > said || return
    grep -q '"type":"refused"' said || { cat said; return 1; }
  done
  [[ $("$cluster" pid slurmctld) == "$pid" ]] && in_state "$mine" RUNNING
}
check 'numbers beyond all bounds are refused' hostile_numbers

renamed_at_once() {
  local nonce node account gpus cpus memory next changed=0 tries=0
  attackers_job backup && offers_to_mine || return
  IFS=' ' read -r nonce node account gpus cpus memory < offers
  next=$((mine + 1))
  salloc_with "$nonce" "$node" "$gpus" "$cpus" "$memory" > salloc.txt 2>&1 &
  until is_lent "$mine" "$gpus" || ((tries > 200)); do
    tries=$((tries + 1))
    as backup scontrol update job="$next" name=mine > /dev/null 2>&1 && changed=$((changed + 1))
    as backup scontrol update job="$next" comment=mine > /dev/null 2>&1 && changed=$((changed + 1))
  done
  wait $!
  hang_up
  printf '%s rounds, %s changes were accepted\n' "$tries" "$changed"
  ((changed == 0)) && is_lent "$mine" "$gpus" && [[ $(squeue -h -j "$next" -o '%j %q') == "swell-$mine-lent expansion" ]]
}
check 'its owner cannot rename a companion, from its first moment on' renamed_at_once

# Hundreds of changes of mind.
floods_events() {
  attackers_job backup && hostile_link || return
  { hello_of "$mine" 2; for ((i = 0; i < 400; ++i)); do printf '{"type":"status","state":"ACTIVE","generation":1,"workers":2,"stopped_s":0,"no_growth":"%s%s"}\n' "$i" "$(printf 'y%.0s' {1..2000})"; done; } >&"$in"
  within 60 at_least 90 events_of_job no-growth "$mine" && within 90 at_least 1 events_of_job events-left-out "$mine" || return
  (($(events_of_job no-growth "$mine") < 250)) && ! grep -q 'y\{600\}' "$events" && swell history "$mine" | grep 'left out [0-9]* events of job' && logged 'left out [0-9]* events of job'
  local status=$?
  hang_up
  return $status
}
check 'a flood of an agent is cut in EventLog, history and log, and is told of once' floods_events

grants_of_ended_jobs() {
  games_job && within 30 grown "$job" 8 && grep -q "\"parent\": $job\b" "$SWELL_CLUSTER_DIR/state/swell_state" || return
  as games scancel "$job" && within 20 ended "$job" && within 10 state_is_empty || { cat "$SWELL_CLUSTER_DIR/state/swell_state"; return 1; }
}
state_is_empty() { ! grep -q parent "$SWELL_CLUSTER_DIR/state/swell_state"; }
check 'the state file keeps no grants of jobs that have ended' grants_of_ended_jobs

munge_outage() {
  local before until
  games_job && within 30 grown "$job" 8 && before=$(companions "$job") || return
  "$cluster" kill munged -9 || return
  # Longer than AgentTimeout (4 s), and than the agent is silent (20 s): it says something meanwhile.
  for ((until = SECONDS + 25; SECONDS < until; )); do workers_run "$job" 8 || { echo 'a worker was stopped'; "$cluster" run munged; return 1; }; done
  "$cluster" run munged && within 30 goes_on "$job" && [[ $(companions "$job") == "$before" ]] && within 20 grown "$job" 8
}
check 'munge being away for longer than AgentTimeout takes no companion from a live agent' munge_outage

# From here on slurmctld is restarted: jobs that it starts before its nodes have registered again may get no GPUs.

# A plugin of the site's that comes after Swell's own changes what was admitted.
more_than_was_granted() {
  local status
  cat > "$SWELL_CLUSTER_DIR/etc/job_submit.lua" << 'LUA'
function slurm_job_submit(job, partitions, uid)
  if job.comment ~= nil and string.sub(job.comment, 1, 12) == "swell-grant=" then job.pn_min_memory = 200000 end
  return slurm.SUCCESS
end
function slurm_job_modify(change, job, partitions, uid) return slurm.SUCCESS end
LUA
  sed -i 's/^JobSubmitPlugins=.*/JobSubmitPlugins=swell,lua/' "$SLURM_CONF"
  "$cluster" restart-ctld && within 20 logged 'the controller is ready' && takes_too_much
  status=$?
  hang_up
  sed -i 's/^JobSubmitPlugins=.*/JobSubmitPlugins=swell/' "$SLURM_CONF"
  "$cluster" restart-ctld && return $status
}
takes_too_much() {
  local nonce node account gpus cpus memory
  attackers_job backup && offers_to_mine || return
  IFS=' ' read -r nonce node account gpus cpus memory < offers
  # It may be cancelled before salloc has returned.
  salloc_with "$nonce" "$node" "$gpus" "$cpus" "$memory" > salloc.txt 2>&1 || grep -q 'has been revoked' salloc.txt || { cat salloc.txt; return 1; }
  within 10 at_least 1 events_of_job companion-excessive "$mine" && within 20 has_no_companions "$mine" && in_state "$mine" RUNNING
}
# site_plugin ORDER CODE: the site's own plugin does CODE with each submission, and is called in that order.
site_plugin() {
  printf 'function slurm_job_submit(job, partitions, uid)\n  %s\n  return slurm.SUCCESS\nend\nfunction slurm_job_modify(change, job, partitions, uid) return slurm.SUCCESS end\n' \
    "$2" > "$SWELL_CLUSTER_DIR/etc/job_submit.lua"
  sed -i "s/^JobSubmitPlugins=.*/JobSubmitPlugins=$1/" "$SLURM_CONF"
  "$cluster" restart-ctld && within 20 idle_nodes
}
idle_nodes() { [[ $(sinfo -h -t idle -o %D) == 2 ]]; }
no_site_plugin() { sed -i 's/^JobSubmitPlugins=.*/JobSubmitPlugins=swell/' "$SLURM_CONF" && "$cluster" restart-ctld; }
# lends_none KIND WORDS: a job's offers are refused for that, ever more rarely, and its training is not stopped for them.
lends_none() {
  submit --elastic=max=8 --gres=gpu:4 && within 30 at_least 2 events_of_job grant-refused "$job" && within 20 grep -F -- "$2" "$work/$job.out" &&
    within 20 word_is "$job" why "$1" && within 20 has_no_companions "$job" && workers_run "$job" 4 && [[ $(newest_generation "$job") == 0 ]] &&
    swell jobs | grep -E "^ *$job .* [1-9][0-9]* \($1\)" && swell history "$job" | grep -F "$1" && within 20 last_offer_failed "$1" || { swell why "$job"; swell history "$job"; return 1; }
  # A pending job is kept waiting by nobody.
  rigid --nodes=1 --gres=gpu:4 && within 30 in_state "$rigid_job" RUNNING
}
last_offer_failed() { swell why "$job" | grep "its last offer failed ($1)"; }
takes_the_grant() {
  site_plugin lua,swell 'job.comment = "site"' && lends_none unlike 'the grant is not in its comment any more: a cli_filter of the site (which must leave jobs alone whose name begins with "swell-") or a plugin of job_submit took it out (put swell first in JobSubmitPlugins)' &&
    swell doctor | grep -i 'warn.*JobSubmitPlugins.*lua stands before swell' || { swell doctor; return 1; }
}
writes_beside_the_grant() {
  site_plugin lua,swell 'if job.comment ~= nil then job.comment = "site: " .. job.comment .. ";cost=7" end' && submit --elastic=max=8 --gres=gpu:4 && within 40 grown "$job" 8
}
changes_a_field() { site_plugin lua,swell 'job.nice = 10' && lends_none unlike 'put swell first in JobSubmitPlugins' && within 20 grep -F 'nice=' "$work/$job.out"; }
refuses_changes() {
  site_plugin lua,swell '' && sed -i 's/\(slurm_job_modify.*return slurm\.\)SUCCESS/\1ERROR/' "$SWELL_CLUSTER_DIR/etc/job_submit.lua" &&
    submit --elastic=max=8 --gres=gpu:4 && within 40 workers_run "$job" 8 && within 10 shows_what_is_lent || { swell jobs; return 1; }
  within 20 doctor_warns 'AdminComment: Slurm refuses what Swell writes about jobs: ' || { swell doctor; return 1; }
}
shows_what_is_lent() { swell jobs > jobs && grep -E "^ *$job .* 8/8 " jobs && grep -F "Job $job is lent more than the " jobs; }
doctor_warns() { swell doctor | grep -E "^warn *$1"; }
changes_the_tag() { site_plugin swell,lua 'if job.name ~= nil and string.sub(job.name, 1, 6) == "swell-" then job.admin_comment = "site" end' && lends_none unlike 'another plugin of job_submit changed its AdminComment'; }
removes_the_tag() {
  site_plugin swell,lua 'job.admin_comment = "site"' && submit --elastic=max=8 --gres=gpu:4 && within 30 workers_run "$job" 4 &&
    within 10 grep -F "was submitted with --elastic, but its AdminComment does not say so any more: another plugin of job_submit or scontrol has replaced it" "$work/$job.out"
}
changes_the_qos() {
  site_plugin swell,lua 'job.qos = "normal"' && submit --elastic=max=8 --gres=gpu:4 && within 30 in_state "$job" RUNNING && within 60 at_least 3 failed_of "$job" && within 60 at_least 3 offers_to "$job" &&
    has_no_companions "$job" && workers_run "$job" 4 && [[ $(newest_generation "$job") == 0 ]] || { swell history "$job"; return 1; }
  local -a at
  mapfile -t at < <(times_of_grants "$job")
  printf 'offered at %s\n' "${at[*]}"
  ((at[2] - at[1] >= 2))
}
offers_to() { times_of_grants "$1" | wc -l; }
failed_of() { printf '%s\n' $(($(events_of_job grant-refused "$1") + $(events_of_job companion-excessive "$1"))); }
if [[ -e $(dirname "$(find /usr/lib /usr/lib64 -name sched_backfill.so -path '*slurm*' 2> /dev/null | head -n 1)")/job_submit_lua.so ]]; then
  check 'a companion that Slurm gave more than was granted is cancelled' more_than_was_granted
  check 'a site plugin that takes the grant from its comment has companions refused, and doctor warns' takes_the_grant
  check 'text of a site plugin beside the grant does no harm' writes_beside_the_grant
  check 'a refusal of job_submit is shown by swell why, jobs and history' changes_a_field
  check 'a site that refuses changes of jobs: swell jobs shows what is lent, and doctor warns' refuses_changes
  check 'a companion without its tag is given back at once' changes_the_tag
  check 'a job whose tag a site plugin removes is told that, and runs on' removes_the_tag
  check 'a companion under another QOS is given back before training stops for it, ever more rarely' changes_the_qos
  no_site_plugin
fi

event_log_is_no_link() {
  local at=$work/open
  mkdir -m 1777 "$at" && echo 'of SlurmUser' > "$TMPDIR/precious" && chmod 666 "$TMPDIR/precious" || return
  as backup ln -s "$TMPDIR/precious" "$at/events.jsonl" || return
  cp "$SWELL_CLUSTER_DIR/etc/swell.conf" good.conf
  sed -i "s|^EventLog=.*|EventLog=$at/events.jsonl|" "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && within 20 logged 'the controller is ready' && games_job && within 30 word_is "$job" state ACTIVE &&
    within 10 logged "EventLog=$at/events.jsonl: .*events are not kept" && [[ $(cat "$TMPDIR/precious") == 'of SlurmUser' ]]
  local status=$?
  cp good.conf "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && return $status
}
check 'the event log follows no link' event_log_is_no_link

event_log_on_a_full_disk() {
  local at=$work/small status=1 ctld
  mkdir -p "$at" && mount -t tmpfs -o size=64k,mode=1777 small "$at" || return
  dd if=/dev/zero of="$at/filler" bs=1k count=100 2> /dev/null
  cp "$SWELL_CLUSTER_DIR/etc/swell.conf" good.conf
  sed -i "s|^EventLog=.*|EventLog=$at/events.jsonl|" "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && within 20 logged 'the controller is ready' && ctld=$("$cluster" pid slurmctld) &&
    games_job && within 30 word_is "$job" state ACTIVE && within 30 grown "$job" 8 &&
    within 10 logged "EventLog=$at/events.jsonl: No space left on device; events wait" && [[ ! -s $at/events.jsonl ]] &&
    swell history "$job" > said && grep -w grant said && rm "$at/filler" && scancel "$job" && within 30 all_events_came &&
    [[ $("$cluster" pid slurmctld) == "$ctld" ]] && status=0
  cat said "$at/events.jsonl"
  cp good.conf "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld
  umount "$at"
  return $status
}
all_events_came() { # in their order
  jq -es --argjson job "$job" '[.[] | select(.job == $job) | .event] | index("job-started") != null and index("grant") and index("job-ended")' \
    "$work/small/events.jsonl" && jq -es '[.[].time] | . == sort' "$work/small/events.jsonl"
}
((EUID != 0)) || check 'on a full disk slurmctld goes on, and events are written once there is room' event_log_on_a_full_disk

# Two users have a job each; a worker of each is killed on node2, the only node with idle GPUs.
fails_on_node2() { # USER
  job=$(as "$1" sbatch --parsable --output="$work/%j.out" --elastic=max=8,grace=5 --gres=gpu:4 --nodelist=node1 "$work/trainer_job.sh") && within 60 grown "$job" 8 || return
  kill -9 "$(cut -d' ' -f1 "$work/$job/start.$(newest_generation "$job").7")" && within 30 is_lent "$job" 0 && within 20 at_least 1 events_of_job companion-failed "$job"
}
withheld_for() { # SECONDS; of 0 nothing is remembered
  sed -i "s/^WithholdTime=.*/WithholdTime=$1/" "$SWELL_CLUSTER_DIR/etc/swell.conf" && "$cluster" restart-ctld
}
withheld_by_one() {
  withheld_for 3600 && fails_on_node2 games && scancel "$job" && within 30 ended "$job" && fails_on_node2 games && scancel "$job" && within 30 ended "$job" || return
  swell top --once | grep 'not lent, as companions failed there: node2 (60 min)' || return
  job=$(as backup sbatch --parsable --output="$work/%j.out" --elastic=max=8,grace=5 --gres=gpu:4 --nodelist=node1 "$work/trainer_job.sh") &&
    within 30 swell_why_names_node2 && is_lent "$job" 0 && withheld_for 0 && within 60 grown "$job" 8
}
withheld_node() {
  withheld_for 3600 || return
  fails_on_node2 games && scancel "$job" && within 30 ended "$job" && fails_on_node2 backup && within 20 swell_why_names_node2 &&
    swell top --once | grep 'not lent, as companions failed there: node2 (60 min)' && "$cluster" restart-ctld && within 20 logged_again &&
    swell top --once | grep 'node2 (60 min)' && within 20 swell_why_names_node2 && rigid --nodelist=node2 --gres=gpu:4 && within 30 in_state "$rigid_job" RUNNING && is_lent "$job" 0
}
swell_why_names_node2() { swell why "$job" | grep 'nothing is lent on node2 for .* more: companions of several jobs failed there'; }
logged_again() { swell jobs | grep -w "$job" && swell why "$job"; }
# Options that fail on lent nodes alone, of jobs of two users.
options_fail_there() {
  local user
  printf '#!/bin/bash\n[[ $SLURMD_NODENAME != node2 ]] || kill -9 $PPID\n' > prolog.sh && chmod 755 prolog.sh && withheld_for 3600 || return
  for user in games backup games backup; do
    job=$(TRAINER_RUN=--task-prolog=$work/prolog.sh as "$user" sbatch --parsable --output="$work/%j.out" --elastic=max=8,grace=5 --gres=gpu:4 --nodelist=node1 "$work/trainer_job.sh") &&
      within 60 at_least 1 events_of_job companion-failed "$job" && scancel "$job" && within 30 ended "$job" || return
  done
  ! swell top --once | grep 'companions failed there' && ! grep '"node-withheld"' "$events" &&
    job=$(sbatch --parsable --output="$work/%j.out" --elastic=max=8,grace=5 --gres=gpu:4 --nodelist=node1 "$work/trainer_job.sh") && within 60 grown "$job" 8
}
check 'options of srun that fail on lent nodes keep no node from other jobs' options_fail_there
check 'a node on which companions of two jobs of one user failed is lent to nobody' withheld_by_one
check 'a node on which companions of two users failed is not lent, also after a restart of slurmctld, and swell top names it' withheld_node

finish_tests
