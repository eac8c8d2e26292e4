#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swellrun on a stock cluster: it is srun where there is no controller, and follows a scripted one.
#   swellrun_test.sh [BUILD]   (the folder that Swell was built in, after `make check`; default: beside SWELL_STAGE)
# shellcheck disable=SC2016  # what stands in single quotes is for the shells in the steps
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
cluster=$here/../../contrib/cluster
build=$(realpath "${1:-${SWELL_STAGE:-.}/..}")
PATH=$PATH:/usr/sbin
skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
for program in munged slurmctld slurmd srun; do
  command -v "$program" > /dev/null || skip "$program is not installed: run contrib/setup"
done
fake=$build/tests/launcher/fake_controller
export SWELL_WORKER=$build/src/launcher/swell-worker
swellrun=$build/src/launcher/swellrun
[[ -x $swellrun && -x $SWELL_WORKER && -x $fake ]] || skip "no built swellrun in $build: make check, then $0 BUILD"

TMPDIR=$(mktemp -d /tmp/swell-launcher-XXXXXX) || exit 1
export TMPDIR
chmod 755 "$TMPDIR"
fake_pid=''
tidy() {
  [[ -z $fake_pid ]] || kill "$fake_pid" 2> /dev/null
  "$cluster" stop > /dev/null 2>&1
  rm -rf "$TMPDIR"
}
trap tidy EXIT
trap 'exit 1' INT TERM HUP
"$cluster" start --nodes 3 --gpus-per-node 4 > "$TMPDIR/start.log" 2>&1 || { cat "$TMPDIR/start.log"; exit 1; }
eval "$("$cluster" env)"
# Plays job_submit/swell, which writes the text of a companion that swellrun looks for: the controller is played here, too.
cat > "$SWELL_CLUSTER_DIR/etc/job_submit.lua" << 'END'
function slurm_job_submit(job, partitions, uid)
  local grant, parent = string.match(job.comment or "", "swell%-grant=(%w+)"), string.match(job.name or "", "^swell%-(%d+)$")
  if grant and parent then job.admin_comment = "swell[parent=" .. parent .. " grant=" .. grant .. "]" end
  return slurm.SUCCESS
end
function slurm_job_modify(change, job, partitions, uid) return slurm.SUCCESS end
END
sed -i '/^JobSubmitPlugins=/d' "$SLURM_CONF" && printf 'JobSubmitPlugins=lua\n' >> "$SLURM_CONF" && "$cluster" restart-ctld || exit 1
cpus_per_gpu=$(($(sinfo -h -n node1 -o %c) / 4)) # what a job gets for each GPU, and so a worker
cd "$TMPDIR" || exit 1

# shellcheck source=tests/support/tap.sh
source "$here/../support/tap.sh"
after_check() { stop_run; }
show_state() {
  squeue
  tail -n 30 "$TMPDIR"/out "$TMPDIR"/said 2> /dev/null
}
within() { # SECONDS COMMAND...: what a quiet machine may take; a loaded one is given six times as long
  local deadline=$((SECONDS + 6 * $1 + 1))
  shift
  until "$@" > /dev/null 2>&1; do
    ((SECONDS <= deadline)) || { printf 'not within the time: %s\n' "$*"; return 1; }
    sleep 0.05
  done
}
stop_run() {
  scancel --quiet -u "$(id -un)" 2> /dev/null
  [[ -z $fake_pid ]] || kill "$fake_pid" 2> /dev/null
  fake_pid=''
  within 30 queue_is_empty
}
queue_is_empty() { [[ -z $(squeue -h) ]]; }

# ---- without a controller

# The same command under srun and swellrun, within a job: output, and exit code, must be equal.
same_as_srun() { # stdin is a file
  local one two
  salloc -Q -w node1 --gres=gpu:2 -n2 srun "$@" < in > srun.out 2> srun.err
  one=$?
  salloc -Q -w node1 --gres=gpu:2 -n2 "$swellrun" "$@" < in > swell.out 2> swell.err
  two=$?
  printf 'srun: %s, swellrun: %s\n' "$one" "$two"
  cat srun.err swell.err
  [[ $one == "$two" ]] && diff <(sort srun.out) <(sort swell.out) &&
    [[ $(grep -c '^swellrun: ' swell.err) == 1 ]] &&
    grep -q '^swellrun: job [0-9]* was not submitted with --elastic: training on its own 2 GPUs, no more are lent$' swell.err &&
    diff <(sed 's/task.*//' srun.err | sort -u) <(grep -v '^swellrun: ' swell.err | sed 's/task.*//' | sort -u)
}
exits() {
  printf 'a line\n' > in
  same_as_srun -n2 true && same_as_srun -n1 sh -c 'exit 7' && same_as_srun -n2 sh -c 'exit $((SLURM_PROCID * 0 + 4))' &&
    same_as_srun -n1 sh -c 'kill -SEGV $$' || return
  salloc -Q --gres=gpu:2 "$swellrun" ./no-such-program 2> swell.err
  [[ $? == 127 ]] && grep -q 'cannot run ./no-such-program' swell.err
}
check 'exit codes are those of srun' exits
streams() {
  printf 'one\ntwo\n' > in
  same_as_srun -n2 cat && same_as_srun --label -n2 cat && same_as_srun -n1 -i none cat &&
    same_as_srun -n2 sh -c 'echo $SLURM_PROCID; echo err >&2'
}
check 'input and output are those of srun' streams
rigid() { # one worker a GPU with torchrun's environment, whatever number of tasks the job has
  salloc -Q --gres=gpu:3 -n1 "$swellrun" \
    sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:${MASTER_PORT:+port} $TORCHELASTIC_RUN_ID $SLURM_JOB_ID' \
    > out 2> err || return
  cat out err
  awk '{ if ($4 != $5) exit 1; print $1, $2, $3 }' out | sort > seen
  diff seen - << 'END'
0/3 0/3 127.0.0.1:port
1/3 1/3 127.0.0.1:port
2/3 2/3 127.0.0.1:port
END
}
check 'a job without --elastic has one worker a GPU with the whole environment' rigid
# However Slurm lays the job's GPUs over its nodes, there is one worker for each, which sees those of its node.
uneven() {
  local options
  # The one with most GPUs a node is the job's first step: Slurm looks at that more strictly than at others.
  mkdir -p smaller_later && printf '#!/bin/sh\ncase $* in\n*gpu:1\ * | *--gpus=1\ *)\n%s\nesac\nexec %s "$@"\n' \
    '  for look in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(squeue -h -s -j "$SLURM_JOB_ID")" ] || break; sleep 0.2; done ;;' "$(command -v srun)" > smaller_later/srun &&
    chmod 755 smaller_later/srun || return
  local -x PATH=$TMPDIR/smaller_later:$PATH
  for options in '-N2 --gpus=3' '-N2 --gpus=5 -n5' '-N3 --gpus=9' '-N2 --gpus=h100:4' '-N2 -n3 --gpus-per-task=1' '-N2 --gres=gpu:h100:2'; do
    # shellcheck disable=SC2086 # several options
    salloc -Q $options bash -c 'scontrol show job -d "$SLURM_JOB_ID" > shape && "$@"' - "$swellrun" \
      sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES ${SLURM_GPUS:--}' < /dev/null > out 2> err || { cat shape err; return 1; }
    sort out | cut -d' ' -f1,2 | uniq -c | sed 's/^ *//' > seen
    sed -n 's/.* Nodes=\([^ ]*\) .*GRES=gpu:h100:\([0-9]*\)(IDX:\([0-9,-]*\)).*/\1 \2 \3/p' shape | each_node > wanted
    printf '%s\n' "$options" && diff wanted seen && cut -d' ' -f3 out | sort -u | of_the_job "$options" || { cat shape err; return 1; }
  done
}
each_node() { # NODES NUMBER INDEXES on each line: NUMBER NODE and the indexes, one by one
  local nodes number indexes node
  while read -r nodes number indexes; do
    for node in $(scontrol show hostnames "$nodes"); do
      printf '%s %s %s\n' "$number" "$node" "$(scontrol show hostnames "[$indexes]" | paste -sd,)"
    done
  done | sort -k2
}
of_the_job() { # what SLURM_GPUS says: all of them, or nothing as in the job
  local options=$1 said
  read -r said
  case $options in
    *--gpus=*) [[ $said == "$(wc -l < out)" ]] ;;
    *) [[ $said == - ]] ;;
  esac || { printf 'SLURM_GPUS is %s\n' "$said"; return 1; }
}
check 'GPUs that fall unevenly over the nodes have a worker each' uneven
signals() {
  salloc -Q --gres=gpu:1 -n1 "$swellrun" sh -c 'trap "exit 9" USR1; touch up; while :; do sleep 0.05; done' > out 2>&1 &
  local pid=$! run
  within 10 test -e up || return
  run=$(pgrep -P "$pid" swellrun) || return
  kill -USR1 "$run"
  wait "$pid"
  [[ $? == 9 ]]
}
check 'signals reach the program as with srun' signals
# A script may leave these to the programs that it runs.
odd_inheritance() {
  salloc -Q --gres=gpu:2 sh -c "trap '' CHLD; exec env POSIXLY_CORRECT=1 '$swellrun' sh -c 'echo \$RANK/\$WORLD_SIZE'" > out 2> err
  local status=$?
  cat out err
  [[ $status == 0 && $(sort out | tr '\n' ' ') == '0/2 1/2 ' ]] && ! grep 'running as srun' err
}
check 'ignored ends of children and POSIXLY_CORRECT change nothing' odd_inheritance
events_that_nobody_reads() {
  mkfifo nobody && SWELL_EVENTS=$PWD/nobody timeout 60 salloc -Q --gres=gpu:1 -n1 "$swellrun" echo trained > out 2> err
  local status=$?
  cat out err
  [[ $status == 0 && $(cat out) == trained ]] && grep 'nobody: No such device or address: running as srun' err
}
check 'a FIFO for events that nobody reads is said, and not waited for' events_that_nobody_reads
# A slurmd that stands still has been sent the launch, and dies before it answers.
lost_launch() {
  local pid runs
  pid=$("$cluster" pid slurmd.node2) && kill -STOP "$pid" || return
  salloc -Q -w node1,node2 -N2 --gres=gpu:2 "$swellrun" sh -c 'echo $RANK/$WORLD_SIZE' < /dev/null > out 2> err &
  runs=$!
  within 10 is_sent_something "$(scontrol show node node2 | sed -n 's/.* Port=\([0-9]*\).*/\1/p')"
  kill -KILL "$pid"
  "$cluster" start-slurmd node2 && wait "$runs" || return
  cat out err
  [[ $(sort out | tr '\n' ' ') == '0/4 1/4 2/4 3/4 ' ]] && grep -q '^swellrun: srun ended with 2[0-9]*: .* launched again in 2 s$' err
}
is_sent_something() { # PORT
  awk -v port="$(printf ':%04X' "$1")" '$4 == "01" && index($2, port) && $5 !~ /:00000000$/ { found = 1 } END { exit !found }' /proc/net/tcp
}
check 'workers whose slurmd dies as they are launched are launched again' lost_launch
left_to_srun() {
  salloc -Q --gres=gpu:2 -n1 "$swellrun" --jobid=0 true > out 2> err
  grep -qx 'swellrun: --jobid is given: running as srun' err
}
check 'options that only srun supports are left to srun, and that is said' left_to_srun
# Slurm prints a user's texts among its own fields.
users_texts() {
  local text node='     Nodes=node9 CPU_IDs=0-3 Mem=1 GRES=gpu:h100:4(IDX:0-3)'
  for text in "x$node" $'x\n'"$node" $'a\nJobId=99 b' $'x\n   UserId=daemon(1) GroupId=daemon(1)'; do
    ranks_of 2 -J "$text" --comment="$text"$'\n   AdminComment=swell[elastic=max=2 basic=2]' || return
  done
  SQUEUE_FORMAT=%j SQUEUE_PARTITION=none SLURM_TIME_FORMAT=relative ranks_of 2
}
ranks_of() { # WORKERS [salloc options] [-- options of swellrun]: each has its rank
  local wanted=$1 options=() rank
  shift
  while (($# > 0)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  salloc -Q -w node1 --gres=gpu:2 "${options[@]}" "$swellrun" "${@:2}" sh -c 'echo $RANK/$WORLD_SIZE' < /dev/null > out 2> err
  sort out > seen
  for ((rank = 0; rank < wanted; rank++)); do printf '%s/%s\n' "$rank" "$wanted"; done | diff - seen || { cat err; return 1; }
}
check "no text of the user passes for one of Slurm's fields" users_texts
harmless() {
  local option
  for option in --gpu-bind=none --gpu-bind=closest --cpus-per-gpu=1 --nodelist=node1 --exclude=node9 --nodes=1-2 --ntasks-per-gpu=1 --bcast=/none; do
    ranks_of 2 -- "$option" && ! grep 'running as srun' err || return
  done
  ranks_of 3 -- -n3 && ranks_of 1 -- --gpus=1 && ranks_of 2 -- --gres=none &&
    ranks_of 2 -w node1,node2 -N2 --gres=gpu:2 -- -N1
}
check 'options of srun leave each worker its rank' harmless
within_srun() {
  salloc -Q --gres=gpu:2 -n1 srun -Q "$swellrun" sh -c 'echo $RANK' > out 2> err
  [[ $? == 2 && ! -s out ]] && grep -q '^swellrun: swellrun within srun: write swellrun in place of srun' err || { cat err; return 1; }
  salloc -Q --gres=gpu:2 -n1 srun -Q --overlap "$swellrun" sh -c 'echo $RANK' > out 2> err && [[ $(wc -l < out) == 2 ]] || return
  # A job that was submitted in a step inherits this.
  SLURM_STEP_ID=0 ranks_of 2
}
check 'within a step that holds the GPUs it ends at once' within_srun
long_variable() {
  SLURM_NOTE=$(head -c 70000 /dev/zero | tr '\0' x) ranks_of 2 && grep -q '^swellrun: SLURM_NOTE does not reach the workers' err
}
check 'a variable that fits no message is left out by name' long_variable
interface() {
  local -x MASTER_ADDR=node1i MASTER_PORT=29555
  ranks_of 2 -- --interface=lo && [[ $(grep -c '^swellrun: MASTER_ADDR=node1i MASTER_PORT=29555 are not used' err) == 1 ]] || return
  salloc -Q --gres=gpu:1 "$swellrun" --interface=127.0.0.0/8 sh -c 'echo $MASTER_ADDR' > out 2> err && grep -qx 127.0.0.1 out || return
  salloc -Q --gres=gpu:1 "$swellrun" --interface=none7 true > out 2> err
  [[ $? == 2 ]] && grep -q '^swellrun: --interface=none7: this host has no address on it; it has .*lo (127.0.0.1)' err
}
check "the workers' network is chosen, and a MASTER_ADDR of the script is spoken of" interface
launchers() {
  salloc -Q --gres=gpu:2 "$swellrun" torchrun --nproc_per_node=2 train.py --lr 1 2> err
  [[ $? == 2 ]] && grep -q '^swellrun: torchrun starts workers of its own.* Write the program alone: swellrun python train.py --lr 1$' err
}
check 'a launcher of workers is refused, with what to write instead' launchers
outside() { "$swellrun" -n1 --gres=gpu:1 sh -c 'echo $SLURM_NTASKS' > out 2> err && [[ $(cat out) == 1 && ! -s err ]]; }
check 'outside a job it is srun without a word' outside
version() { "$swellrun" --version | grep '^swellrun [0-9]' > /dev/null && "$swellrun" --help | grep restart-signal > /dev/null; }
check '--help and --version are its own' version
bad() { ! "$swellrun" --restart-signal=NONE true 2> err && grep -q 'restart-signal=NONE' err; }
check 'a bad option of its own is named' bad

# ---- with a scripted controller

# The one that contrib/cluster keeps for it.
SWELL_CONTROL_PORT=$(($(sed -n 's/^SlurmctldPort=//p' "$SLURM_CONF") + 2))
export SWELL_CONTROL_PORT SWELL_EVENTS=$TMPDIR/events DIR=$TMPDIR/run
start_run() { # ELASTIC SWELLRUN-OPTIONS...: a job of 2 GPUs
  local elastic=$1
  shift
  new_run && start_controller "$elastic" && submit_run "$elastic" "$@" && within 20 generation_runs 0 2
}
new_run() {
  rm -rf "$DIR" events said out commands
  mkdir "$DIR"
  mkfifo commands
  : > said
}
start_controller() { # ELASTIC
  "$fake" "$SWELL_CONTROL_PORT" "$SWELL_CLUSTER_DIR/munge/sock" "$1" "$cpus_per_gpu" <> commands > said 2>&1 &
  fake_pid=$!
  within 5 grep -q ready said
}
submit_run() { # ELASTIC SWELLRUN-OPTIONS...: sets `job`; its tag is what job_submit/swell would have written
  local elastic=$1
  shift
  cat > job.sh << END
#!/bin/sh
"$swellrun" $* "$here/trainer.sh"
echo "ended with \$?"
END
  job=$(sbatch --parsable --hold --gres=gpu:2 -n2 -o "$TMPDIR/out" job.sh) &&
    scontrol update "job=$job" "admincomment=swell[elastic=${elastic:-max=4x} basic=2]" && scontrol release "$job"
}
tell() { printf '%s\n' "$*" > commands; }
said() { grep -q -- "$1" said; }
started() { find "$DIR" -name "start.$1.*" | wc -l; }
generation_runs() { [[ $(started "$1") == "$2" ]] && said "\"ACTIVE\",\"generation\":$1,\"workers\":$2"; }
companion() { squeue -h -t R -o '%i %j' | awk '$2 ~ /^swell-[0-9]+$/ { print $1 }' | sort -n | tail -n 1; }
finishes() { # CODE
  touch "$DIR/finish"
  within 20 grep -q "^ended with $1\$" out && within 10 queue_is_empty && said '"bye"'
}

resizes() {
  start_run '' && tell grow node2:4 && within 20 generation_runs 1 6 || return
  local job2 rank
  job2=$(companion)
  for rank in 0 1 2 3 4 5; do
    [[ $(cut -d' ' -f1,2,6 "$DIR/start.1.$rank") == "$rank 6 $rank" ]] || return
  done
  [[ $(cat "$DIR/start.1.1") == '1 6 1 2 0 1 0,1' && $(cat "$DIR/start.1.5") == '5 6 3 4 1 5 0,1,2,3' ]] &&
    tell shrink "$job2" 20 needed by job 99 && within 20 generation_runs 2 2 && within 5 said "\"released\",\"companion\":$job2" &&
    grep -q "giving back 4 GPUs on node2 (job $job2): needed by job 99" out &&
    grep -q '"event":"companion-released"' events && finishes 0
}
check 'a job grows, gives back and ends' resizes
two_at_once() {
  start_run 'sizes=2/8' && tell grow node2:4 node3:4 && within 20 generation_runs 1 8 && finishes 0 && [[ -z $(companion) ]]
}
check 'sizes= uses those of two companions that it may' two_at_once
refused_grant() {
  start_run '' && tell grow node2:9 && within 20 said '"companion":0,"reason":"Job submit' &&
    within 5 said '"ACTIVE","generation":0' && [[ $(started 1) == 0 ]] && finishes 0
}
check 'a refused companion disturbs nobody' refused_grant
cancelled_companion() {
  start_run '' && tell grow node2:4 && within 20 generation_runs 1 6 && scancel "$(companion)" && within 20 generation_runs 2 2 &&
    finishes 0
}
check 'a companion that is cancelled does not end the job' cancelled_companion
# Another version of Swell on a node: here, its shim is another one from some moment on.
another_version() {
  local this
  this=$("$swellrun" --version | cut -d' ' -f2) && sed "s/${this//./\\.}/9.9.9/g" "$SWELL_WORKER" > other && chmod 755 other &&
    grep -qa '9\.9\.9' other && cp "$SWELL_WORKER" here || return
  local -x SWELL_WORKER=$TMPDIR/here
  start_run '' && mv other here && tell grow node2:4 &&
    within 20 grep -q "^swellrun: node2 has Swell 9.9.9, this is $this: install one version of it on all nodes\$" out &&
    within 10 said '"released","companion"' && [[ $(started 0) == 2 && $(started 1) == 0 ]] && finishes 0 || return
  new_run && submit_run '' && within 20 grep -q '^ended with 1$' out && [[ $(grep -c 'has Swell 9.9.9' out) == 1 && $(started 0) == 0 ]]
}
check 'workers of another version are refused, and that is said once' another_version
# A shim that says something which nobody here knows.
unreadable_messages() {
  sed 's/worker-steps/worker-stepz/g' "$SWELL_WORKER" > odd && chmod 755 odd && grep -qa worker-stepz odd || return
  local -x SWELL_WORKER=$TMPDIR/odd
  start_run '' && within 20 grep '^swellrun: left out what worker 0 on node. says: unknown message type "worker-stepz"$' out &&
    tell grow node2:4 && within 20 generation_runs 1 6 && finishes 0
}
check 'a message of a worker that cannot be read is said and left out, and training goes on' unreadable_messages
# cli_filter CODE: the site's own plugin does CODE with the options of each srun, salloc and sbatch.
cli_filter() {
  printf 'function slurm_cli_setup_defaults(options, cli) return slurm.SUCCESS end\nfunction slurm_cli_pre_submit(options, pack) %s return slurm.SUCCESS end\nfunction slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end\n' \
    "$1" > "$SWELL_CLUSTER_DIR/etc/cli_filter.lua" && printf 'CliFilterPlugins=lua\n' >> "$SLURM_CONF"
}
no_cli_filter() { sed -i '/^CliFilterPlugins=/d' "$SLURM_CONF"; }
fewer_workers() {
  local status=0
  new_run && submit_run '' && cli_filter 'if os.getenv("SWELL_AGENT") then options["ntasks"] = "1" end' && within 20 grep '^ended with 1$' out || status=1
  no_cli_filter
  ((status == 0)) && grep '^swellrun: srun was asked for 2 workers on each of 1 node and made a step with SLURM_STEP_TASKS_PER_NODE=1 on node.*: a cli_filter' out
}
fewer_lent_workers() {
  local status=0
  start_run '' && cli_filter 'if options["jobid"] then options["ntasks"] = "1" end' && tell grow node2:4 &&
    within 20 said '"released","companion".*asked for 4 workers on each of 1 node' && within 5 said '"no_growth":"srun was asked for 4' || status=1
  no_cli_filter
  ((status == 0)) && [[ $(started 1) == 0 ]] && finishes 0
}
other_gpus() { # CODE MADE: what a cli_filter does with a step, and how that step is described
  local status=0
  new_run && submit_run '' && cli_filter "if os.getenv('SWELL_AGENT') then $1 end" && within 20 grep '^ended with 1$' out || status=1
  no_cli_filter
  ((status == 0)) && [[ $(grep -c "^swellrun: srun was asked for 2 GPUs on node. and made a step with $2: a cli_filter" out) == 1 ]]
}
other_gpus_of_all_kinds() {
  other_gpus 'options["gres"] = "none"' none && other_gpus 'options["gres"] = "gpu:1"' 'SLURM_GPUS_ON_NODE=1'
}
other_lent_gpus() {
  local status=0
  start_run '' && cli_filter 'if options["jobid"] then options["gres"] = "gpu:2" end' && tell grow node2:4 &&
    within 20 said '"released","companion".*asked for 4 GPUs on node2' || status=1
  no_cli_filter
  ((status == 0)) && [[ $(started 1) == 0 ]] && finishes 0
}
if [[ -e $(find /usr/lib /usr/lib64 -name cli_filter_lua.so 2> /dev/null | head -n 1) ]]; then
  check 'a cli_filter that changes the number of workers ends the job, which says it' fewer_workers
  check 'a cli_filter that changes that of a companion has the job give it back' fewer_lent_workers
  check 'a cli_filter that changes the GPUs of a step ends the job, which says it' other_gpus_of_all_kinds
  check 'a cli_filter that changes those of a companion has the job give it back' other_lent_gpus
fi
# task_prolog CODE: the site's own, until no_task_prolog.
task_prolog() {
  printf '#!/bin/sh\n%s\n' "$1" > prolog && chmod 755 prolog && printf 'TaskProlog=%s\n' "$TMPDIR/prolog" >> "$SLURM_CONF" && scontrol reconfigure
}
no_task_prolog() { sed -i '/^TaskProlog=/d' "$SLURM_CONF" && scontrol reconfigure; }
no_local_id() {
  local status=0
  task_prolog 'echo unset SLURM_LOCALID' && new_run && submit_run '' && within 20 grep '^ended with 1$' out || status=1
  no_task_prolog
  ((status == 0)) && grep '^swellrun: node.* has workers without SLURM_LOCALID: a SPANK plugin or TaskProlog' out
}
check 'workers that cannot tell each other apart end the job, which says it' no_local_id
wrong_local_id() { # VALUE LINE: what a TaskProlog sets, and what is said of it
  local status=0
  task_prolog "echo export SLURM_LOCALID=$1" && new_run && submit_run '' && within 20 grep '^ended with 1$' out || status=1
  no_task_prolog
  ((status == 0)) && [[ $(grep -c "^swellrun: node.* $2: a SPANK plugin or TaskProlog" out) == 1 ]]
}
wrong_local_ids() {
  wrong_local_id 0 'has two workers with SLURM_LOCALID=0' && wrong_local_id 7 'has a worker with SLURM_LOCALID=7, which is not one of 0 to 1'
}
check 'workers with one number, or one that none of them has, end the job, which says it' wrong_local_ids
lent_local_id() {
  local status=0
  start_run '' && task_prolog '[ "$SLURMD_NODENAME" != node2 ] || echo export SLURM_LOCALID=1' && tell grow node2:4 &&
    within 20 said '"released","companion".*node2 has two workers with SLURM_LOCALID=1' || status=1
  no_task_prolog
  ((status == 0)) && [[ $(started 1) == 0 ]] && finishes 0
}
check 'a companion whose workers have one number goes back, and training goes on' lent_local_id
mig_instances() { # CUDA shows a process one of them
  local status=0
  task_prolog 'echo export CUDA_VISIBLE_DEVICES=MIG-a,MIG-b' && start_run '' && finishes 0 || status=1
  no_task_prolog
  ((status == 0)) && [[ $(grep -c '^swell-worker: node1 has 2 MIG instances for 2 workers, and CUDA shows a process only the first' out) == 1 ]]
}
check 'workers that have several MIG instances on a node are told once what they must set' mig_instances
six_begin() { [[ $(started 1) == 6 ]]; }
late_node() {
  local status=0
  task_prolog '[ "$SLURMD_NODENAME" != node3 ] || sleep 1000' && start_run '' && tell grow node2:4 node3:4 && within 20 six_begin &&
    [[ $(squeue -h -t R -o %j | grep -c '^swell-') == 2 ]] && finishes 0 || status=1
  no_task_prolog
  return "$status"
}
check 'a node whose TaskProlog hangs does not keep the others from being used' late_node
killed_worker() {
  start_run '' && tell grow node2:4 && within 20 generation_runs 1 6 && kill -9 "$(cat "$DIR/pid.1.4")" &&
    within 20 generation_runs 2 2 && finishes 0
}
check 'a worker killed in a companion: on without it' killed_worker
deaf_workers() {
  start_run '' --restart-timeout=1 && tell grow node2:4 && within 20 generation_runs 1 6 && kill -STOP "$(cat "$DIR/pid.1.1")" &&
    tell shrink "$(companion)" 20 needed && within 20 generation_runs 2 2 && grep -q 'did not leave in time' out && finishes 0
}
check 'a worker that does not leave in time for a reclaim is killed' deaf_workers
has_made() { (($(cat "$DIR/made.$1" 2> /dev/null || printf 0) >= $2)); } # GENERATION STEPS
# Its shim tells a step a second of five, and twelve such are needed before one is usual, more on a busy host. The limit of a hang follows from the longest pause so far, which is long on a busy host.
hangs() {
  local -x STEPS=1
  new_run && touch "$DIR/steps" && start_controller '' &&
    submit_run '' --restart-timeout=1 --hang-factor=2 --hang-minimum=2 && within 20 generation_runs 0 2 &&
    tell grow node2:4 && within 20 generation_runs 1 6 && touch "$DIR/ignore" && within 30 has_made 1 100 && rm "$DIR/steps" &&
    within 90 said '"released","companion"' && touch "$DIR/steps" && within 20 generation_runs 2 2 &&
    grep -q 'the program has made no step for .*: on with the job.s own GPUs, from the last checkpoint' out &&
    within 20 has_made 2 25 && rm "$DIR/steps" && within 90 generation_runs 3 2 &&
    grep -q 'the program has made no step for .*: it is started again, from its last checkpoint' out &&
    [[ $(grep -c '"event":"hung"' events) == 2 ]] && said '"no_growth":"the program has made no step' && finishes 0
}
check 'a program that makes no steps any more gives lent GPUs back, and is started again' hangs
ignored_growth() {
  start_run '' --restart-timeout=1 && touch "$DIR/ignore" && tell grow node2:4 &&
    within 20 grep -q 'did not leave within 1 s of USR1: no more GPUs; they train on' out && within 10 said '"released","companion"' &&
    within 10 said '"no_growth":"workers did not leave within 1 s of USR1"' && [[ $(started 0) == 2 && $(started 1) == 0 ]] &&
    kill -0 "$(cat "$DIR/pid.0.0")" && kill -0 "$(cat "$DIR/pid.0.1")" && finishes 0
}
check 'workers that do not leave for a growth train on, and the GPUs go back' ignored_growth

# ---- programs and scripts of all kinds

run_program() { # COMMAND: a job of 2 GPUs whose script is that; the worker of each start leaves files as trainer.sh does
  new_run && start_controller '' && printf '#!/bin/bash\nswellrun=%q trainer=%q\n%s\necho "ended with $?"\n' "$swellrun" "$here/trainer.sh" "$1" > job.sh || return
  job=$(sbatch --parsable --hold --gres=gpu:2 -n2 -o "$TMPDIR/out" job.sh) &&
    scontrol update "job=$job" "admincomment=swell[elastic=${elastic:-max=4x} basic=2]" && scontrol release "$job" && within 20 generation_runs 0 2
}
from_standard_input() {
  local how
  for how in '"$swellrun" bash - < "$trainer"' 'cat "$trainer" | "$swellrun" bash -s' '"$swellrun" bash << END
$(cat "$trainer")
END' '"$swellrun" --input="$trainer" bash -'; do
    printf '%s\n' "$how"
    run_program "$how" && tell grow node2:4 && within 20 generation_runs 1 6 && tell shrink "$(companion)" 20 needed && within 20 generation_runs 2 2 && finishes 0 || return
    stop_run
  done
}
check 'a program on standard input is given again to each start, also on lent GPUs' from_standard_input
# It reaches the workers only after longer than the agent waits for a worker that has connected; it is large, too.
slowly_from_standard_input() {
  printf '#!/bin/bash\nexec %q "$@" < <(sleep 12; cat)\n' "$SWELL_WORKER" > slow-worker && chmod 755 slow-worker || return
  local -x SWELL_WORKER=$PWD/slow-worker
  { cat "$here/trainer.sh"; head -c 12000000 /dev/zero | tr '\0' '#'; } > large.sh
  run_program '"$swellrun" bash -s < large.sh' && finishes 0
}
check 'a large program on standard input that comes slowly is waited for' slowly_from_standard_input
from_a_pipe() {
  run_program '(cat "$trainer"; sleep 600) | "$swellrun" bash -s & sleep 1; wait $!' && within 10 said '"no_growth":"its program may be read from standard input' &&
    grep -q '^swellrun: the job is lent no GPUs: .*swellrun --input=none$' out && tell grow node2:4 && within 10 said '"companion":0,"reason":"its program may be read' &&
    [[ $(started 1) == 0 ]]
}
check 'a program in a pipe that does not end is run, and its job is lent nothing' from_a_pipe
not_from_standard_input() {
  run_program 'sleep 600 | "$swellrun" --input=none "$trainer"' && tell grow node2:4 && within 20 generation_runs 1 6
}
check 'with --input=none a pipe does not keep a job from growing' not_from_standard_input

upload_after_training() {
  LEAVES_WITH=3 run_program '"$swellrun" --leave-code=3 bash -c "\"$trainer\" && echo uploaded"' && tell grow node2:4 && within 20 generation_runs 1 6 || return
  ! grep uploaded out && finishes 0 && [[ $(grep -c '^uploaded$' out) == 6 ]]
}
check 'with --leave-code what follows the program runs at its end alone' upload_after_training
ended_when_asked() {
  LEAVES_WITH=0 run_program '"$swellrun" --leave-code=3 "$trainer"' && tell grow node2:4 && within 20 grep -q '^ended with 0$' out && [[ $(started 1) == 0 ]]
}
check 'with --leave-code a program that ends with 0 when asked to leave is not started again' ended_when_asked
leaving_file() {
  printf '#!/bin/bash\n"%s" || exit\n[ -e "$SWELL_LEAVING_FILE" ] && exit 0\necho uploaded\n' "$here/trainer.sh" > train.sh
  run_program '"$swellrun" bash train.sh' && tell grow node2:4 && within 20 generation_runs 1 6 || return
  ! grep uploaded out && finishes 0 && [[ $(grep -c '^uploaded$' out) == 6 ]] && ! compgen -G "${TMPDIR}/swell-leaving-*"
}
check 'a script sees by SWELL_LEAVING_FILE that its worker is to leave' leaving_file

launcher_within() {
  local how
  mkdir -p bin && printf '#!/bin/bash\nRANK=0 WORLD_SIZE=1 LOCAL_RANK=0 TORCHELASTIC_RUN_ID=none "$@"\nexit\n' > bin/mine && chmod 755 bin/mine
  printf '#!/bin/bash\nmine "%s"\n' "$here/trainer.sh" > train.sh
  for how in 'bash train.sh' 'timeout 600 mine "$trainer"' 'bash -c "mine $trainer; true"' 'env -S "mine $trainer"'; do
    printf '%s\n' "$how"
    new_run && start_controller '' && printf '#!/bin/bash\nPATH=%q:$PATH trainer=%q\n%q %s\necho "ended with $?"\n' "$TMPDIR/bin" "$here/trainer.sh" "$swellrun" "$how" > job.sh &&
      job=$(sbatch --parsable --hold --gres=gpu:2 -n2 -o "$TMPDIR/out" job.sh) && scontrol update "job=$job" 'admincomment=swell[elastic=max=4x basic=2]' &&
      scontrol release "$job" && within 20 said '"no_growth":"the program starts workers of its own (.*RANK=0' || return
    [[ $(grep -c '^swellrun: the program starts workers of its own .*each of the 2 workers is a training by itself.*Write the training program alone' out) == 1 ]] || return
    stop_run
  done
}
check 'a launcher behind a wrapper is seen at once, said once, and its job is not grown' launcher_within
# The launchers that people have, where SWELL_PYTHON has them.
real_launchers_within() {
  local python=${SWELL_PYTHON:-python3} how
  cat > torchrun.sh << END
export OMP_NUM_THREADS=1
$python -m torch.distributed.run --standalone --nproc_per_node=2 --no-python $here/trainer.sh
END
  cat > accelerate.sh << END
export OMP_NUM_THREADS=1
$(dirname "$python")/accelerate launch --multi_gpu --num_processes=2 --num_machines=1 --mixed_precision=no --dynamo_backend=no --main_process_port=0 --no_python $here/trainer.sh
END
  for how in torchrun accelerate; do
    [[ $how == torchrun || -x $(dirname "$python")/$how ]] || continue
    printf '%s\n' "$how"
    new_run && start_controller '' && printf '#!/bin/bash\n%q timeout 600 bash %s.sh\n' "$swellrun" "$how" > job.sh || return
    job=$(sbatch --parsable --hold --gres=gpu:2 -n2 -o "$TMPDIR/out" job.sh) && scontrol update "job=$job" 'admincomment=swell[elastic=max=4x basic=2]' &&
      scontrol release "$job" && within 60 said '"no_growth":"the program starts workers of its own (.*RANK=[01]' || return
    [[ $(grep -c '^swellrun: the program starts workers of its own .*each of the 2 workers is a training by itself.*Write the training program alone' out) == 1 ]] || return
    stop_run
  done
}
if "${SWELL_PYTHON:-python3}" -c 'import torch.distributed.run' 2> /dev/null; then
  check 'so are the real torchrun and accelerate' real_launchers_within
fi

# As they do it: the program is their child; uv hands signals on by handlers of its own.
wrapped() {
  local how
  mkdir -p bin && cat > bin/handing << 'END'
trap '[[ -z $program ]] || kill -USR1 "$program"' USR1
while [[ $1 != *trainer.sh ]]; do shift; done
sleep 1
"$@" &
program=$!
until wait "$program"; code=$?; [[ ! -d /proc/$program ]]; do :; done
exit "$code"
END
  printf '#!/bin/bash\ncd %q && exec -a uv bash run "$@"\n' "$TMPDIR/bin" > bin/uv && cp bin/handing bin/run &&
    printf '#!/bin/bash\nwhile [[ $1 != *trainer.sh ]]; do shift; done\n"$@"\nexit\n' > bin/conda && cp bin/conda bin/apptainer && chmod 755 bin/uv bin/conda bin/apptainer || return
  for how in 'uv run' 'conda run --no-capture-output -n env' 'apptainer exec --nv image.sif'; do
    printf '%s\n' "$how"
    run_program "PATH=$(printf %q "$TMPDIR/bin"):\$PATH \"\$swellrun\" $how \"\$trainer\"" && tell grow node2:4 && within 20 generation_runs 1 6 && tell shrink "$(companion)" 20 needed &&
      within 20 generation_runs 2 2 && finishes 0 || return
    stop_run
  done
}
check "a program behind uv run, conda run or a container's command is resized" wrapped

fails_after_a_resize() { # a port that a neighbour has taken, say
  printf '#!/bin/bash\nif [[ $SWELL_GENERATION == 2 ]]; then sleep 1; exit 9; fi\nexec "%s"\n' "$here/trainer.sh" > train.sh
  run_program '"$swellrun" bash train.sh' && tell grow node2:4 && within 20 generation_runs 1 6 && tell shrink "$(companion)" 20 needed &&
    within 20 generation_runs 3 2 && grep -q 'the program failed with 9 within [0-9]* s of a resize: it is started again once' out && finishes 0
}
check 'a program that fails just after a reclaim is started again once' fails_after_a_resize

warned_by_slurm() {
  run_program '"$swellrun" --before-end=0 "$trainer"' && tell grow node2:4 && within 20 generation_runs 1 6 && scancel -s USR1 "$job" &&
    within 20 grep -q '^ended with 75$' out && within 10 queue_is_empty && grep -q 'Slurm sent the job USR1: the workers leave, and swellrun ends with 75' out
}
check "with --before-end Slurm's signal has the workers leave, and the run ends with 75" warned_by_slurm
before_the_limit() {
  # Slurm counts in minutes. The next run goes on, and ends.
  new_run && printf '#!/bin/bash\n%q --before-end=50 --requeue %q\necho "ended with $?"\n' "$swellrun" "$here/trainer.sh" > job.sh &&
    job=$(sbatch --parsable --requeue --open-mode=append --time=1 --gres=gpu:2 -n2 -o "$TMPDIR/out" job.sh) && within 20 both_started || return
  within 60 is_requeued || return
  grep -q 'workers leave 2[0-9] s before\|workers leave 30 s before' out && grep -q 'the job ends in [23][0-9] s: the workers leave, and swellrun ends with 75' out || return
  # slurmd refuses a job that starts again in the second in which it was requeued.
  rm "$DIR"/start.* && touch "$DIR/finish" && scontrol update "job=$job" starttime=now+3seconds && within 60 grep -q '^ended with 0$' out && within 10 queue_is_empty
}
both_started() { [[ $(started 0) == 2 ]]; }
is_requeued() { [[ $(scontrol show job "$job") =~ Restarts=1 ]] && [[ $(squeue -h -j "$job" -o %T) == PENDING ]]; }
check 'with --before-end a job leaves before its time limit, is requeued, and goes on to its end' before_the_limit

# ---- losses, and the end
own_failure() { start_run '' && printf 5 > "$DIR/fail.1" && finishes 5; }
check "the program's own failure ends the job with its code" own_failure
controller_goes() {
  start_run '' && tell grow node2:4 && within 20 generation_runs 1 6 && tell drop && within 20 said "\"companions\":\[$(companion)\]" &&
    kill "$fake_pid" && finishes_alone
}
finishes_alone() {
  touch "$DIR/finish"
  within 20 grep -q '^ended with 0$' out && within 10 queue_is_empty
}
check 'without its controller the training goes on, and companions end with it' controller_goes
agent_killed() {
  start_run '' && tell grow node2:4 && within 20 generation_runs 1 6 || return
  local pid
  for pid in $(pgrep -x swellrun); do
    tr '\0' '\n' < "/proc/$pid/environ" | grep -x "SWELL_CONTROL_PORT=$SWELL_CONTROL_PORT" > /dev/null && kill -9 "$pid"
  done
  within 15 no_workers
}
no_workers() {
  local file
  for file in "$DIR"/pid.*; do ! kill -0 "$(cat "$file")" 2> /dev/null || return; done
}
check 'when swellrun is killed no worker stays behind' agent_killed
refused_agent() {
  new_run && start_controller '' && tell refuse job 5 is not a running elastic job && submit_run '' && within 20 has_started 0 2 &&
    within 5 grep -q '^swellrun: the controller refuses: job 5 is not a running elastic job; training on the GPUs' out &&
    finishes_alone
}
has_started() { [[ $(started "$1") == "$2" ]]; }
check "a refusal of the controller is printed in its words, and the training goes on" refused_agent
controller_comes_later() {
  new_run && submit_run '' && within 20 has_started 0 2 &&
    within 5 grep -q "^swellrun: no Swell controller: connecting to 127.0.0.1:$SWELL_CONTROL_PORT: Connection refused; training" out &&
    start_controller '' && within 20 said '"hello"' && within 5 grep -q '^swellrun: connected to the Swell controller$' out &&
    tell grow node2:4 && within 20 generation_runs 1 6 && finishes 0
}
check 'without a controller the training starts, and a controller that comes later lends' controller_comes_later
elasticity_is_off() {
  local port=$SWELL_CONTROL_PORT result
  unset SWELL_CONTROL_PORT
  printf 'Elasticity=no\n' > "${SLURM_CONF%/*}/swell.conf"
  new_run && submit_run '' && within 20 has_started 0 2 && within 5 grep -q 'swell.conf says Elasticity=no: training on its own 2 GPUs' out &&
    finishes_alone
  result=$?
  rm "${SLURM_CONF%/*}/swell.conf"
  export SWELL_CONTROL_PORT=$port
  return $result
}
check 'Elasticity=no is said at once, and the training starts' elasticity_is_off
one_environment() {
  start_run '' && tell grow node2:4 && within 20 generation_runs 1 6 || return
  # All workers see one job; only what describes their own task and node differs.
  local rank name
  for rank in 0 1 2 3 4 5; do
    grep '^SLURM_' "$DIR/env.1.$rank" | grep -Ev '^SLURM_(PROCID|NODEID|LOCALID|TASK_PID|GTIDS|JOB_GPUS|STEP_GPUS|GPUS_ON_NODE|CPUS_ON_NODE|TOPOLOGY_ADDR|STEP_LAUNCHER_PORT|SRUN_COMM_PORT)=' |
      sort > "same.$rank"
    diff same.0 "same.$rank" || return
  done
  for name in "SLURM_JOB_ID=$job" "SLURM_JOBID=$job" "SLURM_SUBMIT_DIR=$TMPDIR" SLURM_JOB_NAME=job.sh SLURM_NTASKS=6 SLURM_NNODES=2; do
    grep -x "$name" same.5 || return
  done
  for name in "SWELL_JOB_ID=$job" "SLURM_JOB_ID=$job"; do grep -qx "$name" "$DIR/env.0.0" && grep -qx "$name" "$DIR/env.1.5" || return; done
  grep -qx SLURMD_NODENAME=node2 "$DIR/env.1.5" && finishes 0
}
check 'workers on lent GPUs see the same job as the others' one_environment

no_growth_is_told() {
  new_run && start_controller '' && submit_run '' -n3 && within 20 said '3 workers do not share 2 GPUs evenly' && finishes 0 && stop_run || return
  new_run && printf '0-1 sleep 5\n' > multi && start_controller '' && submit_run '' --multi-prog multi && within 20 said 'its swellrun runs as srun: --multi-prog is given' &&
    within 20 grep -q '^ended with' out
}
check 'the controller hears why a run does not grow' no_growth_is_told

files_of_workers() {
  rm -f log.* && start_run '' -o log.%t && tell grow node2:2 && within 20 generation_runs 1 4 && tell grow node1:2 && within 20 generation_runs 2 6 && finishes 0 &&
    grep -c '' log.0 log.1 log.10 log.11 log.20 log.21 && [[ $(find . -name 'log.*' | wc -l) == 6 ]] && ! grep -l 'rank 2 ' log.0 || return
  # One file for all: nothing that one wrote is lost. Numbers of steps begin anew in each companion.
  local name
  for name in log.%j log.%x.%u log.%A_%a log.%J; do
    stop_run && rm -f log.* && start_run '' -o "$name" && tell grow node2:2 && within 20 generation_runs 1 4 && finishes 0 && [[ $(find . -name 'log.*' | wc -l) == 1 ]] &&
      sort log.* | diff <(printf 'rank %s of generation %s\n' 0 0 1 0 0 1 1 1 2 1 3 1 | sort) - || return
  done
}
check 'no two workers write one file, unless it is one for all' files_of_workers

# Slurm refuses steps that ask for a number of GPUs in a job that asked for each type of them.
two_types() {
  local dir=${SLURM_CONF%/*} line
  line=$(grep '^NodeName=' "$SLURM_CONF")
  printf 'AutoDetect=off\nNodeName=node[1-3] Name=gpu Type=a100 File=%s/gpus/gpu[0-1]\nNodeName=node[1-3] Name=gpu Type=v100 File=%s/gpus/gpu[2-3]\n' "$SWELL_CLUSTER_DIR" "$SWELL_CLUSTER_DIR" > "$dir/gres.conf"
  sed -i '/^NodeName=/d' "$SLURM_CONF" && printf '%s\n' "$line" | sed 's/Gres=[^ ]*/Gres=gpu:a100:2,gpu:v100:2/' >> "$SLURM_CONF"
  "$cluster" restart-ctld && for node in node1 node2 node3; do "$cluster" kill-slurmd "$node" && "$cluster" start-slurmd "$node" || return; done
  salloc -Q -w node1 --gres=gpu:a100:1,gpu:v100:1 "$swellrun" sh -c 'echo $RANK/$WORLD_SIZE $CUDA_VISIBLE_DEVICES' < /dev/null > out 2> err || { cat err; return 1; }
  sort out | diff - <(printf '0/2 0,2\n1/2 0,2\n') || return
  ranks_of 3 --gres=gpu:a100:2,gpu:v100:1
}
check 'a job with GPUs of two types on a node has a worker for each' two_types

finish_tests
