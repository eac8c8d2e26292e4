#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What a new researcher meets with a script of his own, by README alone, on a cluster whose admin has not set
# DefCpuPerGPU: a job of any number of GPUs then has one CPU. Being lent GPUs never leaves a job worse off.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 3 --gpus-per-node 4 --conf DefCpuPerGPU=

# A job script as in README; its training is mine.sh in the folder of the test.
cat > mine.sh << 'END'
#!/bin/bash
# Tells what it sees, leaves on USR1, ends when ./finish is there. Hooks of the tests: before(), on_signal(), work().
before() { :; }
on_signal() { exit 0; }
work() { while [[ ! -e $out/finish ]]; do sleep 0.1; done; }
out=$SLURM_SUBMIT_DIR/$SLURM_JOB_ID
mkdir -p "$out"
[[ -z ${MINE:-} ]] || source "$MINE"
before
trap on_signal USR1
env > "$out/.env.$RANK" && mv "$out/.env.$RANK" "$out/env.$SWELL_EPOCH.$RANK"
echo $$ > "$out/pid.$SWELL_EPOCH.$RANK"
work
END
chmod +x mine.sh
own() { # ELASTIC-VALUE [sbatch options]: submits README's script; sets `job`
  local spec=$1
  shift
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH --elastic=%s\nswellrun ./mine.sh\necho "ended with $?"\n' "$spec" > job.sh
  job=$(sbatch --parsable --output=%A.out "$@" job.sh)
}
started() { find "$job" -name "env.$1.*" 2> /dev/null | wc -l; }
runs() { [[ $(started "$1") == "$2" ]] && alive "$1" "$2"; } # EPOCH WORKERS
alive() {
  local rank
  for ((rank = 0; rank < $2; rank++)); do kill -0 "$(cat "$job/pid.$1.$rank")" || return; done
}
finishes() { touch "$job/finish" && within 20 ended "$job" && grep -qx 'ended with 0' "$job.out"; }

the_readme_s_example() {
  own max=8,grace=10 && within 30 runs 1 8 && within 10 is_lent "$job" 6 || return
  [[ $(grep -c 'has fewer CPUs than its 2 workers: they share them; ask for more with sbatch --cpus-per-gpu=N' "$job.out") == 1 ]] || return
  rigid --gres=gpu:4 -N 2 && within 30 in_state "$rigid_job" RUNNING && within 30 is_lent "$job" 2 && within 10 runs 2 4 && finishes
}
check "README's job runs, grows and shrinks with one CPU" the_readme_s_example

one_job_id() {
  own max=8 --array=7 && within 30 runs 1 8 || return
  local rank
  for ((rank = 0; rank < 8; rank++)); do
    grep -x "SLURM_JOB_ID=$job" "$job/env.1.$rank" && grep -x SLURM_ARRAY_TASK_ID=7 "$job/env.1.$rank" &&
      grep -x "SLURM_SUBMIT_DIR=$work" "$job/env.1.$rank" && grep -x SLURM_NTASKS=8 "$job/env.1.$rank" &&
      grep -x "SLURM_PROCID=$rank" "$job/env.1.$rank" && grep -x SLURM_JOB_PARTITION=train "$job/env.1.$rank" || return
  done
  touch "$job/finish" && within 20 ended "$job"
}
check 'workers on lent GPUs see the job, its array task and its folder' one_job_id

finish_tests
