# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Of contrib/check and contrib/quickstart as root: the daemons of a private cluster run as Slurm's user and jobs as others, who
# all read below the checkout. Where it lies in a folder that is closed to others, as /root, they run in a copy that is not.

# closed_folder PATH: prints the folder on the way to PATH, PATH included, that others may not pass; fails where there is none.
closed_folder() {
  local folder=$1
  while [[ $folder != / ]]; do
    if [[ -d $folder && $(stat -Lc %A "$folder") != *[xt] ]]; then
      printf '%s\n' "$folder"
      return
    fi
    folder=$(dirname "$folder")
  done
  return 1
}

# refresh_copy TOP COPY: copies what is in TOP but for what was built there, and removes what was copied before and is there no
# more. What was built in COPY stays, and times are kept: only what has changed is built again.
refresh_copy() {
  local list=$2/.copied
  touch "$list" && (cd "$1" && find . \( -path './build' -o -path './build-[!a]*' -o -path ./.venv -o -path ./quickstart-out \) -prune \
    -o ! -type d -print0) | sort -z > "$list.new" || return
  (cd "$2" && comm -z -23 "$list" "$list.new" | xargs -0 -r rm -f --) &&
    tar -C "$1" --null --no-recursion -T "$list.new" -cf - | tar -C "$2" --no-same-owner -xf - && chmod -R go+rX,go-w "$2" &&
    mv "$list.new" "$list"
}

# open_copy TOP: sets `copy` to a copy of the checkout TOP that others can read, or to nothing where TOP is one itself or where
# not root asks. Fails with one line where none can be made.
open_copy() {
  local top=$1 closed cache=${SWELL_CACHE:-/var/tmp/swell-cache-$UID}
  copy=''
  ((EUID == 0)) || return 0
  closed=$(closed_folder "$top") || return 0
  copy=$cache/checkout-$(printf '%s' "$top" | cksum | cut -d ' ' -f 1)
  if ! { mkdir -p -m 755 "$cache" && [[ -O $cache && ! -L $cache ]] && ! closed_folder "$cache" > /dev/null && mkdir -p -m 755 "$copy" &&
    refresh_copy "$top" "$copy"; }; then
    printf '%s is closed to others, who must read below it, and no copy could be made in %s: set SWELL_CACHE to a folder of your own that others can read\n' \
      "$closed" "$cache" >&2
    return 1
  fi
  printf '%s is closed to others, and the users of a cluster must read below it: this runs in a copy, %s\n' "$closed" "$copy"
}
