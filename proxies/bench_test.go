package proxies

import (
	"fmt"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
)

// BenchmarkPickAndReport picks from a pool of 10,000 proxies with reports.
func BenchmarkPickAndReport(b *testing.B) {
	pool := NewPool(PoolConfig{Redis: redistest.Server(b).Client()})
	defer pool.Close()
	members := make([]Proxy, 10_000)
	for i := range members {
		members[i] = Proxy{Protocol: "http", Host: fmt.Sprintf("8.1.%d.%d", i>>8, i&255), Port: 8080, LatencyMS: float64(50 + i%2000), Anonymity: probe.Elite}
	}
	_, err := pool.Add(b.Context(), members...)
	testutil.Ok(b, err)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			lease, err := pool.Pick(b.Context(), PickOptions{Site: "shop"})
			if err != nil {
				b.Error(err)
				return
			}
			lease.Report(Succeeded, 120*time.Millisecond)
		}
	})
	testutil.Ok(b, pool.Flush(b.Context()))
}
