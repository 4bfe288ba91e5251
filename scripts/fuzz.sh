#!/bin/sh
# Runs fuzz targets one after the other. Inputs that fail are kept in testdata/fuzz of their package.
#
#   scripts/fuzz.sh INPUTS BASE|all     INPUTS for each target of the packages changed since BASE
#
# A number, because targets that run for a time fail by chance before Go 1.27: go.dev/issue/75804.
# UNGUIDED=1 compiles nothing again to let coverage guide the inputs, which takes minutes.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go} inputs=$1 base=$2 guided='-fuzz .'
[ -z "${UNGUIDED:-}" ] || guided=
root=$PWD cache=$($go env GOCACHE)/fuzz/$($go list -m) # where go test keeps inputs that cover new code
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
trap 'exit 130' INT TERM
for package in $(git grep --untracked -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
  if [ "$base" != all ] && git diff --quiet --merge-base "$base" -- ":(glob)$package/*.go"; then continue; fi
  $go test -c -vet=off $guided -o "$built/test" "./$package" # once, not for each target
  for target in $(git grep --untracked -h '^func Fuzz' -- ":(glob)$package/*_test.go" | sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do
    cd "$package"
    echo "fuzz: $package $target"
    # By default an input is minimized for up to a minute, in which nothing else runs.
    "$built/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "${inputs}x" -test.fuzzminimizetime 100x -test.fuzzcachedir "$cache/$package"
    cd "$root"
  done
done
