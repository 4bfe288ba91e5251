#!/bin/sh
# Runs fuzz targets one after the other. Inputs that fail are kept in testdata/fuzz of their package.
#
#   scripts/fuzz.sh TIME BASE|all       TIME for each target of the packages changed since BASE
set -eu
cd "$(dirname "$0")/.."
time=$1 base=$2
for package in $(git grep --untracked -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
  if [ "$base" != all ] && git diff --quiet --merge-base "$base" -- ":(glob)$package/*.go"; then continue; fi
  for target in $(git grep --untracked -h '^func Fuzz' -- ":(glob)$package/*_test.go" | sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do
    ${GO:-go} test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$package"
  done
done
