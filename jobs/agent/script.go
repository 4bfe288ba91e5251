package agent

import (
	"embed"

	"muster/internal/luascript"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the files of lua by name.
var scripts = luascript.Read(sources)
