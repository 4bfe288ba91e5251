package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/testutil"
)

// farm is the Redis of a scale run: one server, or a Redis Cluster of masters.
type farm struct {
	nodes    []*lab
	releases []func() // of the ports of the cluster's bus
}

// openFarm starts so many nodes with more arguments of redis-server.
func openFarm(ctx context.Context, nodes int, args ...string) (*farm, error) {
	f := &farm{}
	if nodes == 1 {
		l, err := openLab(ctx, args...)
		if err != nil {
			return nil, err
		}
		f.nodes = []*lab{l}
		return f, nil
	}
	var buses []string
	for range nodes {
		bus, release, err := testutil.HoldPort()
		if err != nil {
			f.close()
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		f.releases = append(f.releases, release)
		buses = append(buses, strconv.Itoa(bus))
		l, err := openLab(ctx, append([]string{"--cluster-enabled", "yes", "--cluster-port", buses[len(buses)-1]}, args...)...)
		if err != nil {
			f.close()
			return nil, err
		}
		f.nodes = append(f.nodes, l)
	}
	if err := f.form(ctx, buses); err != nil {
		f.close()
		return nil, fmt.Errorf("form a cluster of %d: %w", nodes, err)
	}
	return f, nil
}

// form gives each node its share of the slots, and returns when all nodes know all others.
func (f *farm) form(ctx context.Context, buses []string) error {
	const slots = 16384
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for i, l := range f.nodes {
		err := l.rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err()
		err = errors.Join(err, l.rdb.ClusterAddSlotsRange(ctx, i*slots/len(f.nodes), (i+1)*slots/len(f.nodes)-1).Err())
		for j, other := range f.nodes[:i] {
			host, port, splitErr := net.SplitHostPort(other.addr)
			err = errors.Join(err, splitErr, l.rdb.Do(ctx, "cluster", "meet", host, port, buses[j]).Err())
		}
		if err != nil {
			return err
		}
	}
	size := fmt.Sprintf("cluster_size:%d\r", len(f.nodes))
	for slices.ContainsFunc(f.nodes, func(l *lab) bool {
		info := l.rdb.ClusterInfo(ctx).Val()
		return !strings.Contains(info, "cluster_state:ok\r") || !strings.Contains(info, size)
	}) {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (f *farm) close() {
	for _, l := range f.nodes {
		l.close()
	}
	for _, release := range f.releases {
		release()
	}
}

func (f *farm) empty(ctx context.Context) error {
	for _, l := range f.nodes {
		if err := l.empty(ctx); err != nil {
			return err
		}
	}
	return nil
}

// url is what tasks.Connect takes.
func (f *farm) url() string {
	if len(f.nodes) == 1 {
		return f.nodes[0].url()
	}
	var addrs []string
	for _, l := range f.nodes {
		addrs = append(addrs, l.addr)
	}
	return "redis-cluster://" + strings.Join(addrs, ",")
}

// redisLoad is what the nodes have done since they started, together, and the memory that they have now.
type redisLoad struct {
	cpu      float64   // µs of the main threads
	nodes    []float64 // the same by node
	commands float64   // those inside of scripts, too
	scripts  float64
	traffic  float64 // bytes received and sent
	memory   float64 // bytes
}

func (f *farm) load(ctx context.Context) (redisLoad, error) {
	var sum redisLoad
	for _, l := range f.nodes {
		info, err := l.infos(ctx)
		if err != nil {
			return redisLoad{}, err
		}
		number := func(field string) float64 {
			v, failed := strconv.ParseFloat(info[field], 64)
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("read redis info: %s: %w", field, failed))
			}
			return v
		}
		cpu := (number("used_cpu_user_main_thread") + number("used_cpu_sys_main_thread")) * 1e6
		sum.cpu += cpu
		sum.nodes = append(sum.nodes, cpu)
		sum.commands += number("total_commands_processed")
		sum.scripts += calls(info["cmdstat_eval"]) + calls(info["cmdstat_evalsha"])
		sum.traffic += number("total_net_input_bytes") + number("total_net_output_bytes")
		sum.memory += number("used_memory")
		if err != nil {
			return redisLoad{}, err
		}
	}
	return sum, nil
}

// calls is the number of calls in a line of Redis's command statistics, 0 if there were none.
func calls(stat string) float64 {
	var n float64
	_, _ = fmt.Sscanf(stat, "calls=%g,", &n)
	return n
}

// since is what was done after an earlier load. The memory is the difference.
func (l redisLoad) since(before redisLoad) redisLoad {
	d := redisLoad{
		cpu: l.cpu - before.cpu, commands: l.commands - before.commands, scripts: l.scripts - before.scripts,
		traffic: l.traffic - before.traffic, memory: l.memory - before.memory,
	}
	for i := range l.nodes {
		d.nodes = append(d.nodes, l.nodes[i]-before.nodes[i])
	}
	return d
}

// busiest is the share of the node that works most: 1 for one node, 1/n if all of n do the same.
func (l redisLoad) busiest() float64 { return slices.Max(l.nodes) / l.cpu }

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
