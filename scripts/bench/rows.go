package main

import (
	"slices"
	"time"
)

// rows are all rows, in the order of the report.
func rows() []row {
	check, million, ask := shared(checkTenThousand), shared(queueMillion), shared(askMany)
	return slices.Concat(tracingRows(), []row{
		// These have no bar: they show how fast the machine is.
		{name: "machine.redis_round_trip", unit: "µs", measure: redisRoundTrip, bar: reported},
		{name: "machine.redis_script_pipelined", unit: "scripts/s", measure: redisScripts, bar: reported},

		// Workflows, most of them against the same work written by hand on asynq.
		{name: "canvas.chain_50", unit: "ms", measure: chains(1, 50), yardstick: rawChains(1, 50), bar: atMost(0.02)},
		{name: "canvas.chains_100_of_10", unit: "ms", measure: chains(100, 10), yardstick: rawChains(100, 10), bar: atMost(0.45)},
		{name: "canvas.chord_1000", unit: "ms", measure: chord(1000), yardstick: rawChord(1000), bar: atMost(0.25)},
		{name: "canvas.chord_10000_of_1000", unit: "ms", measure: chord(10000), yardstick: chord(1000), bar: atMost(11)},
		{name: "canvas.group_20000_c8", unit: "nodes/s", measure: group(20000, 1, 8), yardstick: rawGroup(20000, 1, 8), bar: atLeast(6)},
		{name: "canvas.group_20000_c64", unit: "nodes/s", measure: group(20000, 1, 64), yardstick: rawGroup(20000, 1, 64), bar: atLeast(6)},
		{name: "canvas.group_20000_w2_c8", unit: "nodes/s", measure: group(20000, 2, 8), yardstick: rawGroup(20000, 2, 8), bar: atLeast(6)},
		{name: "canvas.singles_20000_c8", unit: "tasks/s", measure: singles(20000), yardstick: rawSingles(20000), bar: atLeast(1.5)},
		{name: "canvas.send_group_10000", unit: "tasks/s", measure: sendGroup(10000), yardstick: rawSend(10000), bar: atLeast(10)},
		{name: "canvas.redis_per_node_20000", unit: "µs", measure: redisPerNode(20000), bar: atMost(15)},
		{name: "canvas.redis_per_single_20ms", unit: "µs", measure: redisPerSingle(), yardstick: rawRedisPerSingle, bar: atMost(1)},
		{name: "canvas.high_priority_p99", unit: "ms", measure: highPriority(), bar: atMost(25)},
		{name: "canvas.ten_behind_100000", unit: "ms", measure: tenBehind(), bar: atMost(150)},
		{name: "canvas.mixed_500_w2_c8", unit: "ms", measure: mixed(), yardstick: always(mixedIdeal()), bar: atMost(1.08)},
		{name: "canvas.idle", unit: "commands/s", rounds: 1, measure: idleLoad(), bar: atMost(10)},
		{name: "canvas.bytes_per_node", unit: "bytes", rounds: 1, measure: bytesPer(10000, runChord), bar: atMost(100)},
		{name: "canvas.bytes_per_single", unit: "bytes", rounds: 1, measure: bytesPer(10000, sendSingles), bar: atMost(320)},
		{name: "canvas.bytes_per_open_100000", unit: "bytes", rounds: 1, measure: bytesPer(100000, openMembers), bar: atMost(400)},
		{name: "canvas.bytes_per_open_single", unit: "bytes", rounds: 1, measure: bytesPer(10000, openSingles), bar: atMost(1100)},
		{name: "canvas.chord_10000_memory", unit: "MB", rounds: 1, measure: memoryAfter(12), yardstick: memoryAfter(2), bar: atMost(1.2)},
		{name: "canvas.kills_30", unit: "s", rounds: 1, limit: 15 * time.Minute, measure: groupWithKills(30), yardstick: killAllowance, bar: atMost(1)},

		// The values of a check come from one run. Its ideal is how long the candidates keep a thousand checks busy.
		{name: "proxies.check_10000", unit: "s", rounds: 1, measure: check(func(c checked) float64 { return c.took.Seconds() }),
			yardstick: check(func(c checked) float64 { return c.ideal.Seconds() }), bar: atMost(1.15)},
		{name: "proxies.check_10000_memory", unit: "MB", rounds: 1, measure: check(func(c checked) float64 { return c.megabytes }), bar: atMost(300)},
		{name: "proxies.check_10000_wrong", unit: "results", rounds: 1, measure: check(func(c checked) float64 { return float64(c.wrong) }), bar: atMost(0)},
		{name: "proxies.chord_40_chunks", unit: "s", rounds: 1, measure: chordOfChunks, yardstick: always((chunkTime * 40 / 8).Seconds()), bar: atMost(1.02)},
		{name: "proxies.pick_and_report_100000", unit: "picks/s", rounds: 3, measure: pickAndReport, bar: atLeast(20_000)},
		// Clients, proxies and site share the machine. HTTPS is compared with no proxy at all; plain HTTP, which proxies
		// have to read, with the same proxies without the gateway.
		{name: "proxies.gateway_https", unit: "requests/s", measure: fullSpeed(true, throughGateway), yardstick: fullSpeed(true, directly), bar: atLeast(0.5)},
		{name: "proxies.gateway_http", unit: "requests/s", measure: fullSpeed(false, throughGateway), yardstick: fullSpeed(false, throughProxies), bar: atLeast(0.5)},
		{name: "proxies.gateway_added_p99", unit: "ms", measure: addedLatency, bar: atMost(5)},

		{name: "queue.import_and_drain_100", unit: "s", measure: importAndDrain, bar: atMost(0.5)},
		{name: "queue.drain_40_of_3s", unit: "s", rounds: 1, measure: drainLong, bar: atMost(16)},
		{name: "queue.noop_100000", unit: "items/s", rounds: 3, measure: noopItems, yardstick: noopTasks, bar: atLeast(2)},
		{name: "queue.enqueue_bulk", unit: "items/s", rounds: 3, measure: enqueueBulk, bar: atLeast(50_000)},
		{name: "queue.import_1000000_memory", unit: "MB", rounds: 1, measure: importMemory, bar: atMost(64)},
		{name: "queue.fast_beside_slow_host", unit: "s", rounds: 1, measure: fastBesideSlow, yardstick: always(fastIdeal.Seconds()), bar: atMost(1.3)},
		{name: "queue.stop_idle", unit: "s", measure: stopIdle, bar: atMost(0.3)},

		// The yardstick fetches the same pages with as many connections and extracts the same fields, in memory: no
		// Redis, no state, no files, no listing pages.
		{name: "sites.pages", unit: "pages/s", rounds: 3, measure: scrapeSite, yardstick: scrapeInMemory, bar: atLeast(0.5)},
		// The peers scrape the site from its first list, with as many connections and the same fields: colly in memory,
		// Scrapy to JSON lines.
		{name: "sites.pages_of_colly", unit: "pages/s", rounds: 3, measure: scrapeSite, yardstick: scrapeWithColly, bar: atLeast(0.5)},
		{name: "sites.pages_of_scrapy", unit: "pages/s", rounds: 1, measure: scrapeSite, yardstick: scrapeWithScrapy, bar: atLeast(3)},
		// The memory of the process, the site included, and of Redis while a million pages are queued.
		{name: "sites.queued_memory", unit: "MB", rounds: 1, measure: million(func(q queued) float64 { return q.megabytes }), bar: atMost(300)},
		{name: "sites.queued_redis", unit: "bytes/URL", rounds: 1, measure: million(func(q queued) float64 { return q.bytesPerURL }), bar: reported},
		// Pages fetched twice, of those in flight when a worker process was killed, 20 times in 2,000 pages. A record
		// that is missing or there twice is an error.
		{name: "sites.kills", unit: "share", rounds: 1, measure: scrapeWithKills, bar: atMost(1)},
		// Four sites beside a fifth that answers 429, and without it.
		{name: "sites.beside_backoff", unit: "pages/s", rounds: 3, measure: scrapeMany(true), yardstick: scrapeMany(false), bar: atLeast(0.95)},

		{name: "jobs.create", unit: "jobs/s", rounds: 3, measure: createJobs(false), bar: atLeast(1000)},
		{name: "jobs.create_http", unit: "jobs/s", rounds: 3, measure: createJobs(true), bar: atLeast(1000)},
		// Eight agents by HTTP, beside heartbeats: requests with one script each. An item takes a share of a lease, a
		// request and about six scripts: the assignment, the queue, the job, its usage and its pace.
		{name: "jobs.settle_20000", unit: "items/s", rounds: 3, measure: settleItems, yardstick: heartbeats, bar: atLeast(0.08)},
		// These come from one run, with 10,000 jobs of 100 items each, and one of 100,000.
		{name: "jobs.list_p99", unit: "ms", rounds: 1, limit: 20 * time.Minute, measure: ask(func(a asked) float64 { return a.list.Seconds() * 1e3 }), bar: atMost(20)},
		{name: "jobs.status_p99", unit: "ms", rounds: 1, limit: 20 * time.Minute, measure: ask(func(a asked) float64 { return a.status.Seconds() * 1e3 }), bar: atMost(20)},
		{name: "jobs.progress_p99", unit: "ms", rounds: 1, limit: 20 * time.Minute, measure: ask(func(a asked) float64 { return a.progress.Seconds() * 1e3 }), bar: atMost(20)},
		{name: "jobs.report_100000_memory", unit: "MB", rounds: 1, limit: 20 * time.Minute, measure: ask(func(a asked) float64 { return a.report }), bar: atMost(64)},
	}, webhookRows(), uiRows())
}
