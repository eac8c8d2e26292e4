#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# One user reaches for another's job, and an admin makes a mistake in swell.conf.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
[[ $(id -u) == 0 ]] || skip 'another user is needed: run as root'
cluster_up --nodes 2 --gpus-per-node 4 --users games,backup

an_ordinary_user_can() { games_job && within 30 grown "$job" 8 && settled && [[ $(squeue -h -o %u | sort -u) == games ]]; }
check 'an ordinary user needs no rights for any of this' an_ordinary_user_can

claims_are_refused() {
  local said
  said=$(as backup salloc --no-shell --immediate=1 --comment=swell-grant=0123 --gres=gpu:1 2>&1) && return 1
  [[ $said =~ 'no live grant' ]] || return
  said=$(as backup sbatch --qos=expansion --gres=gpu:1 --wrap 'sleep 1' 2>&1) && return 1
  [[ $said =~ 'for companions' ]] && settled
}
check 'a submission that claims to be a companion is refused with the reason' claims_are_refused

log_lines_cannot_be_forged() {
  as backup env SWELL_ELASTIC=$'colour\nforged by a user' sbatch --gres=gpu:1 --wrap 'sleep 1' > said 2>&1 && return 1
  grep -q 'unknown key "colour' said || { cat said; return 1; }
  "$cluster" logs slurmctld > log
  grep -q '^forged' log && return 1
  grep -F 'colour\x0aforged by a user' log
}
check 'text of a user cannot begin a line in the log of slurmctld' log_lines_cannot_be_forged

anothers_job() {
  games_job && within 30 grown "$job" 8 || return
  # backup runs a swellrun that says it manages the job of games
  as backup env SLURM_JOB_ID="$job" SLURM_CONF="$SLURM_CONF" swellrun -n 2 true > said 2>&1
  grep -q 'another user' said || { cat said; return 1; }
  as backup scancel "$(companions "$job" | head -n 1)" && return 1
  in_state "$job" RUNNING && grown "$job" 8 && settled
}
check 'another user can neither manage a job nor end its companions' anothers_job

owner_cannot_keep_it() {
  games_job && within 30 grown "$job" 8 || return
  local one
  one=$(companions "$job" | head -n 1)
  as games scontrol update job="$one" qos=normal && return 1
  as games scontrol update job="$one" comment=mine && return 1
  [[ $(squeue -h -j "$one" -o %q) == expansion ]]
}
check 'the owner of a companion cannot make it permanent' owner_cannot_keep_it

garbage_at_the_port() {
  games_job && within 30 grown "$job" 8 || return
  local port how status
  local -a strangers=()
  port=$(sed -n 's/^ControlPort=//p' "$SWELL_CLUSTER_DIR/etc/swell.conf")
  for how in 'garbage 200' 'silent 300'; do # processes of another user
    # shellcheck disable=SC2086 # words
    python3 "$here/strangers.py" backup $how "$port" > "strangers.${how%% *}" & strangers+=($!)
  done
  within 60 grep -q here strangers.garbage && within 60 grep -q here strangers.silent &&
    rigid --gres=gpu:4 && within 20 in_state "$rigid_job" RUNNING && within 20 grown "$job" 4 && settled
  status=$?
  { kill "${strangers[@]}" && wait "${strangers[@]}"; } 2> /dev/null
  return $status
}
check 'garbage and silence at the port of the controller delay nobody' garbage_at_the_port

ticks_of() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
floods_at_the_port() { # as fast as they can; slurmctld has no more to do with it after a while
  local port pid how ticks begin percent status
  local -a strangers=()
  port=$(port_of_controller) pid=$("$cluster" pid slurmctld)
  for how in flood garbage; do
    python3 "$here/strangers.py" backup $how 100 "$port" > "strangers.$how" & strangers+=($!)
  done
  within 60 grep -q here strangers.flood && within 60 grep -q here strangers.garbage && sleep 5
  ticks=$(ticks_of "$pid") begin=$SECONDS
  # Within little time: an agent waits for 8 s at most before it connects again.
  games_job && within 20 word_is "$job" state ACTIVE && within 20 grown "$job" 8 && settled
  status=$?
  while ((SECONDS - begin < 12)); do sleep 0.5; done
  percent=$((($(ticks_of "$pid") - ticks) * 100 / $(getconf CLK_TCK) / (SECONDS - begin)))
  printf '%s %% of a core\n' "$percent"
  { kill "${strangers[@]}" && wait "${strangers[@]}"; } 2> /dev/null
  ((status == 0 && percent <= 12))
}
check 'floods at the port of the controller cost it little, and an agent connects meanwhile' floods_at_the_port

# ---- an agent that somebody wrote to do harm

cancels_nobodys_jobs() {
  local a b c d id nonce
  a=$(sbatch --parsable --output=/dev/null --gres=gpu:1 --wrap 'sleep 36000')               # root's
  b=$(as games sbatch --parsable --output=/dev/null --gres=gpu:1 --wrap 'sleep 36000')      # another user's
  c=$(as games sbatch --parsable --output=/dev/null --array=1-2 --wrap 'sleep 36000')       # an array
  d=$(as games sbatch --parsable --output=/dev/null --hold --wrap 'sleep 36000')            # pending
  attackers_job backup && within 20 in_state "$a" RUNNING && within 20 in_state "$b" RUNNING || return
  {
    hello_of "$mine" 2
    printf 'wait grow\n'
    within 20 grep -q nonce said
    for nonce in $(grep -o '"nonce":"[0-9a-f]*"' said | cut -d'"' -f4); do
      printf '{"type":"grow-done","results":['
      for id in "$a" "$b" "$c" "$((c + 1))" "$d"; do
        printf '{"nonce":"%s","companion":%s,"reason":""},' "$nonce" "$id"
      done
      printf '{"nonce":"%s","companion":%s,"reason":""}]}\n' "$nonce" "$mine"
    done
    for id in "$a" "$b" "$c" "$((c + 1))" "$d"; do printf '{"type":"released","companion":%s,"reason":""}\n' "$id"; done
    printf '{"type":"bye","exit_code":0}\n'
    within 20 events_of agent-left
  } | hostile backup > said
  events_of agent-left > /dev/null || { echo 'the attack did not reach the controller'; cat said; return 1; }
  # Whatever the controller does about it, it has done when it has decided on something new.
  games_job && within 30 grown "$job" 3 || { squeue; return 1; }  # of 8 GPUs, with CPUs for one more
  for id in "$a" "$b" "${c}_1" "${c}_2"; do in_state "$id" RUNNING || { echo "$id is $(state_of "$id")"; return 1; }; done
  in_state "$d" PENDING && in_state "$mine" RUNNING
}
check 'an agent that names the jobs of others as its companions cancels none of them' cancels_nobodys_jobs

# ---- what a grant is not for

only_what_was_offered() {
  local account nonce node gpus cpus memory extra said i=0
  local -a tried=(--exclusive --mem=0 --gpus=h100:2 --threads-per-core=1 --nice=5 --oversubscribe
    --exclude=node9 --dependency=singleton)
  while ((i < ${#tried[@]})); do
    attackers_job backup && offers_to_mine || return
    while IFS=' ' read -r -u 3 nonce node account gpus cpus memory && ((i < ${#tried[@]})); do
      extra=${tried[i]}
      said=$(salloc_with "$nonce" "$node" "$gpus" "$cpus" "$memory" "$extra" 2>&1) && { echo "granted with $extra"; return 1; }
      "$cluster" logs slurmctld | grep 'a Swell companion was refused' | tail -n 1 > refusal
      echo "$extra: $(cat refusal) $said"
      [[ $said =~ 'companion was refused'|'denied' ]] || return
      i=$((i + 1))
    done 3< offers
    hang_up
    as backup scancel "$mine" && within 20 ended "$mine" || return
  done
  # and as it was offered, it is granted
  attackers_job backup && offers_to_mine || return
  IFS=' ' read -r nonce node account gpus cpus memory < offers
  salloc_with "$nonce" "$node" "$gpus" "$cpus" "$memory" && within 10 is_lent "$mine" "$gpus"
  local status=$?
  hang_up
  return $status
}
check 'a grant gets what was offered and nothing besides' only_what_was_offered

# ---- the place of companions

place_is_closed() {
  local own
  own=$(as backup sbatch --parsable --output=/dev/null --hold --wrap 'sleep 1') || return
  closed_to as backup sbatch --qos=expansion --wrap 'sleep 1' &&
    closed_to as backup sbatch --qos=EXPANSION --wrap 'sleep 1' &&
    closed_to as backup sbatch --qos=Expansion --array=1-3 --wrap 'sleep 1' &&
    closed_to as backup scontrol update job="$own" qos=expansion &&
    closed_to as backup scontrol update job="$own" qos=EXPANSION &&
    closed_to as backup scontrol update job="$own" comment=swell-grant=0123
}
check 'the expansion QOS is closed to everybody, in any spelling' place_is_closed

at_the_start() {
  "$cluster" kill-ctld -9
  local tries=0 said
  "$cluster" restart-ctld > /dev/null 2>&1 &
  # From before slurmctld listens until well after its controller is ready.
  until "$cluster" logs slurmctld | grep 'the controller is ready' > /dev/null && ((tries > 20)); do
    tries=$((tries + 1))
    said=$(as backup sbatch --qos=expansion --output=/dev/null --wrap 'sleep 36000' 2>&1) && { echo "accepted: $said"; wait; return 1; }
  done
  wait $!
  closed_to as backup sbatch --qos=expansion --wrap 'sleep 1'
}
check 'it is not open while slurmctld starts' at_the_start

while_elasticity_is_off() { # LINE of swell.conf
  local own status
  cp "$SWELL_CLUSTER_DIR/etc/swell.conf" good.conf
  printf '%s\n' "$1" >> "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && within 20 logged 'elasticity is off' &&
    own=$(as backup sbatch --parsable --output=/dev/null --hold --wrap 'sleep 1') &&
    closed_to as backup sbatch --qos=expansion --wrap 'sleep 1' &&
    closed_to as backup scontrol update job="$own" qos=expansion
  status=$?
  cp good.conf "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && return $status
}
check 'it is not open while Elasticity=no' while_elasticity_is_off Elasticity=no
check 'it is not open while swell.conf is broken' while_elasticity_is_off GrowthInterval=soon

while_swell_conf_is_away() {
  local own status
  mv "$SWELL_CLUSTER_DIR/etc/swell.conf" away.conf
  "$cluster" restart-ctld && within 20 logged 'the one that it named last stays closed' &&
    own=$(as backup sbatch --parsable --output=/dev/null --hold --wrap 'sleep 1') &&
    closed_to as backup sbatch --qos=expansion --wrap 'sleep 1' &&
    closed_to as backup sbatch --qos=EXPANSION --wrap 'sleep 1' &&
    closed_to as backup scontrol update job="$own" qos=expansion
  status=$?
  mv away.conf "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && return $status
}
check 'it is not open while swell.conf is away' while_swell_conf_is_away

# Nobody but slurmctld says where slurm.conf is: its environment does not name it, and "-f" stands in another form.
where_slurm_conf_is_named_otherwise() {
  local own status=0
  cp "$SWELL_CLUSTER_DIR/etc/swell.conf" good.conf
  printf 'Elasticity=no\n' >> "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" kill-ctld && starts_without_slurm_conf && within 20 logged 'elasticity is off: Elasticity=no' &&
    own=$(as backup sbatch --parsable --output=/dev/null --hold --wrap 'sleep 1') &&
    closed_to as backup sbatch --qos=expansion --wrap 'sleep 1' &&
    closed_to as backup scontrol update job="$own" qos=expansion
  status=$?
  cp good.conf "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && return $status
}
starts_without_slurm_conf() {
  mv "$SWELL_CLUSTER_DIR/log/slurmctld.log" "$SWELL_CLUSTER_DIR/log/slurmctld.log.1"
  (cd "$SWELL_CLUSTER_DIR/run" && exec env -u SLURM_CONF "SWELL_CLUSTER_DAEMON=$SWELL_CLUSTER_DIR" \
    setsid setpriv --reuid=slurm --regid="$(id -g slurm)" --init-groups slurmctld "-Df$SLURM_CONF" < /dev/null > "$SWELL_CLUSTER_DIR/log/slurmctld.err" 2>&1) &
  printf '%s\n' "$!" > "$SWELL_CLUSTER_DIR/run/slurmctld.pid"
  within 20 is_up
}
is_up() { scontrol ping | grep ' is UP'; }
check 'it is not open where slurmctld alone knows its slurm.conf' where_slurm_conf_is_named_otherwise

bad_swell_conf() {
  games_job && within 30 grown "$job" 8 || return
  cp "$SWELL_CLUSTER_DIR/etc/swell.conf" good.conf
  echo 'GrowthInterval=soon' >> "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld || return
  # slurmctld answers before it loads its scheduler plugin
  within 20 logged 'GrowthInterval' || return
  rigid --gres=gpu:1 --time=1 && in_state "$job" RUNNING || return
  cp good.conf "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && within 60 grown "$job" "$([[ $(state_of "$rigid_job") == RUNNING ]] && echo 7 || echo 8)" && settled
}
check 'a bad swell.conf turns elasticity off, names the fault, and leaves slurmctld up' bad_swell_conf

# Refusals by the SPANK plugin, and, if the option comes by the environment, by the job_submit plugin.
words_of_options() {
  local each
  for each in $'max=\e[31m' $'\e]0;title\a=4' $'types=h100\x9b2J' $'deadline=\e[1m' $'steps=5\nsbatch: all is well' $'table=/tmp/\xe2\x80\xaetxt' $'sizes=1\r\x7f'; do
    ! sbatch --elastic="$each" --gres=gpu:1 --wrap true > said 2>&1 && grep -av '^sbatch: error: Invalid' said | head -n 1 > ours && is_printable ours || return
    ! SWELL_ELASTIC=$each sbatch --gres=gpu:1 --wrap true > said 2>&1 && is_printable said || return
  done
}
# Slurm itself repeats the value of an option that a plugin refuses.
is_printable() {
  grep -a -e '--elastic: ' "$1" && ! LC_ALL=C grep -aP '[\x00-\x1f\x7f-\xff]' "$1" && ! grep '^sbatch: all is well' "$1" || { cat -v said; return 1; }
}
check 'words of --elastic command no terminal where they are refused' words_of_options

no_swell_conf() {
  mv "$SWELL_CLUSTER_DIR/etc/swell.conf" away.conf
  "$cluster" restart-ctld && rigid --gres=gpu:1 && within 20 in_state "$rigid_job" RUNNING
  local status=$?
  mv away.conf "$SWELL_CLUSTER_DIR/etc/swell.conf"
  "$cluster" restart-ctld && return $status
}
check 'slurmctld runs without swell.conf' no_swell_conf

finish_tests
