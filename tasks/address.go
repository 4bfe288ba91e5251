package tasks

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// maxHosts is the most hosts in one address.
const maxHosts = 100

// ParseURL parses the address of a Redis and returns options for redis.NewUniversalClient.
//
//	redis://[user:password@]host[:6379][/database]
//	redis-cluster://[user:password@]host[:6379][,host[:6379]…]
//	redis-sentinel://[user:password@]host[:26379][,host[:26379]…]/master[?db=database]
//	unix://[user:password@]/path/of/the/socket[?db=database]
//
// The schemes rediss, rediss-cluster and rediss-sentinel use TLS. User and password are for Redis. The query can
// have sentinel_username and sentinel_password, for Sentinels with a separate login, and other settings
// of the connection, such as pool_size=50 or read_timeout=5s. A few hosts of a cluster are enough: the client gets the
// others from them. Calls end at the deadline of their context, also while Redis does not respond. Errors quote no part of
// the address that may be secret.
func ParseURL(address string) (*redis.UniversalOptions, error) {
	o, err := parseURL(address)
	if _, query, _ := strings.Cut(address, "?"); err != nil && strings.Contains(query, "@") {
		return nil, errURL // a password has the question mark, and its rest is taken for an option
	}
	return o, err
}

func parseURL(address string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return nil, errURL
	}
	base, kind, _ := strings.Cut(scheme, "-")
	cut := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		cut = i
	}
	login, hosts, tail := "", rest[:cut], rest[cut:]
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		login, hosts = hosts[:i+1], hosts[i+1:]
	}
	switch {
	case base != "redis" && base != "rediss" && scheme != "unix", kind != "" && kind != "cluster" && kind != "sentinel":
		return nil, errURL
	case kind == "":
		return parseOne(address)
	}
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	addrs, err := splitHosts(hosts, port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse("redis:" + tail)
	if err != nil {
		return nil, errURL
	}
	q := u.Query()
	path := strings.Trim(u.Path, "/")
	take := func(name string) string {
		v := q.Get(name)
		q.Del(name)
		return v
	}
	var sentinel redis.UniversalOptions
	if kind == "sentinel" {
		sentinel.MasterName = cmp.Or(path, q.Get("master"))
		q.Del("master")
		sentinel.SentinelUsername, sentinel.SentinelPassword = take("sentinel_username"), take("sentinel_password")
		if sentinel.MasterName == "" {
			return nil, errors.New("an address with redis-sentinel:// names the master that the Sentinels watch, as in redis-sentinel://host1,host2/mymaster")
		}
		path = ""
	}
	o, err := parseOne(base + "://" + login + addrs[0] + "/" + path + "?" + q.Encode())
	if err != nil {
		return nil, err
	}
	o.Addrs = addrs
	o.IsClusterMode = kind == "cluster"
	o.MasterName, o.SentinelUsername, o.SentinelPassword = sentinel.MasterName, sentinel.SentinelUsername, sentinel.SentinelPassword
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // the client uses the name of each host
	}
	if o.IsClusterMode && o.DB != 0 {
		return nil, fmt.Errorf("database %d: a cluster has only database 0", o.DB)
	}
	return o, nil
}

var errURL = errors.New("not the address of a Redis: write redis://[user:password@]host:port/database, redis-cluster://host1,host2 or redis-sentinel://host1,host2/master, with special characters of a password as %XX")

func splitHosts(hosts, port string) ([]string, error) {
	var addrs []string
	for h := range strings.SplitSeq(hosts, ",") {
		if h = strings.TrimSpace(h); h == "" {
			continue
		}
		if _, p, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		} else if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errURL
		}
		addrs = append(addrs, h)
	}
	if len(addrs) == 0 || len(addrs) > maxHosts {
		return nil, fmt.Errorf("%d hosts in the address of a Redis: name 1 to %d", len(addrs), maxHosts)
	}
	return addrs, nil
}

// parseOne parses the address of a single Redis.
func parseOne(address string) (*redis.UniversalOptions, error) {
	o, err := redis.ParseURL(address)
	var parse *url.Error
	switch {
	case errors.As(err, &parse), err != nil && strings.Contains(err.Error(), "URL"):
		return nil, errURL // the reason may quote a password
	case err != nil && strings.Contains(err.Error(), "database"):
		return nil, errors.New("the database in the address of a Redis is not a number")
	case err != nil:
		return nil, fmt.Errorf("address of a Redis: %w", err)
	}
	return &redis.UniversalOptions{
		Addrs: []string{o.Addr}, DB: o.DB, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		Protocol: o.Protocol, ClientName: o.ClientName, MaxRetries: o.MaxRetries,
		MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns,
		MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns, MaxConcurrentDials: o.MaxConcurrentDials,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		ContextTimeoutEnabled: true,
	}, nil
}
