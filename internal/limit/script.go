package limit

import (
	"embed"

	"muster/internal/luascript"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts maps the names of the Lua files to scripts.
var scripts = luascript.Read(sources)
