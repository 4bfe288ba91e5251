#!/bin/sh
# Makes dist/site: the documentation as web pages, and for language models llms.txt, with a link to each page, and llms-full.txt, with all
# pages. Or says which Debian packages are missing for the web pages and exits with 2.
set -eu
cd "$(dirname "$0")/.."

# Paths in docs/README.md begin in docs.
rm -rf dist/site
mkdir -p dist/site
{
  printf '# Muster\n\n> %s\n\nAll pages in one file: [llms-full.txt](llms-full.txt)\n\n' "$(sed -n 's/^\*\*\(.*\)\*\*$/\1/p' README.md)"
  sed -n '/^## /,$p' docs/README.md | sed 's#](#](docs/#g; s#](docs/\.\./#](#g; s#](docs/http#](http#g'
} > dist/site/llms.txt
for page in README.md $(grep -o '](\([^)#]*\.md\)' dist/site/llms.txt | sed 's/^](//' | awk '!seen[$0]++'); do
  printf '<!-- %s -->\n\n' "$page"
  cat "$page"
  echo
  mkdir -p "dist/site/$(dirname "$page")"
  cp "$page" "dist/site/$page"
done > dist/site/llms-full.txt
cp docs/reference/openapi.json dist/site/docs/reference/

# Debian's packages are those of its own Python, which need not be the first on the path.
missing=
for python in ${PYTHON:-python3 /usr/bin/python3}; do
  missing=
  for need in sphinx:python3-sphinx myst_parser:python3-myst-parser furo:furo; do
    "$python" -c "import ${need%:*}" 2>/dev/null || missing="$missing ${need#*:}"
  done
  [ -n "$missing" ] || break
done
if [ -n "$missing" ]; then
  echo "docs: needed and not installed:$missing. On Debian: apt-get install$missing" >&2
  exit 2
fi
"$python" -m sphinx -W --keep-going -q -c scripts/docsite -d dist/.doctrees . dist/site
echo "dist/site/index.html"
