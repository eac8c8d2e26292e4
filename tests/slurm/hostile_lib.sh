# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034,SC2154  # lib.sh and the tests share these variables
#
# Shared by the tests in which one user harms another: users, and agents that somebody wrote to do harm. Sourced after lib.sh.
# Users are games and backup: Slurm 26.05 takes nobody, 65534, for no user.

as() { # USER COMMAND...
  local user=$1
  shift
  setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups -- "$@"
}
games_job() {
  job=$(as games sbatch --parsable --output="$work/%j.out" --elastic=max=8 --gres=gpu:2 "$work/trainer_job.sh")
}

port_of_controller() { sed -n 's/^ControlPort=//p' "$SWELL_CLUSTER_DIR/etc/swell.conf"; }
munge_socket() { sed -n 's/^AuthInfo=.*socket=\([^,]*\).*/\1/p' "$SLURM_CONF"; }
hostile() { # USER: an agent of USER's that says what comes on standard input
  as "$1" "$here/hostile_agent.sh" "$(port_of_controller)" "$(munge_socket)"
}
hello_of() { # JOB GPUS
  printf '{"type":"hello","job":%s,"version":2,"host":"%s","workers":%s,"gpus_per_worker":1,"companions":[]}\n' \
    "$1" "${3:-here}" "$2"
}
# A job of USER that holds 2 GPUs and says it is elastic, without swellrun: its agent is what a test plays. Sets `mine`.
attackers_job() { # USER [ELASTIC]
  mine=$(as "$1" sbatch --parsable --output=/dev/null --elastic="${2:-max=8}" --gres=gpu:2 --wrap 'sleep 36000') &&
    within 20 in_state "$mine" RUNNING
}
events_of() { grep "\"event\":\"$1\"" "$events"; }

# salloc_with NONCE NODE GPUS CPUS MEMORY OPTION...: what swellrun runs on a grant, as backup, with more options.
salloc_with() {
  local nonce=$1 node=$2 gpus=$3 cpus=$4 memory=$5
  shift 5
  as backup salloc --no-shell --immediate=1 --job-name="swell-$mine-lent" --comment="swell-grant=$nonce" --nodelist="$node" --nodes=1 \
    --ntasks="$gpus" --cpus-per-task=$((cpus / gpus)) --gres="gpu:h100:$gpus" --partition=train --account="$account" \
    --mem="${memory}M" --time=10 "$@"
}
# hostile_link: an agent of backup's that stays connected; what is written to `in` it says, what it hears comes from `out`.
hostile_link() {
  coproc hostile backup
  exec {in}>&"${COPROC[1]}" {out}<&"${COPROC[0]}"
  eval "exec ${COPROC[1]}>&- ${COPROC[0]}<&-"
}
hang_up() { exec {in}>&- {out}<&-; }
# offers_to_mine: connects as the agent of `mine` and keeps the connection; a line an offer: nonce, node, account, GPUs, CPUs, MiB.
offers_to_mine() {
  local said=''
  hostile_link
  { hello_of "$mine" 2; printf 'wait grow\n'; } >&"$in"
  while [[ $said != *'"type":"grow"'* ]]; do IFS= read -r -t 120 -u "$out" said || return; done
  grep -o '{"nonce":[^}]*}' <<< "$said" |
    sed -E 's/.*"nonce":"([^"]*)".*"node":"([^"]*)".*"account":"([^"]*)".*"gpus":([0-9]*).*"cpus":([0-9]*),"memory_mib":([0-9]*).*/\1 \2 \3 \4 \5 \6/' > offers
  [[ -s offers ]] || { echo "no offer: $said"; return 1; }
}

logged() { "$cluster" logs slurmctld | grep "$1" > /dev/null; }
closed_to() { # COMMAND...: it is refused, with a reason that names companions or as access denied
  local said
  said=$("$@" 2>&1) && { echo "accepted: $*"; return 1; }
  [[ $said =~ 'companions'|'denied' ]] || { echo "$*: $said"; return 1; }
}
