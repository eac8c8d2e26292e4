#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A "training program" for tests: leaves a file per start, leaves on USR1, ends when $DIR/finish is there.
# While $DIR/ignore is there it does not leave. LEAVES_WITH: its exit code where it does.
trap '[[ -e $DIR/ignore ]] || exit "${LEAVES_WITH:-0}"' USR1
env > "$DIR/env.$SWELL_GENERATION.$RANK"
printf '%s\n' "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $SLURM_PROCID $CUDA_VISIBLE_DEVICES" \
  > "$DIR/start.$SWELL_GENERATION.$RANK"
printf '%s\n' $$ > "$DIR/pid.$SWELL_GENERATION.$RANK"
printf 'rank %s of generation %s\n' "$RANK" "$SWELL_GENERATION"
# STEPS: rank 0 makes five steps a second, as long as $DIR/steps is there, and writes how many into $DIR/made.GENERATION.
if [[ -n ${STEPS:-} && $RANK == 0 ]]; then
  python3 -c '
import os, socket, time
folder, generation, key, made = os.environ["DIR"], os.environ["SWELL_GENERATION"], os.environ["SWELL_SHIM_KEY"], 0
shim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
while True:
    time.sleep(0.2)
    if os.path.exists(folder + "/steps"):
        made += 1
        shim.sendto(f"{key} step {made}".encode(), "\0" + os.environ["SWELL_SHIM"][1:])
        with open(f"{folder}/made.{generation}", "w") as file:
            file.write(f"{made}")' &
fi
while [[ ! -e $DIR/finish ]]; do sleep 0.05; done
if [[ -e $DIR/fail.$RANK ]]; then exit "$(cat "$DIR/fail.$RANK")"; fi
