# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Functions shared by the tests against a real cluster. A test sources this, starts a cluster with
# `cluster_up [options]`, and calls `check NAME FUNCTION` for each behaviour. Needs SWELL_STAGE: the
# prefix of an installed Swell (contrib/check sets it). Programs that a test lists in `programs` before it sources this are built with
# that Swell's libswell into $work: regression, profiled (examples), planned, in_step.so (beside this).
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
top=$(cd "$here/../.." && pwd) || exit 1
cluster=$top/contrib/cluster
PATH=$PATH:/usr/sbin

skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
# lacks PROGRAM: which contrib/setup installs, but not in the root of another Slurm. Where CI=true nothing is left out in silence.
lacks() {
  [[ ${CI:-} == true && -z ${SWELL_ROOT_VERSION:-} ]] || skip "$1 is not installed: run contrib/setup"
  printf 'not ok 1 - %s is installed\n1..1\n' "$1"
  exit 1
}

# build_programs: into a new folder SWELL_PROGRAMS.
build_programs() {
  local name libswell=(-I"$top/src" -L"$SWELL_STAGE/lib" -Wl,-rpath,"$SWELL_STAGE/lib" -lswell) source
  command -v c++ > /dev/null || skip 'no C++ compiler: run contrib/setup'
  SWELL_PROGRAMS=$(mktemp -d /tmp/swell-programs-XXXXXX) || exit 1
  export SWELL_PROGRAMS
  for name; do
    source=$(find "$top/examples" "$here" -maxdepth 1 -name "${name%.so}.c" -o -maxdepth 1 -name "$name.cc" | head -n 1)
    case $name:$source in
      *.so:*) cc -O1 -shared -fPIC "$source" -o "$SWELL_PROGRAMS/$name" ;;
      *.c) cc -O1 "$source" -o "$SWELL_PROGRAMS/$name" "${libswell[@]}" -lm ;;
      *) c++ -std=c++20 -O1 "$source" -o "$SWELL_PROGRAMS/$name" "${libswell[@]}" -ljansson ;;
    esac || { rm -rf "$SWELL_PROGRAMS" && skip "$source could not be built with the installed libswell"; }
  done
}

# SWELL_SLURM=24.11: the whole test runs in a Debian root with that Slurm, and SWELL_STAGE is built for it.
if [[ -n ${SWELL_SLURM:-} && $SWELL_SLURM != "${SWELL_ROOT_VERSION:-$("$top/contrib/slurm-version" native)}" ]]; then
  reason=$("$top/contrib/slurm-version" root "$SWELL_SLURM" 2>&1) || skip "${reason##*$'\n'}"
  # Before the root is entered, which has no compiler.
  [[ -z ${programs[*]-} || ! -d ${SWELL_STAGE:-}/lib ]] || build_programs "${programs[@]}"
  exec "$top/contrib/slurm-version" run "$SWELL_SLURM" "$(realpath "${BASH_SOURCE[1]}")"
fi

: "${SWELL_STAGE:=}"
[[ -n $SWELL_STAGE && -x $SWELL_STAGE/bin/swellrun ]] ||
  skip "SWELL_STAGE names no installed Swell: run contrib/check, or SWELL_STAGE=PREFIX $0"
for program in munged slurmctld slurmd; do
  command -v "$program" > /dev/null || skip "$program is not installed: run contrib/setup"
done
PATH=$SWELL_STAGE/bin:$PATH

# A base folder of our own: clusters of whoever else works here are not touched.
TMPDIR=$(mktemp -d "${test_base:-/tmp}/swell-test-XXXXXX") || exit 1
export TMPDIR
chmod 755 "$TMPDIR"
work=$TMPDIR/work
mkdir -m 1777 "$work"
cp "$here"/trainer.sh "$here"/trainer_job.sh "$work"
export TRAINER=$work/trainer.sh
export SWELL_FIRST_WAIT=0 # live jobs begin on their own GPUs, and grow
if [[ -n ${programs[*]-} ]]; then
  [[ -n ${SWELL_PROGRAMS:-} ]] || build_programs "${programs[@]}"
  mv "$SWELL_PROGRAMS"/* "$work" && rmdir "$SWELL_PROGRAMS" && unset SWELL_PROGRAMS || exit 1
fi
trap 'cluster_down; rm -rf "$TMPDIR"' EXIT
trap 'exit 1' INT TERM HUP PIPE

cluster_up() { # [options of contrib/cluster start]
  events=$TMPDIR/events.jsonl
  : > "$events" && chmod 666 "$events"
  "$cluster" start --plugins "$SWELL_STAGE/plugins" --swell-conf "EventLog=$events" \
    --swell-conf "MaxGrace=${max_grace:-600}" --swell-conf GrowthInterval=1 --swell-conf "AgentTimeout=${agent_timeout:-4}" --swell-conf "ProfileWait=${profile_wait:-0}" \
    --swell-conf "WithholdTime=${withhold:-0}" "$@" > "$TMPDIR/start.log" 2>&1 || {
    cat "$TMPDIR/start.log"
    exit 1
  }
  eval "$("$cluster" env)"
  cd "$work" || exit 1
}

cluster_down() {
  cd / || return
  if [[ -n ${SWELL_KEEP_LOGS:-} ]]; then "$cluster" stop --keep-logs "$SWELL_KEEP_LOGS"; else "$cluster" stop; fi
} > /dev/null 2>&1

# ---- results

# shellcheck source=tests/support/tap.sh
source "$here/../support/tap.sh"
after_check() { clear_queue; }

show_state() {
  printf -- '--- squeue, companions, the controller, swellrun\n'
  squeue --all -o '%i %j %u %T %N %b %r %q'
  scontrol -o show job | grep -o '^JobId=[0-9]*\|JobState=[A-Z]*\|AdminComment=.*\]' | tr '\n' ' ' | sed 's/JobId/\n&/g'
  printf '\n'
  "$cluster" logs slurmctld | grep -E ' swell:|error: [^C]*$|preempt' | tail -n 30
  tail -n 20 "$work"/*.out 2> /dev/null
}

# ---- waiting: for a state, with a deadline, never for time

# SECONDS: what a quiet machine may take; a loaded one is given four times as long. Looks often at first, then less so: each
# look starts programs, and several suites look at once.
within() { # SECONDS COMMAND...
  local deadline=$((SECONDS + 4 * $1 + 1)) looks=0
  shift
  until "$@" > /dev/null 2>&1; do
    if ((SECONDS > deadline)); then
      printf 'not within the time: %s\n' "$*"
      return 1
    fi
    if (((looks += 1) < 10)); then sleep 0.1; else sleep 0.3; fi
  done
}

# ---- jobs

# submit [sbatch options]: an elastic or rigid job that trains with tests/slurm/trainer.sh under
# swellrun; sets `job`. Its files are in $work/JOBID/.
submit() {
  job=$(sbatch --parsable --output="$work/%j.out" "$@" "$work/trainer_job.sh") || return 1
  job=${job%%;*}
}
rigid() { # [sbatch options]: a job that only holds what it asked for; sets `rigid_job`
  rigid_job=$(sbatch --parsable --output="$work/%j.out" "$@" --wrap 'sleep 36000') || return 1
}

# Until `swell drain --undo`: a job that begins meanwhile begins on its own GPUs. On a loaded machine lent ones may be up first.
lends_nothing() {
  local before
  before=$(drains)
  swell drain --no-wait && within 60 more_drains_than "$before" && return
  swell drain --undo
  return 1
}
drains() { grep -c '"event":"drain"' "$events"; }
more_drains_than() { (($(drains) > $1)); }

# processes_with VARIABLE=VALUE: the pids of those that have it in their environment, of this cluster alone: the clusters
# of tests that run beside have nodes of the same names, and jobs of the same ids.
processes_with() {
  grep -lszxF -- "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ | xargs -r grep -lszxF -- "$1" | cut -d/ -f3
}

# No worker that the job ever started is alive any more.
no_workers() {
  local file pid
  for file in "$work/$1"/start.*; do
    read -r pid _ < "$file"
    kill -0 "$pid" 2> /dev/null && return 1
  done
  return 0
}

state_of() { squeue --all -h -j "$1" -t all -o %T 2> /dev/null | head -n 1; }
in_state() { [[ $(state_of "$1") == "$2" ]]; }
ended() { [[ ! $(state_of "$1") =~ PENDING|RUNNING|COMPLETING|SUSPENDED ]]; }
words_of() { # JOB: the words of its AdminComment, KEY=VALUE each; looked at often, so that no program but scontrol is started
  local line
  # asked for the first id of an array, scontrol shows the whole array
  while IFS= read -r line; do
    [[ $line == "JobId=$1 "* && $line == *AdminComment=*swell\[*\]* ]] || continue
    line=${line##*AdminComment=} line=${line##*swell\[}
    printf '%s\n' "${line%\]*}"
  done < <(scontrol -o show job "$1" 2> /dev/null)
}
word_of() { # JOB KEY
  local word
  # shellcheck disable=SC2046 # words
  for word in $(words_of "$1"); do [[ $word != "$2="* ]] || printf '%s\n' "${word#*=}"; done
}
lent() { word_of "$1" lent; }
is_lent() { [[ $(lent "$1") == "$2" ]]; }
word_is() { [[ $(word_of "$1" "$2") == "$3" ]]; }
companions() { # JOB: the ids of its companions in Slurm's own records
  scontrol -o show job 2> /dev/null | grep "AdminComment=swell\[parent=$1 " | grep -E 'JobState=(RUNNING|SUSPENDED)' |
    sed -n 's/^JobId=\([0-9]*\).*/\1/p'
}
has_no_companions() { [[ -z $(companions "$1") ]]; }
workers_run() { # JOB N: N workers of the newest generation run
  local newest
  newest=$(newest_generation "$1")
  [[ -n $newest ]] && (($(running_ranks "$1" "$newest") == $2))
}
newest_generation() { # JOB
  local file generation newest=''
  for file in "$work/$1"/start.*; do
    generation=${file##*/start.} generation=${generation%%.*}
    [[ ! -e $file || $generation -le ${newest:--1} ]] || newest=$generation
  done
  printf '%s\n' "$newest"
}
running_ranks() { # JOB GENERATION
  local file pid n=0
  for file in "$work/$1/start.$2."*; do
    [[ -e $file ]] || continue
    read -r pid _ < "$file"
    kill -0 "$pid" 2> /dev/null && n=$((n + 1))
  done
  printf '%s\n' "$n"
}
step_of() { cat "$work/$1/checkpoint" 2> /dev/null || printf '0\n'; }

# grown JOB TOTAL: the job uses TOTAL GPUs, and Slurm, the controller and the workers agree on it.
grown() {
  local words
  words=" $(words_of "$1") "
  [[ $words =~ ' basic='([0-9]+)' ' && $words == *" lent=$(($2 - BASH_REMATCH[1])) "* && $words == *' state=ACTIVE '* ]] && workers_run "$1" "$2"
}
goes_on() { # JOB: its training gets on from where it is now
  local from
  from=$(cat "$work/$1/step" 2> /dev/null || printf 0)
  within 20 further_than "$1" "$from"
}
further_than() { (($(cat "$work/$1/step" 2> /dev/null || printf 0) > $2)); }

clear_queue() {
  scancel --user=root --quiet 2> /dev/null
  squeue -h -o %i | xargs -r scancel --quiet 2> /dev/null
  within 60 queue_is_empty || printf '# the queue could not be emptied\n'
}
queue_is_empty() { [[ -z $(squeue --all -h) ]]; }

# ---- invariants of docs/architecture.md, over what Slurm itself prints

invariants() {
  local problems
  problems=$(scontrol -o -d show job 2> /dev/null | awk -f "$here/invariants.awk")
  [[ -z $problems ]] && return 0
  printf '%s\n' "$problems"
  return 1
}
# Parent and companion name each other only after the next round of the controller: so a moment is given.
settled() { within 15 invariants || invariants; }
