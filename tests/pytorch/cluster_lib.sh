# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Jobs of the frameworks on a real cluster, for the tests of this folder.
pytorch_tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/slurm/lib.sh
source "$pytorch_tests/../slurm/lib.sh"
: "${SWELL_PYTHON:=python3}"
export SWELL_PYTHON OMP_NUM_THREADS=1 PYTHONPATH=$top/python TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1

unset SWELL_LIBRARY # of mode=live: the stage's, which no loader knows

has_modules() { # MODULE...
  "$SWELL_PYTHON" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' "$@"
}
has_modules torch transformers accelerate lightning ||
  skip "$SWELL_PYTHON lacks torch, transformers, accelerate or lightning: run contrib/setup --pytorch DIR"

# run_job NAME [sbatch options] -- [swellrun options] PROGRAM...: sets `job` and `folder`, the job's own.
run_job() {
  local name=$1 options=()
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  folder=$work/$name
  mkdir -p "$folder"
  printf '#!/bin/bash\ncd %q || exit 2\nswellrun %s\nstatus=$?\necho $status > status\nexit $status\n' "$folder" "$(printf '%q ' "$@")" > "$folder/job.sh"
  job=$(sbatch --parsable --job-name="$name" --output="$folder.out" --open-mode=append "${options[@]}" "$folder/job.sh") || return
  job=${job%%;*}
}
step_reached() { # FOLDER STEP: by rank 0
  (($(cat "$1/step.0" 2> /dev/null || printf 0) >= $2))
}
gets_on() { # FOLDER: it trains two more steps
  local from
  from=$(cat "$1/step.0" 2> /dev/null || printf 0)
  within 180 step_reached "$1" $((from + 2))
}
says() { # JOB WORDS: its AdminComment has the words
  scontrol -o show job "$1" | grep -o 'AdminComment=.*\]' | grep -q -- "$2"
}
was_requeued() { [[ $(scontrol -o show job "$1" | grep -o ' Restarts=[0-9]*') != ' Restarts=0' ]]; }
lent_and_active() { word_is "$1" state ACTIVE && is_lent "$1" "$2"; }
