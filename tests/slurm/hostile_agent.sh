#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# hostile_agent.sh PORT MUNGE_SOCKET: a client of the controller that says what it is told. Standard input has one
# message a line, in JSON, or `wait TYPE` for the next message of this type; what the controller sends goes to standard output.
# For tests of what an agent that was not written by us can do.
set -u -o pipefail
port=$1 socket=$2 seq=0
exec {link}<> "/dev/tcp/127.0.0.1/$port" || exit 1

body() { # the next frame's
  local size
  size=$(dd bs=1 count=4 <&"$link" 2> /dev/null | od -An -v -tu1 | awk '{ print (($1 * 256 + $2) * 256 + $3) * 256 + $4 }')
  [[ -n $size ]] && ((size > 0)) && dd bs=1 count="$size" <&"$link" 2> /dev/null
}
said() { # the next message of the controller
  local credential
  credential=$(body)
  [[ -n $credential ]] && unmunge --socket="$socket" --metadata=/dev/null <<< "$credential"
}
say() { # JSON
  local credential size
  seq=$((seq + 1))
  credential=$(printf '{"conn":"%s","from":"client","seq":%s,"m":%s}' "$nonce" "$seq" "$1" | munge --socket="$socket") || return
  size=${#credential}
  # shellcheck disable=SC2059 # the format is made of octal escapes
  { printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((size >> 24 & 255)) $((size >> 16 & 255)) $((size >> 8 & 255)) $((size & 255)))"
    printf '%s' "$credential"; } >&"$link"
}

greeting=$(body)
nonce=${greeting#SWELL1 }
while IFS= read -r line; do
  if [[ $line == 'wait '* ]]; then
    while message=$(said) && [[ -n $message ]]; do
      printf '%s\n' "$message"
      [[ $message == *"\"type\":\"${line#wait }\""* ]] && break
    done
  else
    say "$line"
  fi
done
exec {link}>&-
