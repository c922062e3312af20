# Shared by tools/run and tools/test: Debian packages, configure, build. Sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packages=(g++ cmake ninja-build pkg-config libcli11-dev libfmt-dev libsimdjson-dev nlohmann-json3-dev libpcre2-dev
          libutf8proc-dev libssl-dev libgtest-dev libboost-context-dev)

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# Installs those of the named packages that are missing; no network and no privileges where none is.
need_packages() {
  local missing=() package
  local installed
  installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
  for package in "$@"; do
    [[ $installed == *" installed:$package "* ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { say "not root and no sudo: install them yourself: apt-get install ${missing[*]}"; exit 1; }
    as_root=(sudo)
  fi
  local log=$root/build/packages.log
  mkdir -p "$root/build"
  if ! { "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}" ||
         { "${as_root[@]}" apt-get update &&
           "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; }; } >"$log" 2>&1 </dev/null; then
    tail -n 5 "$log" >&2
    say "could not install the packages (whole log: build/packages.log)"
    exit 1
  fi
}

# build PRESET TARGET…: configures build/PRESET if it is new, then builds; silent unless something fails or takes over three
# seconds.
build() {
  local preset=$1 directory=$root/build/$1
  shift
  mkdir -p "$directory"
  exec 9>"$directory.lock"
  flock 9  # two calls at once build once
  local log=$directory/build.log
  local patience
  (sleep 3 && say "building in build/$preset: minutes if it is new (log: build/$preset/build.log)") 9>&- &
  patience=$!
  if [[ ! -f $directory/build.ninja ]]; then
    (cd "$root" && cmake --preset "$preset") >"$log" 2>&1 || { cat "$log" >&2; say "configuring build/$preset failed"; exit 1; }
  fi
  ninja -C "$directory" "$@" >"$log" 2>&1 || { cat "$log" >&2; say "building in build/$preset failed"; exit 1; }
  exec 9>&-
  kill "$patience" 2>/dev/null || true
  wait "$patience" 2>/dev/null || true
}
