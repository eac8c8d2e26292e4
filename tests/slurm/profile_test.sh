#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A program that marks its steps: what its ranks see comes together at swellrun.
programs=(profiled) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cat > "$work/profile_job.sh" << 'EOJ'
#!/bin/bash
export SWELL_TRACE=$OUT.trace.json
swellrun --swell-events="$OUT.events" --profile-out="$OUT.profile" ./profiled 100000 "" 10000
EOJ
cluster_up --nodes 1 --gpus-per-node 2

export OUT=$work/out
reported() {
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=mode=live,max=2 --gres=gpu:2 "$work/profile_job.sh") || return
  within 90 test -s "$OUT.profile"
}
check 'the ranks of a live job report a profile, which swellrun writes' reported

# Each micro-batch waits 10 ms and 20 ms and computes beside it; on a loaded machine it waits longer.
has_both_groups() {
  jq -e '.plan.micro_batches == 4 and (.plan.stages | length) == 1 and (.groups | length) == 2 and
    ([.groups[].fwd_s] | min > 0.010 and max < 1) and ([.groups[].bwd_s] | min > 0.020 and max < 1)' "$OUT.profile" > /dev/null
}
check 'it has the plan that they train, and how long their passes take' has_both_groups
check 'the event log has it too' grep -q '"event":"profile"' "$OUT.events"

traced() { jq -e '[.traceEvents[] | select(.ph == "X" and .name == "backward")] | length == 4' "$OUT.trace.$1.json" > /dev/null; }
both_traced() { traced 0 && traced 1; }
check 'each rank has written one step as a trace' both_traced

scancel "$job"
check 'the job ends' within 60 ended "$job"
finish_tests
