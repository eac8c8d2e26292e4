# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Functions that tell sources from products of a build, for scripts that copy the checkout.

# source_files TOP: prints the files of the checkout TOP, each ended by a NUL byte, sorted, without products of a build: neither
# those in a build folder nor those that `./configure && make` leaves beside the sources.
source_files() {
  (cd "$1" && comm -z -23 \
    <(find . \( -path ./build -o -path './build-[!a]*' -o -path ./.venv -o -path ./quickstart-out -o -name autom4te.cache \
      -o -name .deps -o -name .libs -o -name __pycache__ \) -prune -o ! -type d \
      ! -name '*.o' ! -name '*.lo' ! -name '*.la' ! -name '*.so' ! -name '*.trs' ! -name '*.log' ! -name .dirstamp ! -name '*.gch*' \
      ! -name Makefile ! -path ./config.h ! -path ./config.status ! -path ./libtool ! -path ./stamp-h1 ! -path ./src/runtime/swell.pc -print0 | sort -z) \
    <(built_programs | sort -z))
}

# built_programs: prints the programs below the working folder that make has linked, or libtool's scripts in their place.
built_programs() {
  find . \( -path './build*' -o -path ./.venv -o -path ./.git \) -prune -o -type f -perm /111 ! -name '*.*' -print0 |
    xargs -0 -r grep -lZaE -m 1 "^$(printf '\177')ELF|temporary wrapper script for"
}

# copy_sources TOP COPY: brings COPY to what source_files() finds in TOP, and removes what an earlier call has copied and is no
# longer there. Files that were built in COPY stay, and times are kept: only what has changed is built again.
copy_sources() {
  local list=$2/.copied
  mkdir -p "$2" && touch "$list" && source_files "$1" > "$list.new" || return
  (cd "$2" && comm -z -23 "$list" "$list.new" | xargs -0 -r rm -f --) &&
    tar -C "$1" --null --no-recursion -T "$list.new" -cf - | tar -C "$2" --no-same-owner -xf - && mv "$list.new" "$list"
}
