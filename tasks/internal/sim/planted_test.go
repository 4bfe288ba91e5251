package sim

import (
	"strings"
	"testing"
)

// planted are bugs that the simulation must find. Each removes something from a script.
var planted = []struct {
	name, script string
	was, is      string
}{
	{"result of a node that another worker has counts", "turn",
		"if #lost > 0 then", "if false then"},
	{"range is taken without moving its start", "turn",
		"(a + n < b and whole(a + n) .. '-' .. whole(b) or whole(b))", "whole(a + n - 1) .. '-' .. whole(b)"},
	{"nodes that were not started are not returned", "turn",
		"    giveBack(list)\n", ""},
	{"entries of the dead are dropped", "reap",
		"redis.call('LPUSH', P .. 'ring:' .. q, entries[i])", ""},
	{"key with ready nodes leaves the ring", "turn",
		"redis.call('RPUSH', ring, e)", "more = false"},
	{"leases of the dead are dropped", "reap",
		"local n = giveBack(list, dead)", "local n = 0"},
	{"leases whose end Redis has lost stay", "reap",
		"if redis.call('HGET', lease, ARGV[i]) == ARGV[i + 1] then", "if false then"},
	{"entries that a worker did not hear of are dropped", "putback",
		"redis.call('LPUSH', P .. 'ring:' .. ARGV[2], ARGV[i])", ""},
	{"queue that a tool of asynq has resumed stays paused", "look",
		"redis.call('HDEL', k, 'paused')", "paused = now"},
	{"delayed node leaves the agenda for nowhere", "due",
		"then wake(id, node, have, '{WAITING}', state == GATHERING) end", "then end"},
	{"node that a batch has taken waits for it", "turn",
		"      redis.call('HSET', P .. 'w:' .. n.wf, n.node, rec)\n      redis.call('ZREM', P .. 'agenda', n.member)\n", ""},
	{"join is ready one outcome early", "flow",
		"if n and c >= n then", "if n and c >= n - 1 then"},
	{"second outcome of a node counts", "flow",
		"if terminal(old) or (st == PLANNED and not flagged(flags, 'planned')) then return false end", ""},
	{"place of a member is not released", "flow",
		"if redis.call('SREM', wf .. ':' .. HELD .. g, holder) == 0 then", "if redis.call('SREM', wf .. ':' .. HELD .. g, holder) >= 0 then"},
	{"map ends while its members run", "flow",
		"put(node, m == 0 and MAPPED or MAPPING)", "put(node, MAPPED)"},
	{"completed node is listed as open", "flow",
		"if st == OPEN then shut(node, task) end", ""},
	{"open node is taken for one that waits for its predecessors", "flow",
		"local function terminal(rec) return rec and string.find(TERMINAL,", "local function terminal(rec) return rec and string.find('{TERMINAL}{OPEN}',"},
	{"nodes of a paused workflow are taken", "turn",
		"if new and (got[2] == BY_PAUSE or got[2] == BY_ORDER) then return nil, true end", "if new and got[2] == BY_ORDER then return nil, true end"},
	{"signal that comes before its task is open is lost", "signal",
		"if not firstOpen() then return 'ok' end", "if not firstOpen() then redis.call('HDEL', wf, SIGNALS .. task) return 'ok' end"},
	{"running nodes of a paused workflow make others begin", "flow",
		"#on < onMost and not paused and", "#on < onMost and"},
	{"deadline is stored without a timer", "submit",
		"redis.call('ZADD', P .. 'agenda', ARGV[17], ARGV[1] .. '/!deadline')", ""},
	{"nodes that became ready in a pause are lost", "stop",
		"push(lane, have[5] or ARGV[1], {el})", ""},
	{"nodes that wait for a handler or a limit leave the agenda for nowhere", "hasten",
		"wake(ref, node, have, ARGV[1], true)", "string.sub(have[3] or '', 1, 1) == ARGV[1]"},
	{"nodes that are too large together are omitted", "turn",
		"if n == 0 then return text end", "if n == 0 then return nil end"},
}

// mostTries is how many histories it may take to find a planted bug.
const mostTries = 2000

// The simulation finds the bugs planted here. It is a test of the test.
func TestPlantedBugsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("long: hundreds of histories")
	}
	t.Parallel()
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			is := false
			plant := func(name, source string) string {
				if name != p.script {
					return source
				}
				is = strings.Contains(source, p.was)
				return strings.Replace(source, p.was, p.is, 1)
			}
			sc := allScripts(plant)
			l := newLane(t, sc...)
			if !is {
				t.Fatalf("script %s has no place for the bug any more: %s", p.script, p.was)
			}
			for seed := range uint64(mostTries) {
				if h := simulate(t, l, sc[seed%uint64(len(sc))], seed); len(h.problem) > 0 {
					t.Logf("found in history %d: %s", seed+1, h.problem[0])
					return
				}
			}
			t.Errorf("%d histories did not find it", mostTries)
		})
	}
}
