package access

import (
	"embed"

	"muster/internal/luascript"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts contains the Lua scripts by name.
var scripts = luascript.Read(sources)
