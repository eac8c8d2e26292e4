#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The tools on input and output that a user chooses badly, or in bad faith. No cluster is needed.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
: "${SWELL_STAGE:=}"
[[ -n $SWELL_STAGE && -x $SWELL_STAGE/bin/swell ]] || skip 'SWELL_STAGE names no installed Swell: run contrib/check'
PATH=$SWELL_STAGE/bin:$PATH
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

commands=('swell --help' 'swell --version' 'swell plan --help' 'swell plan --model gpt2-1.3b --cluster 1x8-h100'
  'swell plan --model gpt2-1.3b --cluster 1x8-h100 --json' 'swell plan --model gpt2-1.3b --cluster 1x8-h100 --grid --cells' 'swell topo --json' 'swellrun --help' 'swellrun --version')
fails() { # COMMAND...: by itself, not by a signal or a time limit
  local status
  timeout 60 "$@" > /dev/null 2> said
  status=$?
  ((status == 1)) && [[ $(wc -l < said) == 1 ]] || { printf '%s: %s: %s\n' "$*" "$status" "$(cat said)"; return 1; }
}
lost_output_is_told() {
  local command status
  for command in "${commands[@]}"; do
    # shellcheck disable=SC2086 # words
    timeout 60 $command > /dev/full 2> said && { printf 'good on a full disk: %s\n' "$command"; return 1; }
    grep -qE 'standard output.*(No space|cannot be written)' said || { printf '%s said: %s\n' "$command" "$(cat said)"; return 1; }
    # shellcheck disable=SC2086
    timeout 60 $command >&- 2> said && { printf 'good without standard output: %s\n' "$command"; return 1; }
    # shellcheck disable=SC2086
    { (trap '' PIPE; sleep 0.2; timeout 60 $command 2> said; printf '%s\n' "$?" > status); } | true
    status=$(cat status)
    [[ $status != 0 ]] || { printf 'good when nobody reads: %s\n' "$command"; return 1; }
  done
}
check 'output that is lost is a failure, with its reason' lost_output_is_told
the_profiler_gets_its_words() {
  printf '#!/bin/sh\nprintf "%%s|" "$@"\nexit 7\n' > python3
  chmod +x python3
  local said
  said=$(unset SWELL_PYTHON; PATH=$PWD:$PATH swell profile gpt --help --tp 1,2 'a b')
  [[ $? == 7 && $said == '-m|swell.profile|gpt|--help|--tp|1,2|a b|' ]] || { printf '%s\n' "$said"; return 1; }
  SWELL_PYTHON=$PWD/none fails swell profile gpt && grep -q 'let SWELL_PYTHON name it' said || return
  # A Python without the package, and one whose package is another one of that name.
  PYTHONPATH='' SWELL_PYTHON=/usr/bin/python3 fails swell profile gpt && grep -q 'has no package "swell": install it there (pip install ./python' said || { cat said; return 1; }
  mkdir -p other/swell && : > other/swell/__init__.py
  PYTHONPATH=$PWD/other SWELL_PYTHON=/usr/bin/python3 fails swell profile gpt && grep -q 'has no package "swell"' said || { cat said; return 1; }
  PYTHONPATH=$top/python SWELL_PYTHON=/usr/bin/python3 swell profile gpt > said 2>&1
  ! grep -q 'has no package "swell"' said || { cat said; return 1; }
}
check 'swell profile gives Python its words, and says where there is none, or none with the package' the_profiler_gets_its_words

refuses() { # WORDS COMMAND...: with 2, in one line that has the words
  local words=$1 status
  shift
  timeout 20 "$@" > said 2>&1 < /dev/null
  status=$?
  ((status == 2)) && [[ $(wc -l < said) == 1 ]] && grep -qF -- "$words" said || { printf '%s: %s: %s\n' "$*" "$status" "$(cat said)"; return 1; }
}
needs_a_program() { refuses 'swellrun: no program is given; write for example: swellrun python train.py' swellrun && refuses 'no program is given' swellrun --before-end=120 --requeue; }
check 'swellrun without a program is refused with an example' needs_a_program

wrong_words_are_refused() {
  local command
  for command in why history pause resume replan; do refuses "swell: $command: JOBID is missing; write \"swell $command JOBID\"; swell $command --help" swell $command || return; done
  refuses 'GPUS is missing; write "swell max JOBID GPUS"' swell max 3 && refuses '"swell max JOBID GPUS"' swell max 3 many &&
    refuses 'swell: drain: ' swell drain --timeout x && refuses 'swell: jobs: ' swell jobs --no-such-option &&
    refuses 'write "swell jobs [JOBID]..."' swell jobs --no-such-option
}
check 'a command line without its words, or with wrong ones, is refused with its form' wrong_words_are_refused

readers=('swell plan --cluster 1x8-h100 --model' 'swell plan --model gpt2-1.3b --cluster' 'swell plan --model gpt2-1.3b --cluster 1x8-h100 --plan'
  'swell plan --model gpt2-1.3b --cluster 1x8-h100 --schedule' 'swell plan --model gpt2-1.3b --cluster 1x8-h100 --profile' 'swell plan --model gpt2-1.3b --cluster 1x8-h100 --coefficients' 'swell predict --data'
  'swell history 1 --file' 'swell topo --hwloc-xml' 'swell topo --fabric-file' 'swell topo --publish --description' 'swell replan 1 --plan' 'swell speeds')
! swell sim --help > /dev/null 2>&1 || readers+=('swell sim --policy fifo --trace' 'swell sim --policy fifo --cluster')
only_files_are_read() {
  local reader file
  mkfifo fifo && mkdir dir || return
  for reader in "${readers[@]}"; do
    for file in fifo dir /dev/zero; do
      # shellcheck disable=SC2086
      fails $reader "$file" && grep -qE "$file is a (FIFO|folder|device); a regular file is needed" said || { cat said; return 1; }
    done
  done
  for file in fifo dir /dev/zero; do
    timeout 20 swellrun --model "$file" true > /dev/null 2> said
    (($? == 2)) && grep -qF 'a regular file is needed' said || { cat said; return 1; }
  done
  SLURM_CONF=$PWD/fifo timeout 60 swell doctor > said 2>&1
  (($? == 1)) && grep -qF 'fifo: it is not a file; SLURM_CONF must name slurm.conf' said || { printf 'swell doctor: '; cat said; return 1; }
}
check 'FIFOs, folders and devices are refused by every reader' only_files_are_read

empty_files_are_said() {
  local reader file
  : > empty
  printf '\n \n' > blank
  for reader in "${readers[@]}" 'swell plan --model gpt2-1.3b --cluster 1x8-h100 --table'; do
    for file in empty blank; do
      # A library reads these and says what it finds wrong; a subnet without nodes is empty, too.
      [[ $reader == *--fabric-file || ($file == blank && $reader =~ history|hwloc) ]] && continue
      # shellcheck disable=SC2086
      fails $reader "$file" && grep -qE '(it|the schedule) is empty' said || { printf '%s %s: ' "$reader" "$file"; cat said; return 1; }
    done
  done
  timeout 20 swellrun --model empty true > /dev/null 2> said
  (($? == 2)) && grep -qF 'it is empty' said || { cat said; return 1; }
}
check 'every reader says of an empty file that it is empty' empty_files_are_said

toy_models_are_said() {
  printf '{"name":"toy","layers":4,"hidden":16,"heads":2,"sequence":64,"vocabulary":128,"global_batch":64}' > toy.json
  swell plan --model toy.json --cluster 1x4-h100 > toy && swell plan --model toy.json --cluster 1x4-h100 --grid > grid || return
  # Words and figure: the first row of the grid is the same plan.
  grep -qF "$(awk '$1 == "h100" && $2 == 1 { print "the first plan does " $3 " samples/s: swell plan --grid counts it" }' grid)" toy || { cat toy grid; return 1; }
  swell plan --model gpt2-1.3b --cluster 1x4-h100 > large && ! grep -F 'start kernels' large
}
check 'a plan of a model that is too small to fill a GPU says what --grid counts' toy_models_are_said

harmless() { ! LC_ALL=C.UTF-8 grep -nP '[\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}]' "$@"; }
words_of_files_are_shown() {
  local escapes=$'\e[31m\e]0;pwned\a\r'
  printf '{"name":"m\\u001b[31m\\u009b2J\\u202e","layers":0,"hidden":8,"heads":8,"sequence":8,"global_batch":8}' > model.json
  printf 'submit_s,num_gpus,duration_s\n0,%s\xff,60\n' "$escapes" > trace.csv
  printf '{"a%s\xff":' "$escapes" > broken.json
  {
    swell plan --model model.json --cluster 1x8-h100
    swell plan --model broken.json --cluster 1x8-h100
    swell plan --model "$escapes" --cluster 1x8-h100
    swell "$escapes"
    swell sim --policy fifo --trace trace.csv
    swellrun --model model.json true
    swellrun "--model=$escapes" true
    swellrun "--swell-$escapes" true
  } > shown 2>&1
  cat -v shown
  (($(wc -l < shown) >= 8)) && grep -qF '\x1b[31m' shown && harmless shown
}
check 'words of files and of the command line command no terminal' words_of_files_are_shown

hostile_numbers_end() {
  local solver node nodes='' status began
  for ((node = 1; node <= 1000; node++)); do nodes+=",{\"name\":\"n$node\",\"gpus\":[{\"type\":\"h100\",\"count\":64}],\"network_gbytes_per_s\":400}"; done
  printf '{"name":"large","nodes":[%s]}' "${nodes#,}" > cluster.json
  printf '{"name":"deep","layers":4096,"hidden":8192,"heads":64,"sequence":2048,"global_batch":1048576}' > deep.json
  printf '{"name":"deeper","layers":67108864,"hidden":8192,"heads":64,"sequence":2048,"global_batch":1048576}' > deeper.json
  fails swell plan --model deeper.json --cluster 1x8-h100 && grep -qF 'at most 4096 layers' said || { cat said; return 1; }
  for solver in incremental exhaustive symmetric dp-only metis; do
    began=$SECONDS
    (ulimit -v 12000000; timeout 60 swell plan --model deep.json --cluster cluster.json --plan 64-64-8 --solver "$solver" --time-limit 1) > table 2> said
    status=$?
    printf '%s: %s after %s s: %s\n' "$solver" "$status" "$((SECONDS - began))" "$(tail -n 1 table | cut -c-100) $(cat said)"
    ((status == 0 || status == 1)) && ((SECONDS - began < 30)) || return
  done
}
check 'a plan for hostile numbers ends within its time limit' hostile_numbers_end

schedules_are_planned() {
  local plan=(swell plan --model flextrain-small --cluster 8x8-h200 --plan 2-1-8 --micro-batches 256 --consistency exact --free 16)
  "${plan[@]}" --schedule interleaved > table && grep -qE '^ +32 .*interleaved .* in ' table || { cat table; return 1; }
  swell plan --model gpt2-1.3b --cluster 1x8-h100 --plan 2-1-1 --micro-batches 8 --global-batch 16 --consistency exact --free 1 --schedule search --json > row && grep -qF '"scheduled":{"schedule":' row && grep -qF '"chunks":[' row || { cat row; return 1; }
  fails "${plan[@]}" --schedule fastest && grep -qF 'there is no schedule "fastest"' said || { cat said; return 1; }
  printf 'FX\n' > wrong
  fails "${plan[@]}" --schedule wrong && grep -qF 'wrong' said || { cat said; return 1; }
}
larger_plans_are_halved() { # the papers' plans on a cluster that is too small for them
  swell plan --model llama2-70b --cluster 8x8-h100 --consistency exact --schedule search > table 2> said && grep -qE '^ +64 .* PP: ' table || { cat table said; return 1; }
  grep -qF "taken to be 3-2-8 over 48 GPUs, with 64 micro-batches: the paper's 3-8-8 is larger than cluster 8x8-h100; --plan" said || { cat said; return 1; }
  swell plan --model llama2-70b --cluster 8x8-h100 --json 2> said | python3 -c 'import json, sys; json.load(sys.stdin)' || return
  fails swell plan --model llama2-70b --cluster 1x8-h100 && grep -qF 'needs 192 GPUs in groups of 8 on one node; cluster 1x8-h100 has 8 in all: give --plan PP-DP-TP that fits' said || { cat said; return 1; }
  fails swell plan --model llama2-70b --cluster 8x8-h100 --plan 1-8-8 && grep -qF 'give more --micro-batches, or another --plan; --grid shows plans that fit' said || { cat said; return 1; }
}
check 'a plan of a paper that is too large for the cluster is halved, or refused with a remedy' larger_plans_are_halved

exact_plans_have_chunks() {
  local plan=(swell plan --model gpt2-1.3b --cluster 1x8-h100 --plan 4-1-1 --micro-batches 8 --global-batch 16 --consistency exact --free 4)
  "${plan[@]}" > table && grep -qE '^ +8 .* in [0-9]+\+[0-9]+.*, (interleaved|zero-bubble|a schedule of its own)' table || { cat table; return 1; }
  "${plan[@]}" --draw plan.svg > table && [[ $(grep -c '<title>stage 7: ' plan.svg) -ge 32 ]] || { cat table; return 1; }
  fails "${plan[@]}" --draw none/plan.svg && grep -qF none/plan.svg said || { cat said; return 1; }
  "${plan[@]}" --one-chunk > table && grep -qE '^ +8 ' table && ! grep -qE 'interleaved|zero-bubble|schedule of its own' table || { cat table; return 1; }
  fails swell replan 1 && grep -qF 'replan needs --plan FILE or --schedule NAME' said || { cat said; return 1; }
}
speeds_are_written_short() {
  swell plan --model gpt2-1.3b --cluster 1x8-h100+1x8-a100 --grid --sizes 4/8 --json > grid.json && swell speeds grid.json > short || return
  cat short
  grep -qE '^gpt2-1.3b;[0-9]+;a100:data-sheets:4=[0-9.]+,8=[0-9.]+;h100:data-sheets:4=[0-9.]+,8=[0-9.]+$' short || return
  printf '{"rows": []}' > rows.json
  fails swell speeds rows.json && grep -qF 'table=rows.json: it has 0 rows; 1 to 4096 are read' said || { cat said; return 1; }
}
check 'a table of swell plan is written as the short text that a submission sends' speeds_are_written_short
check 'exact plans have chunks and a schedule unless the program takes none' exact_plans_have_chunks
check 'plans with chunks and schedules are printed, and unknown schedules refused' schedules_are_planned

rows_are_left_out() {
  local plan=(swell plan --model llama2-13b --cluster 8x8-h100 --free 8)
  "${plan[@]}" --json > rows && "${plan[@]}" --all-rows > all && "${plan[@]}" > table && "${plan[@]}" --significant 0.9 > few || return
  grep -qF '"modelled_speedup":1.0,' rows && grep -qF '"omitted":"no-gain"' rows && ! grep -qF omitted <("${plan[@]}" --json --level 0 --apart 0 --significant 0) || { cat rows; return 1; }
  (($(wc -l < few) < $(wc -l < all))) && grep -qF 'left out: no significant gain' all && ! grep -q 'left out:' table && grep -qE '^[0-9]+ rows are left out' few || { cat all table few; return 1; }
  ! "${plan[@]}" --significant 2 > said 2>&1 && grep -qF significant said || { cat said; return 1; }
}
check 'rows without a gain, or with predictions that contradict each other, are left out and named on demand' rows_are_left_out

# A tool that writes to standard output or error writes through one place, which shows what is not printable.
one_place_writes() {
  local found
  found=$(grep -nE 'fmt::print\(|std::printf|std::cout|std::cerr|fputs\(' "$top"/src/tools/*.cc "$top"/src/tools/*/*.cc |
    grep -vE '/(output|files)\.cc:|"\\x1b|fmt::print\(stderr, "\\r')
  [[ -z $found ]] || { printf '%s\n' "$found"; return 1; }
}
check 'every tool writes through one function' one_place_writes
finish_tests
