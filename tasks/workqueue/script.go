package workqueue

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/common.lua
	commonLua string
	//go:embed lua/enqueue.lua
	enqueueLua string
	//go:embed lua/lease.lua
	leaseLua string
	//go:embed lua/leaseids.lua
	leaseIDsLua string
	//go:embed lua/heartbeat.lua
	heartbeatLua string
	//go:embed lua/settle.lua
	settleLua string
	//go:embed lua/retry.lua
	retryLua string
	//go:embed lua/return.lua
	returnLua string
	//go:embed lua/expireworker.lua
	expireWorkerLua string
	//go:embed lua/beat.lua
	beatLua string
	//go:embed lua/strays.lua
	straysLua string
	//go:embed lua/requeue.lua
	requeueLua string
	//go:embed lua/get.lua
	getLua string
	//go:embed lua/repair.lua
	repairLua string
	//go:embed lua/setcounts.lua
	setCountsLua string
	//go:embed lua/stats.lua
	statsLua string
	//go:embed lua/pause.lua
	pauseLua string
	//go:embed lua/backlog.lua
	backlogLua string
	//go:embed lua/claim.lua
	claimLua string
	//go:embed lua/keep.lua
	keepLua string
	//go:embed lua/ack.lua
	ackLua string

	enqueueCmd      = script(enqueueLua)
	leaseCmd        = script(leaseLua)
	leaseIDsCmd     = script(leaseIDsLua)
	heartbeatCmd    = script(heartbeatLua)
	settleCmd       = script(settleLua)
	retryCmd        = script(retryLua)
	returnCmd       = script(returnLua)
	expireWorkerCmd = script(expireWorkerLua)
	beatCmd         = script(beatLua)
	straysCmd       = script(straysLua)
	requeueCmd      = script(requeueLua)
	getCmd          = script(getLua)
	repairCmd       = script(repairLua)
	setCountsCmd    = script(setCountsLua)
	statsCmd        = script(statsLua)
	pauseCmd        = script(pauseLua)
	backlogCmd      = script(backlogLua)
	claimCmd        = script(claimLua)
	keepCmd         = script(keepLua)
	ackCmd          = script(ackLua)
)

func script(src string) *redis.Script { return redis.NewScript(commonLua + src) }

// run runs a script on the queue's keys.
func (q *Queue) run(ctx context.Context, doing string, cmd *redis.Script, args ...any) (any, error) {
	v, err := cmd.Run(ctx, q.rdb, q.keys.all(), args...).Result()
	if err == nil {
		return v, nil
	}
	if strings.Contains(err.Error(), "WQNEWER") {
		err = ErrNewer
	}
	if strings.HasPrefix(err.Error(), "OOM ") {
		err = fmt.Errorf("%w (%w)", ErrFull, err)
	}
	return nil, fmt.Errorf("%s in queue %s: %w", doing, q.name, err)
}

// runInts runs a script that answers with a list of numbers.
func (q *Queue) runInts(ctx context.Context, doing string, cmd *redis.Script, args ...any) ([]int64, error) {
	v, err := q.run(ctx, doing, cmd, args...)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	out := make([]int64, len(list))
	for i, x := range list {
		out[i] = toInt(x)
	}
	return out, nil
}

// toInt reads a number of a script's answer.
func toInt(v any) int64 {
	n, _ := v.(int64)
	return n
}

// toString reads a string of a script's answer.
func toString(v any) string {
	s, _ := v.(string)
	return s
}
