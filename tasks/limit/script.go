package limit

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the files of lua by name.
var scripts = readScripts()

func readScripts() map[string]*redis.Script {
	files, err := sources.ReadDir("lua")
	if err != nil {
		panic(err) // they are embedded
	}
	all := make(map[string]*redis.Script, len(files))
	for _, file := range files {
		source, err := sources.ReadFile("lua/" + file.Name())
		if err != nil {
			panic(err) // it is embedded
		}
		all[strings.TrimSuffix(file.Name(), ".lua")] = redis.NewScript(string(source))
	}
	return all
}
