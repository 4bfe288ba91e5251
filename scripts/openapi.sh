#!/usr/bin/env bash
# Checks docs/reference/openapi.json with redocly and spectral, and that clients which openapi-typescript and oapi-codegen
# generate from it compile. Needs npm; says so where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v npm >/dev/null; then
  echo "openapi: npm is missing, and docs/reference/openapi.json is not checked" >&2
  exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp docs/reference/openapi.json "$dir"
cd "$dir"
npm install --silent --no-fund --no-audit --ignore-scripts @redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3 openapi-typescript@7.13.0 typescript@5.9.3
npx redocly lint openapi.json
echo 'extends: ["spectral:oas"]' >.spectral.yaml
npx spectral lint openapi.json
npx openapi-typescript openapi.json -o client.ts
npx tsc --noEmit --strict client.ts

mkdir client
cp openapi.json client
cd client
go mod init client 2>/dev/null
go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -generate types,client -package client -o client.go openapi.json
go mod tidy 2>/dev/null
go build ./...
echo "openapi: clients in TypeScript and Go compile"
