#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A new researcher runs a script of his own, by README alone, on a cluster whose admin has not set
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
env > "$out/.env.$RANK" && mv "$out/.env.$RANK" "$out/env.$SWELL_GENERATION.$RANK"
echo $$ > "$out/pid.$SWELL_GENERATION.$RANK"
work
END
chmod +x mine.sh
own() { # ELASTIC-VALUE [sbatch options]: submits README's script; sets `job`
  local spec=$1
  shift
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH --elastic=%s\n%s\nswellrun ./mine.sh\necho "ended with $?"\n' "$spec" "${BEFORE:-}" > job.sh
  job=$(sbatch --parsable --output=%A.out "$@" job.sh)
}
newest() { find "$job" -name 'env.*' 2> /dev/null | sed 's/.*env\.\([0-9]*\)\..*/\1/' | sort -n | tail -n 1; }
runs() { # WORKERS: the newest generation has so many, and all are alive
  local generation rank
  generation=$(newest) && [[ -n $generation && $(find "$job" -name "env.$generation.*" | wc -l) == "$1" ]] || return
  for ((rank = 0; rank < $1; rank++)); do kill -0 "$(cat "$job/pid.$generation.$rank")" || return; done
}
finishes() { touch "$job/finish" && within 20 ended "$job" && grep -qx 'ended with 0' "$job.out"; }

the_readme_s_example() {
  own max=8,grace=10 && within 30 runs 8 && within 10 is_lent "$job" 6 || return
  [[ $(grep -c 'has fewer CPUs than its 2 workers: they share them; ask for more with sbatch --cpus-per-gpu=N' "$job.out") == 1 ]] || return
  rigid --gres=gpu:4 -N 2 && within 30 in_state "$rigid_job" RUNNING && within 30 is_lent "$job" 2 && within 10 runs 4 && finishes
}
check "README's job runs, grows and shrinks with one CPU" the_readme_s_example

one_job_id() {
  own max=8 --array=7 && within 30 runs 8 || return
  local rank env
  for ((rank = 0; rank < 8; rank++)); do
    env=$job/env.$(newest).$rank
    grep -x "SLURM_JOB_ID=$job" "$env" && grep -x SLURM_ARRAY_TASK_ID=7 "$env" && grep -x "SLURM_SUBMIT_DIR=$work" "$env" &&
      grep -x SLURM_NTASKS=8 "$env" && grep -x "SLURM_PROCID=$rank" "$env" && grep -x SLURM_JOB_PARTITION=train "$env" || return
  done
  touch "$job/finish" && within 20 ended "$job"
}
check 'workers on lent GPUs see the job, its array task and its folder' one_job_id

# Tasks of an array are named as squeue shows them.
array_tasks() {
  own max=2 --array=3-4 && within 30 tasks_run || return
  [[ $(cat three) != "$(cat four)" ]] && swell jobs "${job}_4" && swell history "${job}_3" || return
  ! swell why "${job}_9" 2> said && cat said && grep -q 'squeue -O JobID,ArrayJobID,ArrayTaskID' said || return
  swell why "${job}_x" 2> said
  [[ $? -eq 2 ]] && cat said && grep -q 'ARRAY_TASK, such as 27_1' said && scancel "$job"
}
tasks_run() {
  swell why --json "${job}_3" | jq -e .job > three && swell why --json "${job}_4" | jq -e .job > four
}
check 'a task of an array is asked for by its array and number' array_tasks

misspelt() {
  swell jos 2> said
  [[ $? -eq 2 ]] && cat said && grep -q '"jos"; did you mean "jobs"? There are: doctor, .*history' said || return
  swell 2> said
  [[ $? -eq 2 ]] && cat said && grep -q 'which command? There are: doctor, ' said
}
check 'a command that is misspelt is told the right one' misspelt

submits_within() {
  BEFORE='sbatch --parsable --output=/dev/null --gres=gpu:1 --wrap "sleep 36000" > inner' own max=8 || return
  within 20 test -s inner && within 20 in_state "$(cat inner)" RUNNING || return
  [[ -n $(word_of "$job" basic) && -z $(word_of "$(cat inner)" basic) ]] || return
  scancel "$(cat inner)" && within 30 test -d "$job" && finishes
}
check 'a job that is submitted within an elastic job is elastic only where it says so' submits_within

no_growth() { word_of "$job" no_growth; }
no_growth_is() { [[ $(no_growth) == "$1" ]]; } # with _ for blanks
says_so() { swell jobs "$job" | grep -q "^Job $job takes no more GPUs: $1"; }

slow_to_listen() {
  # As Python with its imports: 3 s until it has a handler. USR1 before that would kill it.
  cat > slow.sh << 'END'
before() { touch "$out/up.$SWELL_GENERATION.$RANK"; until [[ -e $out/listen ]]; do sleep 0.1; done; }
END
  MINE=./slow.sh own max=8 && within 20 test -e "$job/up.0.1" && within 10 no_growth_is 2_of_2_workers_have_no_handler_for_USR1_yet &&
    says_so '2 of 2 workers have no handler for USR1 yet' && is_lent "$job" 0 || return
  touch "$job/listen"
  within 30 runs 8 && within 10 no_growth_is '' && ! grep 'killed\|ended with 1' "$job.out" && finishes
}
check 'a job is grown only when its workers handle the signal' slow_to_listen

declines() {
  cat > declines.sh << 'END'
say() {
  python3 -c 'import os, socket, sys
shim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for word in sys.argv[1:]:
    shim.sendto((os.environ["SWELL_SHIM_KEY"] + " " + word).encode(), "\0" + os.environ["SWELL_SHIM"][1:])' "$@"
}
before() { ((RANK > 0)) || say 'why its schedule cannot be saved' 'sizes 2'; }
END
  MINE=./declines.sh own max=8 && within 20 no_growth_is its_schedule_cannot_be_saved && says_so 'its schedule cannot be saved' || return
  swell why "$job" > said
  cat said && grep -q 'its schedule cannot be saved' said && is_lent "$job" 0 && finishes
}
check 'a program that declines more GPUs has its reason shown' declines

# srun ends at once in a folder that is gone, so that each growth would fail.
folder_is_gone() {
  mkdir gone && rigid --gres=gpu:4 -N 2 -w node2,node3 && within 30 in_state "$rigid_job" RUNNING || return
  printf '#!/bin/bash\nswellrun %s/mine.sh\necho "ended with $?"\n' "$work" > job.sh
  job=$(sbatch --parsable --output="$work/%A.out" --elastic=max=8 --gres=gpu:4 -w node1 --chdir="$work/gone" job.sh) && within 30 runs 4 &&
    rmdir gone && scancel "$rigid_job" &&
    within 30 no_growth_is "the_working_folder_is_gone" && says_so "the working folder is gone" && runs 4 || return
  cat "$job.out"
  [[ $(grep -c "the working folder is gone: the job is lent no more GPUs" "$job.out") == 1 ]] && ! grep 'lost job' "$job.out" && finishes
}
check 'a job whose folder is gone is not grown, and swell jobs says so' folder_is_gone

never_heard_of_swell() {
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2 --elastic\nswellrun sh -c "exec sleep 6"\necho "ended with $?"\n' > plain.sh
  job=$(sbatch --parsable --output=%A.out plain.sh) && within 40 ended "$job" || return
  cat "$job.out"
  grep -qx 'ended with 0' "$job.out" && [[ $(word_of "$job" generation) == 0 && $(word_of "$job" grants) == 0 ]]
}
check 'a program that never heard of Swell is left as it is' never_heard_of_swell

bad_on_lent_gpus() {
  cat > bad.sh << 'END'
before() { ((WORLD_SIZE == 2)) || { ((RANK < 2)) && work; exit 9; }; }
END
  MINE=./bad.sh own max=8 && within 30 grep -q "on with the job's own GPUs" "$job.out" && within 20 runs 2 && within 10 is_lent "$job" 0 &&
    within 10 says_so 'the program failed with 9 over 8 workers' && finishes
}
check 'a fault that shows only on lent GPUs costs the job nothing but these' bad_on_lent_gpus

bad_at_that_size() {
  cat > divides.sh << 'END'
before() { ((4 % WORLD_SIZE == 0)) || exit 7; }
END
  MINE=./divides.sh own max=8 && within 30 grep -q "the program failed with 7 over 8 workers: on with" "$job.out" && within 20 runs 2 && finishes
}
check 'a number of workers that the program cannot run with is found out and left' bad_at_that_size

uses_the_signal() {
  cat > dumps.sh << 'END'
on_signal() { echo "a dump of generation $SWELL_GENERATION"; }
END
  lends_nothing && MINE=./dumps.sh own max=8,grace=2 && within 20 runs 2 && swell drain --undo || return
  within 90 says_so 'workers did not leave within 2 s of USR1' && within 20 has_no_companions "$job" && runs 2 && within 10 is_lent "$job" 0 || return
  grep -q 'a dump of generation 0' "$job.out" && ! grep 'killed\|generation 1' "$job.out" && finishes
}
check 'a growth kills no program that uses the signal for something else, and swell why says why' uses_the_signal

leaves_never() {
  cat > deaf.sh << 'END'
on_signal() { ((WORLD_SIZE > 2)) || exit 0; }
END
  lends_nothing && MINE=./deaf.sh own max=8,grace=2 && within 20 runs 2 && swell drain --undo && within 40 runs 8 || return
  rigid --gres=gpu:4 -N 2 && within 30 in_state "$rigid_job" RUNNING && within 30 runs 4 && scancel "$rigid_job" || return
  # They were killed for the reclaim alone. Idle GPUs are offered once more and go back, unless the reclaim gave the workers 2 s already.
  within 90 says_so 'workers did not leave within 2 s of' && within 20 in_state "$rigid_job" CANCELLED || return
  sleep 3 # several rounds of the controller
  is_lent "$job" 2 && finishes
}
check 'workers that never leave are killed for a reclaim alone, and their job is not grown again' leaves_never

slurm_refuses() {
  sacctmgr -i modify account research set qos-=expansion > /dev/null
  own max=8 && within 30 grep -q '^swellrun: GPUs were offered, but Slurm refused them: ' "$job.out"
  local result=$?
  cat "$job.out"
  [[ $result == 0 && $(grep -c 'Slurm refused them' "$job.out") == 1 ]] && finishes
  result=$?
  sacctmgr -i modify account research set qos+=expansion > /dev/null
  return $result
}
check 'a refusal of Slurm is said in its words, once' slurm_refuses

plain_srun() {
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2 --elastic\nsrun -n1 true\nsrun -n1 true\nswellrun true\n' > two.sh
  job=$(sbatch --parsable --output=%A.out two.sh) && within 40 ended "$job" || return
  cat "$job.out"
  [[ $(grep -c "^srun: this job is elastic, but srun runs programs on the job's own GPUs alone" "$job.out") == 1 ]] || return
  # swellrun's own steps do not say so, nor do jobs that are not elastic.
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2 --elastic\nswellrun true\nsrun -n1 true\n' > one.sh
  job=$(sbatch --parsable --output=%A.out one.sh) && within 40 ended "$job" && ! grep 'is elastic' "$job.out" || return
  job=$(sbatch --parsable --output=%A.out --wrap 'srun -n1 true') && within 40 ended "$job" && ! grep 'is elastic' "$job.out"
}
check 'plain srun in an elastic job gets one hint' plain_srun

a_flood() { # 1,100 idle connections of another user
  BEFORE='ulimit -n 1024' own max=8 && within 30 runs 8 && within 10 is_lent "$job" 6 || return
  local port pid result from
  port=$(pgrep -af swell-worker | grep -F "$SWELL_CLUSTER_DIR" | sed -n 's/.*--agent [^ ]*:\([0-9]*\) .*/\1/p' | sort -u)
  [[ $port =~ ^[0-9]+$ ]] || { printf 'no agent: %s\n' "$port"; return 1; }
  cat > flood.sh << END
ulimit -n 4096 && for ((i = 0; i < 1100; i++)); do exec {fd}<> /dev/tcp/127.0.0.1/$port || exit; done && echo "\$i open" && sleep 60
END
  setpriv --reuid=nobody --regid=nogroup --clear-groups bash flood.sh > flood.out 2>&1 &
  pid=$!
  within 30 grep -q '1100 open' flood.out || { cat flood.out; kill "$pid"; return 1; }
  # The link to the controller holds, the workers stay, and a reclaim goes its way.
  from=$("$cluster" logs slurmctld | grep -c 'lost the connection to its agent')
  rigid --gres=gpu:4 -N 2 && within 30 in_state "$rigid_job" RUNNING && within 30 runs 4 && within 10 is_lent "$job" 2 &&
    [[ $("$cluster" logs slurmctld | grep -c 'lost the connection to its agent') == "$from" ]]
  result=$?
  kill "$pid"
  [[ $result == 0 ]] && (($(grep -c 'refused 127' "$job.out") <= 5)) && finishes
}
check "another user's 1,100 idle connections cost the job nothing" a_flood

few_open_files() {
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2 --elastic\nulimit -Sn 40\nswellrun sh -c "ulimit -Sn"\necho "ended with $?"\n' > few.sh
  job=$(sbatch --parsable --output=%A.out few.sh) && within 40 ended "$job" || return
  cat "$job.out"
  [[ $(grep -cx 40 "$job.out") == 2 ]] && grep -qx 'ended with 0' "$job.out"
}
check 'a low limit of open files is raised for swellrun, and the program sees its own' few_open_files

closed_files() {
  BEFORE='swellrun() { command swellrun "$@" <&- >&- 2>&-; }' own max=8 && within 30 runs 8 && within 10 is_lent "$job" 6 && finishes
}
check 'a job grows whose standard files are closed' closed_files

why_says() { swell why "$job" | grep "$1"; }
# Options of another SPANK plugin, which a container plugin has, and what sbatch says of all steps.
another_plugin() {
  command -v cc > /dev/null || return 0
  cat > demo.c << 'END'
#include <slurm/spank.h>
#include <stdio.h>
SPANK_PLUGIN(demo, 1);
static char seen[256] = "-";
static int cb(int i, const char *a, int r) { (void)i; (void)r; snprintf(seen, sizeof seen, "%s", a ? a : "on"); return 0; }
static struct spank_option image = {"demo-image", "X", "an image", 1, 0, cb};
static struct spank_option writable = {"demo-writable", NULL, "no value", 0, 0, cb};
int slurm_spank_init(spank_t s, int c, char **a) { (void)c; (void)a; spank_option_register(s, &image); return spank_option_register(s, &writable); }
int slurm_spank_user_init(spank_t s, int c, char **a) { (void)c; (void)a; spank_setenv(s, "DEMO_SEEN", seen, 1); return 0; }
END
  cc -shared -fPIC -o demo.so demo.c && printf 'optional %s/demo.so\n' "$work" >> "${SLURM_CONF%/*}/plugstack.conf" || return
  own max=4 --demo-image=/d/q && all_have DEMO_SEEN=/d/q && finishes || return
  BEFORE='swellrun() { command swellrun --demo-image /d/r --demo-writable "$@"; }' own max=4 && all_have DEMO_SEEN=on && finishes
  ! grep 'running as srun' "$job.out"
}
all_have() { # VARIABLE=VALUE: all four workers
  within 30 runs 4 || return
  [[ $(grep -lx -- "$1" "$job"/env."$(newest)".* | wc -l) == 4 ]] || { grep "^${1%%=*}=" "$job"/env.*; return 1; }
}
check "options of another plugin reach workers on lent GPUs, too" another_plugin
# Its companions have begun and ended before Slurm's records are looked at.
plugin_fails_there() {
  command -v cc > /dev/null || return 0
  cat > breaks.c << 'END'
#include <slurm/spank.h>
#include <stdio.h>
SPANK_PLUGIN(breaks, 1);
int slurm_spank_user_init(spank_t s, int c, char **a) {
  unsigned own = 0, id = 0;
  FILE *file = fopen(OWN, "r");
  (void)c; (void)a;
  if (file == NULL) return 0;
  if (fscanf(file, "%u", &own) != 1) own = 0;
  fclose(file);
  return spank_get_item(s, S_JOB_ID, &id) == ESPANK_SUCCESS && own != 0 && id != own ? -1 : 0;
}
END
  local conf=${SLURM_CONF%/*}/plugstack.conf status
  cc -shared -fPIC "-DOWN=\"$work/own\"" -o breaks.so breaks.c && printf 'required %s/breaks.so\n' "$work" >> "$conf" || return
  BEFORE='echo "$SLURM_JOB_ID" > own' own max=4 && within 60 failed_so_often 3 && within 10 why_says 'its last offer failed; the next comes in' && runs 2 && finishes
  status=$?
  sed -i '/breaks/d' "$conf"
  rm -f own
  return $status
}
failed_so_often() { (($(grep -c "\"companion-failed\",\"job\":$job," "$events") >= $1)); }
check 'a plugin that fails on lent GPUs alone has them given up at once, ever more rarely' plugin_fails_there
one_export() {
  BEFORE="export PATH=$PATH MYOWN=7" own max=4 --export=NONE && within 30 runs 4 || return
  [[ $(grep -l '^MYOWN=' "$job"/env."$(newest)".* | wc -l) == 0 ]] && finishes
}
check 'all workers have one environment, whatever --export says' one_export
runs_as_srun() {
  printf '#!/bin/bash\n#SBATCH --gres=gpu:2 --elastic\nswellrun --gpus=1 sleep 20\n' > uneven.sh
  job=$(sbatch --parsable --output=%A.out uneven.sh) && within 20 why_says "swellrun uses 1 of the job's 2 GPUs" && scancel "$job"
}
check 'swell why says which option of swellrun keeps the job from growing' runs_as_srun

# slurmctld hands its configuration out; each node has a folder of its own for it, without swell.conf. Munge is looked for at its usual
# place before that: each node has a /run of its own, too.
configless() {
  local node
  unshare -m true || return 0
  sed -i 's/^SlurmctldParameters=.*/&,enable_configless/' "$SLURM_CONF" &&
    sed -i "s/spank_swell.so.*/& control_port=$(sed -n 's/^ControlPort=//p' "${SLURM_CONF%/*}/swell.conf")/" "${SLURM_CONF%/*}/plugstack.conf" && "$cluster" restart-ctld || return
  cat > node.sh << 'END'
mount -t tmpfs tmpfs /run && mkdir -p /run/munge "$SWELL_CLUSTER_DIR/none" && ln -s "$SWELL_CLUSTER_DIR/munge/sock" /run/munge/munge.socket.2 &&
  mount --bind "$SWELL_CLUSTER_DIR/none" "$SWELL_CLUSTER_DIR/etc" || exit
port=$(sed -n 's/^SlurmctldPort=//p' "$SWELL_CLUSTER_DIR"/spool/port)
unset SLURM_CONF
exec slurmd -D --conf-server "127.0.0.1:$port" -N "$1"
END
  grep '^SlurmctldPort=' "$SLURM_CONF" > "$SWELL_CLUSTER_DIR/spool/port"
  for node in node1 node2 node3; do
    "$cluster" kill-slurmd "$node" || return
    SWELL_CLUSTER_DAEMON=$SWELL_CLUSTER_DIR setsid unshare -m bash node.sh "$node" > "$node.log" 2>&1 < /dev/null &
  done
  within 30 all_idle || return
  BEFORE='ls "${SLURM_CONF%/*}"; for i in {1..100}; do swell why "$SLURM_JOB_ID" && break; sleep 0.2; done' own max=4 && within 40 runs 4 && finishes && grep '^slurm.conf$' "$job.out" &&
    ! grep '^swell.conf$' "$job.out" && grep "^Job $job: it has 2 GPUs of its own" "$job.out"
}
all_idle() { [[ $(sinfo -h -N -t idle -o %N | sort -u | wc -l) == 3 ]]; }
check 'nodes of a configless Slurm grow without a swell.conf of their own' configless

finish_tests
