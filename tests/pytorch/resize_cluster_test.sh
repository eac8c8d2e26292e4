#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Jobs of each framework on a real cluster under swellrun: they grow, are shrunk for a rigid job, and grow again,
# and the loss of every step stays that of a run that nobody resizes.
#   resize_cluster_test.sh [--all | NAME...]   (default: ddp-live-container, without ch-run ddp-live, and profile; the others start slowly on a small machine)
# NAME-live: the state goes from program to program in memory (mode=live), and none is saved but to leave. sizes: a job whose global batch
# is two samples. NAME-container: behind ch-run, in an image that has the machine's programs but nothing else of it. profile, NAME-profile: what an ordinary loop's, Trainer's or Lightning's steps are made of reaches the controller.
# shellcheck source=tests/pytorch/cluster_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
names=("$@")
((${#names[@]})) || names=("ddp-live$([[ ! -x $(command -v ch-run) ]] || printf %s -container)" profile)
[[ ${names[0]} != --all ]] || names=(ddp fsdp trainer accelerate lightning ddp-live ddp-live-container fsdp-live fsdp-container trainer-container accelerate-container lightning-container sizes profile trainer-profile lightning-profile)
[[ "${names[*]}" != *-container* || -x $(command -v ch-run) ]] || lacks ch-run
cluster_up --nodes 1 --gpus-per-node 3 --grace 300
jobs_folder=$pytorch_tests/jobs
export TEST_STEPS=200 TEST_PACE=0.3

# contained WORD...: sets `container_words`, which run a program in a container, and fail outside of one.
contained() {
  local image=$work/image place places=(/usr "$top" "$work" "$SWELL_STAGE")
  mapfile -t -O "${#places[@]}" places < <("$SWELL_PYTHON" -c 'import sys; print(sys.prefix, sys.base_prefix, sep="\n")')
  if [[ ! -d $image ]]; then
    mkdir -p "$image"/{dev,proc,sys,run,etc,home,mnt,opt,srv,tmp,var/tmp} && ln -s usr/bin usr/lib usr/lib64 usr/sbin "$image" && printf 'root:x:0:0:root:/root:/bin/bash\n' > "$image/etc/passwd" &&
      printf 'root:x:0:\n' > "$image/etc/group" && : > "$image/etc/resolv.conf" && : > "$image/etc/hosts" || return
    # shellcheck disable=SC2016
    printf '#!/bin/bash\n[[ ! -e /etc/debian_version ]] || { echo "not in the container" >&2; exit 9; }\nexec "$@"\n' > "$image/inside" && chmod +x "$image/inside" || return
  fi
  container_words=(env USER=root TMPDIR=/tmp ch-run --cd="$folder")
  for place in "${places[@]}"; do
    mkdir -p "$image$place" && container_words+=(--bind="$place") || return
  done
  container_words+=("$image" -- /inside)
}
program() { # NAME: sets `program_words`
  local name=${1%-container}
  case ${name%-*} in
    ddp) program_words=("$jobs_folder/ddp.py") ;;
    fsdp) program_words=("$jobs_folder/ddp.py" fsdp) ;;
    trainer) program_words=("$jobs_folder/hf.py") ;;
    accelerate) program_words=("$jobs_folder/accelerated.py") ;;
    lightning) program_words=("$jobs_folder/pl_resnet.py") ;;
    *) return 1 ;;
  esac
  elastic=max=2,grace=300 # seconds; a busy machine takes more than the default to write and leave
  swellrun_options=()
  if [[ $name == *-live ]]; then
    elastic=max=2,grace=300,mode=live # the next program must have started within 60 % of it
    program_words+=(no-checkpoints)
    swellrun_options=(--swell-events="$work/$1/events")
    [[ $name != ddp-live ]] || elastic=max=2,grace=30,mode=live # none has to start
  fi
}
trains_on() { # FOLDER WORLD: the newest step was trained by so many workers
  [[ $(tail -n 1 "$1/losses") == *"\"world\": $2,"* ]]
}
switched_live() { # NAME: there and back and there; DDP without a checkpoint, while others, which start anew, leave sooner than they start
  grep -oE 'live: from .*|.*asked to leave' "$folder.out"
  (($(grep -c 'live: from 1 to 2 workers' "$folder.out") == 2)) || return
  if grep -q 'asked to leave' "$folder.out"; then
    [[ $1 != ddp-live ]] && grep -q 'longer than leaving; the workers are asked to leave' "$folder.out"
  else
    (($(grep -c 'live: from 2 to 1 worker' "$folder.out") == 1))
  fi
}
# The worker on the job's own GPU trains on in its process; and how long it took from the order until the lent GPU was released.
kept_its_process() {
  jq -es '[.[] | [.world, .pid]] | [range(1; length) as $i | select(.[$i - 1][0] == 2 and .[$i][0] == 1) | .[$i - 1][1] == .[$i][1]] == [true]' "$folder/losses" &&
    printf 'the lent GPU was released %s s after the order, without a new process\n' "$(jq -rs '(map(select(.event == "switch-prepare" and .to == 1))[0].time) as $order |
      map(select(.event == "companion-released" and .time > $order))[0].time - $order' "$folder/events")"
}
resized() { # NAME
  local reference=$work/$1-reference container_words=()
  program "$1" || return
  if [[ $1 == *-container ]]; then
    folder=$work/$1
    contained || return
    set -- "${1%-container}" "$1"
  fi
  mkdir -p "$reference" && touch "$reference/fast"
  (cd "$reference" && env -u SLURM_CONF RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 \
    "$SWELL_PYTHON" "${program_words[@]}" > said 2>&1
    printf '%s\n' $? > status.new && mv status.new status) &
  # Nothing is lent before it trains on its own GPU: the lent one might be up first, as swellrun asks a new slurmctld for the
  # job's own workers later.
  lends_nothing || return
  run_job "${2:-$1}" --elastic="$elastic" --gres=gpu:1 -- "${swellrun_options[@]}" ${container_words[@]+"${container_words[@]}"} "$SWELL_PYTHON" "${program_words[@]}" && within 200 trains_on "$folder" 1
  local status=$?
  swell drain --undo > /dev/null && ((status == 0)) || { tail -n 20 "$folder.out"; return 1; }
  # It grows, a GPU is taken back for a rigid job, and is lent again.
  within 200 trains_on "$folder" 2 && gets_on "$folder" || { tail -n 20 "$folder.out"; return 1; }
  rigid --gres=gpu:2 && within 200 in_state "$rigid_job" RUNNING && within 200 trains_on "$folder" 1 && gets_on "$folder" || return
  scancel "$rigid_job"
  within 200 trains_on "$folder" 2 || { tail -n 20 "$folder.out"; return 1; }
  touch "$folder/fast"
  within 300 ended "$job" && within 300 test -s "$reference/status" && [[ $(cat "$reference/status") == 0 ]] || { cat "$reference/said" "$folder.out"; return 1; }
  if [[ $1 == *-live ]]; then
    switched_live "$1" || { cat "$folder.out"; return 1; }
  fi
  if [[ $1 == ddp-live ]]; then
    kept_its_process || { cat "$folder/events" "$folder/losses"; return 1; }
  fi
  [[ $(cat "$folder/status") == 0 ]] && settled &&
    "$SWELL_PYTHON" "$pytorch_tests/compare_losses.py" "$reference/losses" "$folder/losses" "$TEST_STEPS" &&
    compared=$(tail -n 1 "$check_log") && [[ $compared == 'workers '*'2 1 2,'* ]]
}

# Three GPUs, of which a third would have no sample: the client asks for no more than two, though max=3.
never_gets_three() {
  TEST_GLOBAL_BATCH=2 run_job sizes --elastic=max=3,grace=300 --gres=gpu:1 -- "$SWELL_PYTHON" "$jobs_folder/ddp.py" || return
  within 400 trains_on "$folder" 2 && gets_on "$folder" && gets_on "$folder" && gets_on "$folder" || { tail -n 20 "$folder.out"; return 1; }
  touch "$folder/fast"
  within 300 ended "$job" && [[ $(cat "$folder/status") == 0 ]] || { tail -n 20 "$folder.out"; return 1; }
  jq -r .world "$folder/losses" | uniq | paste -sd ' ' | tee "$work/worlds"
  [[ $(cat "$work/worlds") =~ ^(1\ )?2$ ]] # where the lent one was up first, it began with two
}
# Two workers that write no region; a GPU becomes idle once their profile is known.
explained() { swell why "$job" --json | jq -ec '[.decided_by, .samples_per_s] | select(.[0] == "planned" and .[1] > 0)'; }
was_predicted() { grep -o '1\.[1-9][0-9]* times as fast is predicted, by .* dp3 tp1' "$folder.out"; }
has_a_profile() {
  rigid --gres=gpu:1 && within 60 in_state "$rigid_job" RUNNING || return
  TEST_PACE=0 TEST_STEPS=1000000 run_job profile --elastic=max=3,mode=live --gres=gpu:2 -- "$SWELL_PYTHON" "$jobs_folder/ddp.py" paced no-checkpoints || return
  within 100 explained && scancel "$rigid_job" && within 60 was_predicted || { swell why "$job" --json; swell jobs; tail -n 20 "$folder.out"; return 1; }
}
is_planned() { # NAME: by its profile the controller knows how fast it would be with more
  program "$1" || return
  TEST_PACE=0 TEST_STEPS=1000000 run_job "$1" --elastic=max=2,mode=live --gres=gpu:1 -- "$SWELL_PYTHON" "${program_words[@]}" no-checkpoints || return
  within 200 explained || { swell why "$job" --json; swell jobs; tail -n 20 "$folder.out"; return 1; }
  scancel "$job"
}
for name in "${names[@]}"; do
  compared=''
  case $name in
    sizes) check 'a job whose global batch is two samples never gets a third worker' never_gets_three ;;
    profile) check 'an ordinary DDP loop reports its profile, and is lent a GPU by what that predicts' has_a_profile ;;
    *-profile) check "${name%-profile}'s loop reports its profile, without a line for it" is_planned "$name" ;;
    *) check "$name: grown, shrunk for a rigid job and grown again, with the loss of the run that is not" resized "$name" ;;
  esac
  [[ -z $compared ]] || printf '# %s: %s\n' "$name" "$compared"
  [[ -z $compared || $name != *-live* ]] || grep -E '^(live: from|the lent GPU)' "$check_log" | sed 's/^/# /'
done
finish_tests
