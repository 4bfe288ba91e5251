package limit

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/pace.lua
	paceLua string
	//go:embed lua/notbefore.lua
	notBeforeLua string
	//go:embed lua/allow.lua
	allowLua string
	//go:embed lua/report.lua
	reportLua string

	acquireCmd   = redis.NewScript(acquireLua)
	releaseCmd   = redis.NewScript(releaseLua)
	renewCmd     = redis.NewScript(renewLua)
	takeCmd      = redis.NewScript(takeLua)
	paceCmd      = redis.NewScript(paceLua)
	notBeforeCmd = redis.NewScript(notBeforeLua)
	allowCmd     = redis.NewScript(allowLua)
	reportCmd    = redis.NewScript(reportLua)
)
