// Package luascript reads embedded Lua scripts.
package luascript

import (
	"io/fs"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Read returns the scripts lua/NAME.lua in files by name, each prefixed with functions and, if it exists, lua/common.lua. It panics
// if a file cannot be read, because the files are embedded.
func Read(files fs.FS, functions ...string) map[string]*redis.Script {
	names, err := fs.Glob(files, "lua/*.lua")
	if err != nil {
		panic(err)
	}
	source := func(path string) string {
		raw, err := fs.ReadFile(files, path)
		if err != nil {
			panic(err)
		}
		return string(raw)
	}
	const shared = "lua/common.lua"
	common := strings.Join(functions, "")
	if _, err := fs.Stat(files, shared); err == nil {
		common += source(shared)
	}
	scripts := map[string]*redis.Script{}
	for _, path := range names {
		if path != shared {
			scripts[strings.TrimSuffix(strings.TrimPrefix(path, "lua/"), ".lua")] = redis.NewScript(common + source(path))
		}
	}
	return scripts
}
