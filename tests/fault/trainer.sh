#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The soak's training program: trains until ./finish exists, leaves on USR1. "PID RANK" in a file tells whom to kill.
cd "${SOAK_WORK:?}" || exit 2
trap 'exit 0' USR1
echo "$$ $RANK" > ".start.$RANK" && mv ".start.$RANK" "start.$SWELL_GENERATION.$RANK"
exec {never}<> <(:)
until [[ -e finish ]]; do
  read -rt 1 -u "$never" || :
done
