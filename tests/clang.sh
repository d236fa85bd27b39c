#!/usr/bin/env bash
# Clang as PyPI has it: inside of ziglang, which writes names of processors its own way
# (x86_64_v3 for x86-64-v3). `make test-clang` puts this script first on the path, as `clang`.
set -euo pipefail
options=()
for option in "$@"; do
  case "$option" in
    -march=*) option="-march=$(tr - _ <<<"${option#-march=}")" ;;
  esac
  options+=("$option")
done
exec "$(dirname "$0")/../ziglang/zig" cc "${options[@]}"
